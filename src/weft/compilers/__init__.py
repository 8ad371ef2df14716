"""Toolchains: each turns one kind of source text into bytes that a runtime can load."""
