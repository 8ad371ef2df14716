"""The C function of a critical function: what it takes from the text of its kernel."""

import pytest

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.runtimes.native.calls import critical_ir as ir

BODY = f"""define internal i32 @{ir.BODY}(ptr %buffers, ptr %vars, ptr %status) alwaysinline #0 {{
entry:
  ret i32 0
}}
attributes #0 = {{ nounwind }}
"""


def test_the_kernel_becomes_a_part_of_the_function():
    text = ir.core_module(BODY, "f", ir.words_of({"x": ir.Array(dt.float32, (None,))}), 1,
                          ["x.0"], nulls=True)  # fmt: skip
    assert BODY in text
    assert "define i32 @f(ptr %a0, i64 %a1, ptr noalias %r0, ptr %failure) #0 align 64 {" in text


@pytest.mark.parametrize(("old", "new"), [
    ("internal ", ""), ("alwaysinline ", ""), ("alwaysinline #0", "alwaysinline #1"),
    ("attributes #0", "attributes #3"), ("nounwind", "cold"), (f"@{ir.BODY}", "@k"),
])  # fmt: skip
def test_a_kernel_that_would_stay_apart_is_refused(old, new):
    assert old in BODY
    with pytest.raises(VerifyError, match="another text of the kernel"):
        ir.core_module(BODY.replace(old, new), "f", [], 1, [], nulls=False)
