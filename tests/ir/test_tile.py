"""Statements about tiles: their text reads back, and what is wrong with them is refused."""

import pytest

from weft.errors import WeftError
from weft.ir.text.text import canonicalise, print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.verify.verify import verify

HEAD = """kernel k kind=custom
param x: f16[64, 64]
param y: f32[64, 64]
{
  for %block.x in 2 block.x {
    alloc s: f16[64, 64] shared align 128
    alloc bytes: u8[64] shared
    alloc words: i32[16] shared over bytes
    for %thread.x in 32 thread.x {
      alloc a: f16[8] local
      alloc b: f16[8] local
      alloc c: f32[8] local
"""
TAIL = """    }
  }
}
"""
LOAD = "matrix_load a[] a 16 16 16 = x[0, 0] row [1, 0] column [0, 1]"
MULTIPLY = "matrix_multiply c[] = a[], b[], c[] 16 16 16"
GOOD = (
    LOAD, "matrix_load b[] b 16 16 16 = s[%thread.x // 32, 0] row [0, 1] column [1, 0]", MULTIPLY,
    MULTIPLY + " tf32", "matrix_store c[] accumulator 16 16 16 = y[0, 0] row [1, 0] column [0, 1]",
    "async_copy s[0, 0] = x[%thread.x, 0] 8 L2", "copy_commit", "copy_wait 3",
    "clock %t = cycles", "clock %t = nanoseconds", "address %p = x", "barrier grid",
    "atomic %o: i32 = add words[0], 1:i32 block acq_rel",
    "atomic %o: i32 = add words[0], 1:i32 device",
)
BAD = (
    LOAD.replace(" a 16", " d 16"), LOAD.replace("x[0, 0]", "x[0]"), LOAD.replace("a[]", "z[]"),
    LOAD.replace("x[0, 0]", "y[0, 0]"), LOAD.replace("16 16 16", "16 16"), LOAD + " more",
    LOAD.replace("16 16 16", "32 16 16"), LOAD.replace("a[]", "s[]"), LOAD.replace("[0, 1]", "[0]"),
    MULTIPLY.replace("16 16 16", "16 16 8"), MULTIPLY.replace("c[] 16", "words[] 16"),
    MULTIPLY.replace("a[], b[]", "c[], c[]"), "async_copy s[0, 0] = x[0, 0] 3 L2",
    "async_copy s[0, 0] = x[0, 0] 8 L9", "async_copy x[0, 0] = x[0, 0] 8 L2",
    "async_copy words[0] = x[0, 0] 4 L1", "copy_wait", "clock %t = days", "clock %t: f32 = cycles",
    "address %p = nothing", "address %p: f32 = x", "alloc z: i32[4] local over s",
    "alloc z: i32[4] local align 3", "atomic %o: i32 = add words[0], 1:i32 device weak",
)  # fmt: skip


@pytest.mark.parametrize("statement", GOOD)
def test_good_statements(statement):
    text = HEAD + f"      {statement}\n" + TAIL
    kernel = parse_kernel(text)
    verify(kernel)
    assert print_kernel(kernel) == text
    verify(canonicalise(kernel))


@pytest.mark.parametrize("statement", BAD)
def test_bad_statements(statement):
    with pytest.raises(WeftError):
        verify(parse_kernel(HEAD + f"      {statement}\n" + TAIL))
