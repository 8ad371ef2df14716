"""What writes the failure of a kernel into its status: only the first one, whoever comes first."""

from __future__ import annotations

from typing import Final

__all__ = ["FAIL", "report"]


def report(status: str, code: str, statement: str, value: str, bound: str) -> list[str]:
    """Return the code that writes a failure, unless there was one, and goes on in a new block."""
    return [
        f"  %fail.pair = cmpxchg ptr {status}, i32 0, i32 {code} acq_rel monotonic",
        "  %fail.first = extractvalue { i32, i1 } %fail.pair, 1",
        "  br i1 %fail.first, label %fail.write, label %fail.done",
        "fail.write:",
        f"  %fail.statement = getelementptr i8, ptr {status}, i64 8",
        f"  store i32 {statement}, ptr %fail.statement",
        f"  %fail.index = getelementptr i8, ptr {status}, i64 16",
        f"  store i64 {value}, ptr %fail.index",
        f"  %fail.bound = getelementptr i8, ptr {status}, i64 24",
        f"  store i64 {bound}, ptr %fail.bound",
        "  br label %fail.done",
        "fail.done:",
    ]


FAIL: Final = "\n".join([
    "define internal void @weft.fail(ptr %status, i32 %statement, i64 %value, i64 %bound) #1 {",
    "entry:",
    "  %code = add i32 %statement, 1",
    *report("%status", "%code", "%statement", "%value", "%bound"),
    "  ret void",
    "}",
])  # fmt: skip
