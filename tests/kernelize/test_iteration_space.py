"""Pieces of an iteration space give together what the whole nest gives."""

import itertools

import numpy as np
import pytest

import schedule_nests as nests
from schedule_nests import assert_same, loop, memory, total, v
from seeds import seeds
from weft.ir import expr as ex
from weft.ir.stmt import Axis, For, Kernel, Load, Meta, Reduce, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.kernelize.windows.iteration_space import Piece, factors, split_nests, zero_unless


def padded(rows, taps, depth):
    """y[i] = sum over k, q: x[i + k - 1, q] * w[k, q], with zeros outside of x."""
    x, w, y = memory("x", rows, depth), memory("w", taps, depth), memory("y", rows)
    at = v("i") + v("k") - 1
    inside = ex.index(0).le(at) & at.lt(rows)
    zero = ex.where(inside, nests.f("a"), ex.const(0.0, nests.f("a").dtype))
    reduce = Reduce((Axis(v("k"), ex.index(taps)), Axis(v("q"), ex.index(depth))),
                    (total("s", value=zero * nests.f("b")),),
                    (Load(nests.f("a"), x, (at, v("q")), inside),
                     Load(nests.f("b"), w, (v("k"), v("q")))))
    body = loop("i", rows, reduce, Store(y, (v("i"),), nests.f("s")))
    return Kernel("padded", (x, w, y), (body,), Meta("contraction"))


def ranges_of(rng, count):
    """Return a random partition of a range."""
    cuts = sorted({0, count, *rng.integers(0, count + 1, 2).tolist()})
    return list(itertools.pairwise(cuts))


@pytest.mark.parametrize("seed", seeds(4))
def test_parts_of_rows_give_the_whole(seed):
    rng = np.random.default_rng(seed)
    kernel = padded(rows := int(rng.integers(1, 9)), int(rng.integers(1, 5)), 3)
    row = kernel.body[0].var
    parts = ranges_of(rng, rows)
    made = split_nests(kernel, lambda nest: [
        Piece({row: high - low}, {row: row + low}) for low, high in parts], "_p")
    verify(made)
    assert [int(s.extent.attr) for s in made.body] == [high - low for low, high in parts]
    assert_same(kernel, made, exact=False)


def test_conditions_that_hold_in_a_piece_are_left_out():
    kernel = padded(8, 3, 2)
    row = kernel.body[0].var
    made = split_nests(kernel, lambda nest: [
        Piece({row: 1}, {}), Piece({row: 6}, {row: row + 1}),
        Piece({row: 1}, {row: row + 7})], "_p")
    masks = [[s.mask is not None for s in walk((nest,)) if isinstance(s, Load)]
             for nest in made.body]
    assert masks == [[True, False], [False, False], [True, False]]
    assert_same(kernel, made, exact=False)


def test_empty_pieces_and_axes_of_one_step():
    kernel = padded(4, 3, 5)
    row, tap = kernel.body[0].var, v("k")
    written = []
    for single in ((), (tap,)):
        made = split_nests(kernel, lambda nest, single=single: [
            Piece({row: 2}, {}, empty=True), Piece({row: 0}, {row: row + 2}),
            Piece({row: 2, tap: 1}, {row: row + 2, tap: tap + 1}, single=single)], "_p")
        verify(made)
        assert len(made.body) == 2  # none for no positions
        assert [len(s.axes) for s in walk(made.body) if isinstance(s, Reduce)] == [2 - len(single)]
        written.append(nests.execute(made)["y"].tolist())
    assert written[0] == written[1]
    assert written[0][:2] == [0, 0]


def test_what_is_no_single_sum_stays():
    def never(nest):
        raise AssertionError

    for kernel in (nests.chain(8), nests.softmax(3, 8), nests.transpose(4, 4)):
        assert split_nests(kernel, never, "_p") is kernel
    kernel = padded(4, 3, 5)
    assert split_nests(kernel, lambda nest: [], "_p") is kernel


def test_conditions_of_the_factors_of_a_term():
    reduce = next(s for s in walk(padded(8, 3, 2).body) if isinstance(s, Reduce))
    first, second = factors(reduce)
    assert {len(first), len(second)} == {0, 2}
    assert zero_unless(reduce) == [*first, *second]
    assert isinstance(padded(8, 3, 2).body[0], For)
