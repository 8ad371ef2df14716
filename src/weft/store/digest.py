"""BLAKE2b as `hashlib` has it, without OpenSSL, which importing `hashlib` loads (3 ms)."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that is built otherwise
    from hashlib import blake2b

__all__ = ["blake2b"]
