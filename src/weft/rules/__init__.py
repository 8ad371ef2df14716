"""Declarative identities, shared by several stages: algebra, constant folding, index arithmetic."""
