"""What the interpreters of rows share: native functions of operations, from bodies in LLVM IR."""

from __future__ import annotations

import re


def operation(name: str, body: str, words: range, word: str, parameters: str = "") -> str:
    """Return the function of an operation, with the operands that it uses loaded.

    Parameters
    ----------
    body : str
        Its instructions. They end in a branch to ``hit``, to ``miss`` (a row did not fit) or to
        ``clear`` (it did not, and an exception is set); ``%wN`` is word N of the row, ``%pN`` the
        same as an address.
    words : range
        The words that may be operands.
    word : str
        The function that reads one.
    parameters : str
        What the function takes beside the frame and the row.
    """
    lines = [f"define internal i32 @do_{name}(ptr %frame, ptr %row{parameters}) alwaysinline "
             "nounwind {", "entry:"]  # fmt: skip
    for i in words:
        if re.search(rf"%[wp]{i}\b", body) and f"%w{i} =" not in body:
            lines.append(f"  %w{i} = call i64 @{word}(ptr %row, i64 {i})")
        if f"%p{i}" in body:
            lines.append(f"  %p{i} = inttoptr i64 %w{i} to ptr")
    end = ["hit:", "  ret i32 0"]
    if "%miss" in body:
        end += ["miss:", "  ret i32 1"]
    if "label %clear" in body:
        end += ["clear:", "  call void @PyErr_Clear()", "  ret i32 1"]
    return "\n".join([*lines, body.strip("\n"), *end, "}\n"])
