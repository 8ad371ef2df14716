"""Dot products of packed words and panels of computed values, against the nest they came from."""

import numpy as np
import pytest

import schedule_nests as nests
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.stmt import Axis, Kernel, Load, Reduce, Store
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.verify.verify import verify
from weft.schedule import Schedule

PAIRS = [("bf16", "bf16", "dot2"), ("i8", "i8", "dot4"), ("i8", "i8", "dot4s"),
         ("u8", "i8", "dot4"), ("i8", "u8", "dot4"), ("u8", "u8", "dot4")]


@pytest.mark.parametrize(("left", "right", "op"), PAIRS)
@pytest.mark.parametrize("inner", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("bias", ["left", "right"])
def test_tensorize(left, right, op, inner, bias):
    kernel = nests.narrow(2, 3, inner, left, right)
    made = Schedule(kernel).tensorize("s", "k", op, bias=bias)
    assert_same(kernel, made.kernel)
    assert op in print_kernel(made.bare)
    again = Schedule.replay(kernel, made.trace)
    assert print_kernel(again.kernel) == print_kernel(made.kernel)
    assert print_kernel(parse_kernel(print_kernel(made.bare))) == print_kernel(made.bare)


@pytest.mark.parametrize(("left", "right"), [("f16", "f16"), ("bf16", "f16"), ("f32", "f16")])
@pytest.mark.parametrize("inner", [1, 7])
def test_factors_get_names(left, right, inner):
    kernel = nests.narrow(2, 3, inner, left, right)
    made = Schedule(kernel).tensorize("s", "k", "mad", multiple=4)
    made.precompute("s.right", "i", ("j", "k.q"))
    assert_same(kernel, made.kernel)


def test_words_of_parts_are_cut_from_their_floats():
    made = Schedule(nests.matmul(2, 3, 6)).separate("s").tensorize("s", "k", "dot2")
    assert "cast.u16" not in print_kernel(made.bare)
    assert "cast.u16" in print_kernel(Schedule(nests.matmul(2, 3, 6)).separate("s").bare)


def test_a_negative_byte_that_became_unsigned_is_no_byte():
    x, y, s = (ex.var(name, d) for name, d in (("x", dt.int8), ("y", dt.int8), ("s", dt.int32)))
    wide = ex.cast(ex.cast(x, dt.uint16), dt.int32)
    a, c = nests.memory("a", 4, dtype=dt.int8), nests.memory("c", 1, dtype=dt.int32)
    reduce = Reduce((Axis(ex.var("k"), ex.index(4)),), (nests.total("s", dt.int32,
                    wide * ex.cast(y, dt.int32)),), (Load(x, a, (ex.var("k"),)),
                                                     Load(y, a, (ex.var("k"),))))
    kernel = Kernel("cast", (a, c), (reduce, Store(c, (ex.index(0),), s)))
    with pytest.raises(ScheduleError, match="narrow"):
        Schedule(kernel).tensorize("s", "k", "dot4")


@pytest.mark.parametrize("out", ["i8", "u8", "i16", "i32"])
def test_sums_of_any_width_wrap_around(out):
    kernel = nests.narrow(2, 3, 6, "i8", "i8", out=out)
    made = Schedule(kernel).tensorize("s", "k", "dot4").kernel
    verify(made)
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, n).astype(np.int8) for n in (12, 18))
    found = []
    for k in (kernel, made):
        c = np.zeros(6, k.params[2].dtype.numpy)
        interpret.run(k, {"a": a.copy(), "b": b.copy(), "c": c}, {})
        found.append(c)
    exact = a.reshape(2, 6).astype(np.int64) @ b.reshape(6, 3).astype(np.int64)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], exact.astype(found[1].dtype).ravel())


@pytest.mark.parametrize(("kernel", "op"), [
    (nests.matmul(2, 3, 4), "dot2"), (nests.narrow(2, 3, 4, "f16", "f16"), "dot2"),
    (nests.narrow(2, 3, 4, "bf16", "bf16"), "dot4"), (nests.narrow(2, 3, 4, "i8", "i8"), "dot2"),
    (nests.narrow(2, 3, 4, "u8", "i8"), "dot4s"),
    (nests.narrow(2, 3, 4, "i16", "i16"), "dot4"), (nests.add_sum(4), "dot2"),
    (nests.narrow(2, 3, 4, "bf16", "bf16"), "dot3"),
])  # fmt: skip
def test_what_is_no_dot_product_is_refused(kernel, op):
    with pytest.raises(ScheduleError):
        Schedule(kernel).tensorize("s", "k", op)


@pytest.mark.parametrize(("left", "right", "op"), PAIRS)
@pytest.mark.parametrize("shape", [(5, 9, 7), (4, 16, 8)])
@pytest.mark.parametrize("layout", ["ik,kj", "ki,jk"])
def test_a_tile_of_packed_words(left, right, op, shape, layout):
    left_at, right_at = layout.split(",")
    kernel = nests.narrow(*shape, left, right, left_at, right_at)
    made = Schedule(kernel).tensorize("s", "k", op).split("j", 8).split("i", 2)
    for loop in ("i.o", "i.i", "j.o", "j.i"):
        made.sink(loop)
    made.reorder("j.o", "i.o", "i.i", "j.i").precompute("s.right", "j.o", ("k.q", "j.i"))
    name = "s"
    if left == right and op == "dot4":
        made.precompute("s.bias", "j.o", ("j.i",))
        name = "s.dot"
    made.precompute("s.left", "i.o", ("i.i", "k.q"))
    made.decompose_reduction(name, "i.i").unroll("i.i").vectorize("j.i")
    assert_same(kernel, made.kernel)


def test_precompute_of_a_row():
    kernel = nests.softmax(3, 5)
    assert_same(kernel, Schedule(kernel).precompute("a", "r", ("k",), skew=3).kernel)


@pytest.mark.parametrize("arguments", [
    ("x", "j", ("k",)),  # varies with i, which is outside: legal, and the other way round
    ("nothing", "i", ("k",)), ("x", "i", ()), ("x", "i", ("k", "nothing")), ("x", "k", ("k",)),
    ("d", "r", ("c",)),
])  # fmt: skip
def test_precompute_refuses(arguments):
    kernel = nests.narrow(2, 3, 4)
    if arguments == ("x", "j", ("k",)):
        assert_same(kernel, Schedule(kernel).precompute(*arguments).kernel)
        return
    with pytest.raises(ScheduleError):
        Schedule(kernel).precompute(*arguments)


def test_precompute_refuses_a_memory_that_is_written():
    kernel = nests.running_sum(2, 5)
    with pytest.raises(ScheduleError, match="stores to y"):
        Schedule(kernel).precompute("p", "r", ("k",))
