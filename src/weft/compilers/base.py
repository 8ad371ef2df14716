"""What every compiler offers."""

from typing import Protocol

__all__ = ["Compiler"]


class Compiler(Protocol):
    """Turns source text into the bytes that a runtime loads: an object, a cubin, PTX, SPIR-V.

    A compiler is stateless towards its callers and may be used from several host threads.
    """

    @property
    def cache_key(self) -> str:
        """Identity, version and flags: whatever changes the bytes made from one source."""
        ...

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the binary of ``source``.

        Raises
        ------
        CompileError
            If the source is refused; nothing is left behind.
        """
        ...
