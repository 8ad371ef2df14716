"""Optimisation levels of functions, and the options that each sets.

Each has a pipeline of the compiler; the levels for size and for latency change the text before it.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LEVELS", "levelled"]

# Each level, and the compiler's pipeline for it. "Olatency" is O3 with the heads of loops on
# boundaries of 32 bytes; front ends prefetch for it.
LEVELS: Final = {"O0": "O0", "O1": "O1", "O2": "O2", "O3": "O3", "Os": "Os", "Olatency": "O3"}


def levelled(text: str, level: str) -> str:
    """Return a module with what a level asks for beside its pipeline."""
    if level == "Os":
        return text.replace("attributes #0 = { nounwind ", "attributes #0 = { nounwind optsize ", 1)
    if level != "Olatency":
        return text
    count = 0

    def align(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"{match[0]}, !llvm.loop !{900_000 + count}"

    ends = r"^  br (?:i1 %\S+, label %loop\d+, label %end\d+|label %while\d+)$"
    text = re.sub(ends, align, text, flags=re.MULTILINE)
    nodes = [f"!{900_000 + k} = distinct !{{!{900_000 + k}, !900000}}" for k in range(1, count + 1)]
    return "\n".join([text, *nodes, '!900000 = !{!"llvm.loop.align", i32 32}']) + "\n"
