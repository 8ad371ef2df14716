"""Containers of layers and of parameters."""
