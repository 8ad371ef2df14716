"""Verifiers of the IR, one for each level."""
