"""Activation layers, and the base of layers that are functions with options."""
