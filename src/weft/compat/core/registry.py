"""``numba.core.registry``: where programs import the class of functions under ``njit`` from."""

from weft.compat.core.dispatcher import CPUDispatcher

__all__ = ["CPUDispatcher"]
