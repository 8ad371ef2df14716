"""Arguments of gcc and clang: what makes code exact, and the instructions of a target."""

from __future__ import annotations

from typing import Final

from weft.target import Target

__all__ = ["LEVELS", "arguments"]

# Exactness: no contraction (MAD alone is fused, by name), no errno, no assumption about floats.
# Integers wrap around, pointers of any type may meet. Functions that failures depend on are those
# of the process. One function of its own is no reason for tables that nobody unwinds by.
_ALWAYS: Final = (
    "-std=gnu11", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-fast-math",
    "-fno-strict-aliasing", "-fwrapv", "-fno-builtin-malloc", "-fno-builtin-printf",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-w",
    "-Wno-psabi",
)  # fmt: skip

# What the pipelines of `weft.compilers.base` are: code that is vectorised and blocked already.
LEVELS: Final = {
    "none": "-O0", "quick": "-O1", "short": "-O2", "O0": "-O0", "O1": "-O1", "O2": "-O2",
    "O3": "-O3", "Os": "-Os",
}  # fmt: skip

# Features of x86 that C code is written for and that compilers have known for long.
_X86: Final = frozenset((
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "movbe", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl",
))  # fmt: skip


def arguments(target: Target) -> tuple[str, ...]:
    """Return what a compiler is called with for a target, but for the level of optimisation."""
    found = list(_ALWAYS)
    if target.arch == "x86_64":
        names = [f[1:] for f in target.features if f.startswith("+")]
        found += ["-m64", *(f"-m{name}" for name in names if name in _X86)]
        if target.vector_bytes >= 64:
            found.append("-mprefer-vector-width=512")
    return tuple(found)
