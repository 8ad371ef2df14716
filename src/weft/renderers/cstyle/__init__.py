"""Kernel level as text of C and of its relatives."""
