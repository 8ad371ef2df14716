"""Docstring sections that methods of tensors share."""
