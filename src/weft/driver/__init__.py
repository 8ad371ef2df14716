"""The driver: takes a graph through every stage, caches the result, runs it."""

from weft.driver.device import allocate, from_host
from weft.driver.realize import Compiled, compile, realize

__all__ = ["Compiled", "allocate", "compile", "from_host", "realize"]
