"""Patterns over expressions, and rewriting by rules."""
