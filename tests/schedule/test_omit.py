"""The primitives omit and branch: terms outside of a picture take no part in its sums."""

import math

import numpy as np
import pytest

import schedule_nests as nests
from schedule_nests import assert_same, convolution, loop, memory, total, v
from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.stmt import Axis, For, If, Kernel, Load, Reduce, Store
from weft.ir.traverse import Rewriter, walk
from weft.rules import index
from weft.schedule import Schedule
from weft.schedule.analysis.subscripts import Space

f = nests.f


def conditions(schedule):
    return [s.condition for s in walk(schedule.bare.body) if isinstance(s, If)]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("stride", "pad", "size"), [(1, 1, 3), (2, 1, 3), (1, 2, 5), (3, 2, 5)])
def test_windows_that_reach_out(stride, pad, size, nested):
    kernel = convolution(6, 7, stride, pad, kernel=size, nested=nested)
    made = Schedule(kernel).omit("s")
    assert_same(kernel, made.kernel)
    made.window("x", "i").decompose_reduction("s", "j")
    assert_same(kernel, made.kernel)
    made.branch("p").branch("j")
    assert_same(kernel, made.kernel)
    assert_same(made.kernel, Schedule.replay(kernel, made.trace).kernel)
    assert len(conditions(made)) == 2
    kept = [s for s in walk(made.bare.body) if isinstance(s, Store)]
    assert not any(e.op is Op.WHERE for s in kept for e in ex.toposort([s.value]))


def test_infinite_weights_outside_do_not_count():
    kernel = convolution(4, 5)
    made = Schedule(kernel).omit("s").window("x", "i").decompose_reduction("s", "j").branch("p")
    sizes = {p.name: int(interpret.evaluate(p.size, {})) for p in kernel.params}
    found = []
    for k in (kernel, made.branch("j").kernel):
        buffers = {name: np.ones(n, np.float32) for name, n in sizes.items()}
        buffers["w"].reshape(5, 2, 3, 3)[:, :, 0, 0] = np.inf
        interpret.run(k, buffers, {})
        found.append(buffers["y"].reshape(2, 5, 4, 5))
    assert np.isnan(found[0][:, :, 0]).all()
    assert (found[1][:, :, 1:, 1:] == np.inf).all()
    np.testing.assert_array_equal(found[1][0, 0, 0], [8, 12, 12, 12, 8])
    np.testing.assert_array_equal(found[1][1, 4, :, 0], [8, 12, 12, 8])


@pytest.mark.parametrize("place", [np.inf, np.nan])
def test_zeros_for_both_factors_leave_infinite_weights_out(place):
    kernel = convolution(4, 5)
    made = Schedule(kernel).omit("s", zero=True).window("x", "i").decompose_reduction("s", "j")
    assert made.trace[0] == "omit(s, zero=true)"
    assert_same(kernel, made.kernel)
    sizes = {p.name: int(interpret.evaluate(p.size, {})) for p in kernel.params}
    buffers = {name: np.ones(n, np.float32) for name, n in sizes.items()}
    buffers["w"].reshape(5, 2, 3, 3)[:, :, 0, 0] = place
    interpret.run(made.kernel, buffers, {})
    found = buffers["y"].reshape(2, 5, 4, 5)
    assert not np.isfinite(found[:, :, 1:, 1:]).any()
    np.testing.assert_array_equal(found[0, 0, 0], [8, 12, 12, 12, 8])
    np.testing.assert_array_equal(found[1, 4, :, 0], [8, 12, 12, 8])


def divided(kernel):
    """Return a kernel whose conditions are as simple as they come to schedules: i + k >= 2."""
    env = Space(kernel).ranges.env

    class Simple(Rewriter):
        def visit(self, stmt):
            return stmt.map_exprs(lambda e: ex.substitute([e], {
                c: index.simplify(c, env) for c in ex.toposort([e]) if c.op in (Op.LT, Op.LE)})[0])

    return kernel.replace(body=Simple(kernel).body(kernel.body))


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (2, 4)])
def test_bounds_are_known_whatever_their_steps_divide_by(stride, dilation):
    """Elsewhere a mask of other loops would stay on each load of the box."""
    kernel = divided(convolution(13, 15, stride, 3, outputs=5, dilation=dilation))
    made = Schedule(kernel).split("o", 4).decompose_reduction("s", "o.i").window("x", "i").kernel
    assert_same(kernel, made)
    copied = [s for s in walk(made.body) if isinstance(s, Load) and s.memory.name == "x.w"]
    assert len(copied) == 1
    assert copied[0].mask is None
    if math.gcd(stride, dilation) == 1:
        Schedule(kernel).omit("s")
    else:  # they would be a mask in each step
        with pytest.raises(ScheduleError, match="windows that reach out"):
            Schedule(kernel).omit("s")


@pytest.mark.grid
@pytest.mark.parametrize("loops", [("i",), ("j",), ("i", "j"), ("j", "i")])
@pytest.mark.parametrize(("stride", "pad", "size"), [(1, 1, 3), (2, 1, 3), (1, 2, 5)])
def test_code_without_conditions_where_all_hold(stride, pad, size, loops):
    kernel = convolution(12, 12, stride, pad, kernel=size)
    made = Schedule(kernel).omit("s", zero=True).window("x", "n").split("i", 2).split("j", 3)
    made.reorder("i.o", "j.o", "i.i", "j.i").decompose_reduction("s", "i.i")
    for name in loops:
        made.specialize("p", f"{name}.i")
    assert_same(kernel, made.kernel)
    assert_same(made.kernel, Schedule.replay(kernel, made.trace).kernel)
    asked = [[e for s in walk(body) if isinstance(s, Store)
              for e in ex.toposort([s.value]) if e.op is Op.WHERE]
             for part in walk(made.bare.body) if isinstance(part, If)
             for body in part.bodies()]
    assert len(asked) == 2 * len(loops)
    assert len([e for e in asked if not e]) == (len(loops) == 2)
    with pytest.raises(ScheduleError, match="specialize"):
        made.specialize("p", f"{loops[-1]}.i")  # they are asked no more
    with pytest.raises(ScheduleError, match="reach out everywhere"):
        Schedule(kernel).omit("s").decompose_reduction("s", "j").specialize("p", "j")


def test_parts_that_vary_inside_stay():
    kernel = convolution(6, 7)
    made = Schedule(kernel).omit("s").decompose_reduction("s", "j").branch("p")
    assert len(conditions(made)) == 1
    assert any(e.op is Op.WHERE for s in walk(made.bare.body) if isinstance(s, Store)
               for e in ex.toposort([s.value]))
    assert_same(kernel, made.kernel)


def test_conditions_of_a_loop_go_on_choosing_zeros():
    kernel = convolution(6, 7)
    made = Schedule(kernel).omit("s", "j").window("x", "i").decompose_reduction("s", "j")
    assert made.trace[0] == "omit(s, j)"
    assert_same(kernel, made.kernel)
    assert_same(kernel, made.branch("p").kernel)
    with pytest.raises(ScheduleError, match="omit"):
        Schedule(kernel).omit("s", "i", "j")


def masked(condition):
    """y[i] = sum over k of x[i, k] * w[k], where a condition holds"""
    x, w, y = memory("x", 5, 6), memory("w", 6), memory("y", 5)
    at = (v("i"), v("k"))
    reduce = Reduce((Axis(v("k"), ex.index(6)),),
                    (total("s", value=ex.where(condition, f("a"), 0.0) * f("b")),),
                    (Load(f("a"), x, at, condition), Load(f("b"), w, (v("k"),))))
    return Kernel("masked", (x, w, y), (loop("i", 5, reduce, Store(y, (v("i"),), f("s"))),))


@pytest.mark.parametrize("kernel", [nests.matmul(3, 4, 5), convolution(5, 5, pad=0),
                                    masked(v("k").le(v("i"))), masked(v("k").lt(4))])
def test_conditions_of_users_stay(kernel):
    with pytest.raises(ScheduleError, match="omit"):
        Schedule(kernel).omit("s")


def test_masks_of_loads_are_known_in_a_branch():
    kernel = convolution(6, 7)
    made = Schedule(kernel).omit("s").decompose_reduction("s", "j").unroll("j")
    image = [s for s in walk(made.bare.body) if isinstance(s, Load) and s.memory.name == "x"]
    assert all(s.mask is not None for s in image)
    made.branch("p").branch("j")
    image = [s for s in walk(made.bare.body) if isinstance(s, Load) and s.memory.name == "x"]
    assert image
    assert all(s.mask is None for s in image)
    assert_same(kernel, made.kernel)


def test_vectors_that_turns_share_are_read_before_the_branch():
    kernel = convolution(6, 7, outputs=8)
    made = Schedule(kernel).omit("s").reorder("i", "j", "o").decompose_reduction("s", "j")
    made.vectorize("o").branch("j")
    lanes = next(s for s in walk(made.bare.body) if isinstance(s, For) and s.var.attr == "o"
                 and any(isinstance(t, If) for t in s.body))
    assert [s.memory.name for s in lanes.body if isinstance(s, Load)] == ["w"]
    assert_same(kernel, made.kernel)


def test_vectors_behind_a_mask_are_read_in_the_branch():
    """All turns read them alike, but there is nothing to read where the condition fails."""
    x, w, y = memory("x", 5, 8), memory("w", 6), memory("y", 5, 8)
    there = v("i").lt(3)
    at, out = (v("i") + 2, v("j")), (v("i"), v("j"))
    lanes = For(v("j"), ex.index(8), "vector", (
        Load(f("a"), x, at, there), Load(f("o"), y, out), Load(f("b"), w, (v("k"),)),
        Store(y, out, ex.where(there, f("o") + f("a") * f("b"), f("o")))))
    kernel = Kernel("edge", (x, w, y), (loop("i", 5, loop("k", 6, lanes)),))
    made = Schedule(kernel).branch("k")
    assert_same(kernel, made.kernel)
    (branch,) = [s for s in walk(made.bare.body) if isinstance(s, If)]
    assert [s.memory.name for s in walk(branch.bodies()[0]) if isinstance(s, Load)] == ["x", "w"]


def test_nothing_to_branch_on():
    made = Schedule(convolution(5, 5)).omit("s").decompose_reduction("s", "j")
    with pytest.raises(ScheduleError, match="no condition"):
        made.branch("c")
    with pytest.raises(ScheduleError, match="found Alloc"):
        made.branch("n")
    with pytest.raises(ScheduleError, match="keep their value"):
        Schedule(nests.chain(4)).branch("i")


@pytest.mark.parametrize("dtype", [dt.bool_, dt.uint8, dt.float32])
def test_comparisons_of_values_are_no_edges(dtype):
    """They choose what counts like any condition, and say nothing of places."""
    x, w, y = memory("x", 5, 6), memory("w", 6), memory("y", 5)
    flags = [memory(name, 6, dtype=dtype) for name in "pq"]
    p, q = (ex.var(m.name, dtype) for m in flags)
    reads = tuple([Load(ex.var(m.name, dtype), m, (v("k"),)) for m in flags])
    reduce = Reduce((Axis(v("k"), ex.index(6)),),
                    (total("s", value=ex.where(p.lt(q), f("a"), 0.0) * f("b")),),
                    (*reads, Load(f("a"), x, (v("i"), v("k")), p.lt(q)),
                     Load(f("b"), w, (v("k"),))))
    kernel = Kernel("chosen", (x, w, *flags, y), (loop(
        "i", 5, reduce, Store(y, (v("i"),), f("s"))),))
    with pytest.raises(ScheduleError, match="omit"):
        Schedule(kernel).omit("s")
    made = Schedule(kernel).split("i", 4).decompose_reduction("s", "i.i").kernel
    assert_same(kernel, made)
