"""Words of narrow elements side by side are read whole, with the same result."""

import numpy as np
import pytest

from schedule_nests import assert_same, loop, memory, n, v
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret_code import apply
from weft.ir.op import Op
from weft.ir.stmt import Kernel, Let, Load, Meta, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule

NARROW = [dt.int8, dt.uint8, dt.bfloat16, dt.int16]


def packing(rows, columns, place, dtype, order=None, flip=0, between=(), kind="elementwise",
            masks=None):
    """y[i, j] = the bits of x[place], x[place + 1] ... as a word."""
    group = 4 // dtype.itemsize
    size = 32 * rows * columns * group
    x, y = memory("x", size, dtype=dtype), memory("y", rows, columns, dtype=dt.uint32)
    parts = [ex.var(f"a{r}", dtype) for r in range(group)]
    word = None
    for r, e in enumerate(parts):
        bits = ex.cast(ex.bitcast(e, dt.unsigned(dtype.bits)), dt.uint32)
        bits = bits << dtype.bits * r if r else bits
        word = bits if word is None else word | bits
    if flip:
        word = word ^ flip
    loads = [Load(e, x, (place + r,), masks and masks[r])
             for e, r in zip(parts, order or range(group), strict=True)]
    inner = (*loads[:1], *between, *loads[1:], Let(v("w", dt.uint32), word),
             Store(y, (v("i"), v("j")), v("w", dt.uint32)))
    return Kernel("packing", (x, y), (loop("i", rows, loop("j", columns, *inner)),), Meta(kind))


def lowered(kernel, rows, lanes):
    made = Schedule(kernel)
    made.split("i", rows).split("j", lanes).reorder("i.o", "j.o", "i.i", "j.i")
    flat = vectorize(made.unroll("i.i").vectorize("j.i").kernel)
    verify(flat)
    assert_same(kernel, flat)
    return flat


def counted(kernel, op):
    return len({e for s in walk(kernel.body) for x in s.exprs() for e in ex.toposort([x])
                if e.op is op})


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("flip", [0, 0x80808080])
@pytest.mark.parametrize("lanes", [4, 16])
def test_words_side_by_side_are_one_load(dtype, flip, lanes):
    group = 4 // dtype.itemsize
    flat = lowered(packing(3, 32, v("i") * 40 * group + v("j") * group + 1, dtype, flip=flip),
                   1, lanes)
    assert counted(flat, Op.WORDS) == 1
    assert counted(flat, Op.SHUFFLE) == 0
    assert sum(isinstance(s, Load) for s in walk(flat.body)) == 1


@pytest.mark.grid
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("rows", [4, 8, 16, 5, 3])
@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("apart", [16, 19])
def test_neighbouring_words_of_far_lanes_are_transposed(dtype, rows, lanes, apart):
    group = 4 // dtype.itemsize
    flat = lowered(packing(rows, 32, v("j") * apart * group + v("i") * group, dtype), rows, lanes)
    together = min(rows - rows % 4, lanes)
    assert counted(flat, Op.WORDS) == (rows // together * lanes if together else 0)
    if rows % 4 == 0:
        assert all(s.index[0].lanes == 1 for s in walk(flat.body) if isinstance(s, Load))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("there", [1, 30, 47, 61])
def test_masked_words_side_by_side_are_one_masked_load(dtype, there):
    group = 4 // dtype.itemsize
    masks = [(v("j") * group + r).lt(there) for r in range(group)]
    if group > 2:
        masks[2] = None
    flat = lowered(packing(3, 32, v("i") * 40 * group + v("j") * group, dtype, masks=masks), 1, 16)
    assert counted(flat, Op.WORDS) == 1
    (load,) = (s for s in walk(flat.body) if isinstance(s, Load))
    assert load.mask.lanes == 16 * group


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("there", [1, 13, 30])
def test_lanes_that_are_not_there_are_not_read(dtype, there):
    """A mask that all elements have is one of lanes, each of which is a load."""
    group = 4 // dtype.itemsize
    masks = [v("j").lt(there) & (v("i") * group + r).lt(8 * group) for r in range(group)]
    kernel = packing(8, 32, v("j") * 19 * group + v("i") * group, dtype, masks=masks)
    flat = lowered(kernel, 8, 16)
    assert counted(flat, Op.WORDS) == 16
    loads = [s for s in walk(flat.body) if isinstance(s, Load)]
    assert all(s.index[0].lanes == 1 and s.mask.op is Op.BROADCAST for s in loads)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_elements_of_far_lanes_with_masks_of_their_own_are_no_words(dtype):
    group = 4 // dtype.itemsize
    masks = [(v("j") + r).lt(21) for r in range(group)]
    kernel = packing(8, 32, v("j") * 19 * group + v("i") * group, dtype, masks=masks)
    assert counted(lowered(kernel, 8, 16), Op.WORDS) == 0


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0), (0, -1)])
def test_elements_in_another_order_are_no_words(order):
    flat = lowered(packing(2, 32, v("i") * 70 + v("j") * 2 + 1, dt.bfloat16, order), 1, 16)
    assert counted(flat, Op.WORDS) == 0


@pytest.mark.parametrize("kind", ["elementwise", "custom"])
def test_nothing_is_read_past_a_write(kind):
    """A store between the loads of a word, to what they read or perhaps read."""
    x = memory("x", 32 * 2 * 32 * 2, dtype=dt.int16)
    z = memory("z", 2, 32, dtype=dt.int16)
    for target, index, joined in ((x, (v("i") * 64 + v("j") * 2 + 1,), False),
                                  (z, (v("i"), v("j")), kind == "elementwise")):
        kernel = packing(2, 32, v("i") * 64 + v("j") * 2, dt.int16, kind=kind, between=(
            Store(target, index, ex.cast(n(7) + v("j"), dt.int16)),))
        if target is z:
            kernel = Kernel("packing", (*kernel.params, z), kernel.body, kernel.meta)
        flat = lowered(kernel, 1, 16)
        assert bool(counted(flat, Op.WORDS)) is joined


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_words_are_the_bytes_in_memory(dtype, lanes):
    rng = np.random.default_rng(lanes)
    bits = rng.integers(0, 1 << 32, lanes, dtype=np.uint64).astype("<u4")
    if dtype is dt.bfloat16:
        halves = bits.view("<u2").astype(np.uint32) & 0xBFFF  # no NaN: its bits may change
        bits = halves.astype("<u2").view("<u4")
        lane_values = [float(x) for x in (halves << 16).view(np.float32)]
    else:
        lane_values = [int(x) for x in bits.view(f"<{dtype.kind}{dtype.itemsize}")]
    found = apply(Op.WORDS, dtype, dt.uint32, lanes, None, [tuple(lane_values)])
    assert (list(found) if lanes > 1 else [found]) == bits.tolist()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_words_read_from_the_last_element_on(dtype, masked):
    """Places and masks that are named between the loads are known where the whole word is read."""
    group = 4 // dtype.itemsize
    kernel = packing(3, 32, v("i"), dtype)
    (outer,) = kernel.body
    (inner,) = outer.body
    x, found = kernel.params[0], []
    for r in reversed(range(group)):
        at, there, point = v(f"p{r}"), ex.var(f"m{r}", dt.bool_), v("j") * group
        found += [Let(at, v("i") * 40 * group + r), Let(there, (point + r).lt(50)),
                  Load(ex.var(f"a{r}", dtype), x, (at + point,), there if masked else None)]
    inner = inner.with_bodies((*found, *inner.body[group:]))
    kernel = kernel.replace(body=(outer.with_bodies((inner,)),))
    flat = lowered(kernel, 1, 16)
    assert counted(flat, Op.WORDS) == 1
