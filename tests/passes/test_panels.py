"""Copies that leave a scheduled kernel, and those that may not."""

import numpy as np
import pytest

from weft.ir.interpret.interpret import run
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.verify.verify import verify
from weft.passes.packed_weights import take_packed_weights

# Columns of b in panels of four; the last one is not full.
TEXT = """kernel k kind=contraction flops=0 traffic=0
param a: f32[6, 10]
param b: f32[10, 14]
param c: f32[6, 14]
{
  for %j in 4 parallel {
    alloc p: f32[10, 4] local
    for %k in 10 serial {
      for %l in 4 serial {
        load %v: f32 = b[%k, (%j * 4) + %l] mask ((%j * 4) + %l) < 14
        store p[%k, %l] = %v
      }
    }
    for %i in 6 serial {
      for %m in 4 serial {
        for %r in 10 serial {
          load %x: f32 = a[%i, %r]
          load %y: f32 = p[%r, %m]
          load %z: f32 = c[%i, (%j * 4) + %m] mask ((%j * 4) + %m) < 14
          store c[%i, (%j * 4) + %m] = %z + (%x * %y) mask ((%j * 4) + %m) < 14
        }
      }
    }
  }
}
"""


def test_the_kernel_and_what_fills_its_panels(rng):
    kernel = parse_kernel(TEXT)
    taken, (panel,) = take_packed_weights(kernel, {"b"})
    verify(taken)
    verify(panel.kernel)
    assert [p.name for p in taken.params] == ["a", "b", "c", panel.memory.name]
    assert panel.source == "b"
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((6, 10), (10, 14)))
    want, got = np.zeros((2, 6, 14), np.float32)
    run(kernel, {"a": a, "b": b, "c": want})
    panels = np.zeros((4, 10, 4), np.float32)
    run(panel.kernel, {"b": b, panel.memory.name: panels})
    for j in range(14):
        np.testing.assert_array_equal(panels[j // 4, :, j % 4], b[:, j])
    run(taken, {"a": a, "b": np.full_like(b, np.nan), "c": got, panel.memory.name: panels})
    np.testing.assert_array_equal(got, want)


def test_nobody_asks_for_what_is_not_read_any_more():
    hint = "for %i in 6 serial {\n      for %f in 2 serial {\n prefetch b[%i, (%j + 1) * 4]\n }"
    kernel = parse_kernel(TEXT.replace("for %i in 6 serial {", hint))
    taken, panels = take_packed_weights(kernel, {"b"})
    verify(taken)
    assert len(panels) == 1
    plain, _ = take_packed_weights(parse_kernel(TEXT), {"b"})
    assert print_kernel(taken) == print_kernel(plain)


@pytest.mark.parametrize(("old", "new"), [
    ("store p[%k, %l] = %v", "store p[%k, %l] = %v * 2.0:f32"),  # a value that is computed
    ("load %v: f32 = b[%k, (%j * 4) + %l] mask ((%j * 4) + %l) < 14",
     "load %v: f32 = a[%j, %k]"),  # of another array
    ("for %j in 4 parallel {", "for %j in 4 parallel {\n    store b[%j, 0] = 0.0:f32"),  # written
    ("for %i in 6 serial {", "for %i in 6 serial {\n      store p[%i, 0] = 1.0:f32"),  # two writers
    ("for %j in 4 parallel {", "for %t in 4 parallel {\n let %j: i64 = %t % 3"),  # with a name
], ids=["computed", "another", "written", "twice", "named"])
def test_what_stays(old, new):
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new)
    kernel = parse_kernel(text)
    verify(kernel)
    assert take_packed_weights(kernel, {"b"}) == (kernel, ())


def test_copies_that_overlap_too_much_stay():
    kernel = parse_kernel(TEXT.replace("for %j in 4", "for %j in 12").replace("%j * 4", "%j * 1"))
    assert take_packed_weights(kernel, {"b"}) == (kernel, ())


def test_copies_of_one_array_share_what_it_may_take():
    again = TEXT[TEXT.index("  for %j"):TEXT.rindex("}")]
    for name in "jklmirvxyz":
        again = again.replace(f"%{name}", f"%{name}{name}")
    again = again.replace("p[", "q[").replace("alloc p", "alloc q")
    kernel = parse_kernel(TEXT[:TEXT.rindex("}")] + again + "}\n")
    verify(kernel)
    taken, panels = take_packed_weights(kernel, {"b"})
    verify(taken)
    assert [p.source for p in panels] == ["b"]  # two would take 2.3 times as much


def test_arrays_that_may_change_stay():
    kernel = parse_kernel(TEXT)
    assert take_packed_weights(kernel, {"a"}) == (kernel, ())
