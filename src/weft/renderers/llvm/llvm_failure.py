"""What writes the failure of a kernel into its status: only the first one, whoever comes first."""

from __future__ import annotations

from typing import Final

from weft.renderers.base import STOPPED

__all__ = ["FAIL", "LAUNCH", "STOP", "report"]


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

# The way out of a loop that an interrupt ends, and of every kernel that has such loops.
STOP: Final = "\n".join([
    "@weft_stop = external global i64",
    "declare i64 @weft_turns(ptr)",
    "declare void @weft_turned(ptr)",
    "define internal void @weft.stopped(ptr %status) #1 {",
    "entry:",
    *report("%status", str(STOPPED), str(STOPPED - 1), "0", "0"),
    "  ret void",
    "}",
    "define internal void @weft.turned(ptr %launch) alwaysinline nounwind {",
    "  %asked.at = getelementptr i64, ptr %launch, i64 1",
    "  %asked = load atomic i64, ptr %asked.at monotonic, align 8",
    "  %none = icmp eq i64 %asked, 0",
    "  br i1 %none, label %done, label %ends",
    "ends:",
    "  call void @weft_turned(ptr %launch)",
    "  br label %done",
    "done:",
    "  ret void",
    "}",
])  # fmt: skip

# What a kernel with such loops notes at its beginning: see `weft.runtimes.cpu.interrupts`.
LAUNCH: Final = (
    "  %launch.began = load atomic i64, ptr @weft_stop monotonic, align 8",
    "  store i64 %launch.began, ptr %launch, align 8",
    "  %launch.asked = getelementptr i64, ptr %launch, i64 1",
    "  store i64 0, ptr %launch.asked, align 8",
)
