"""Captured functions: capture once, replay natively, with run-time sizes and numbers."""
