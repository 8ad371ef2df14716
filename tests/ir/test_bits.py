"""The lanes of a bool vector as bits."""

from __future__ import annotations

import pytest

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret_code import apply
from weft.ir.op import Op
from weft.ir.verify.verify_expr import fault


@pytest.mark.parametrize("lanes", [2, 8, 64])
def test_bits_of_lanes(lanes: int) -> None:
    """Lane 0 is the lowest bit."""
    flags = tuple(k % 3 == 0 for k in range(lanes))
    found = apply(Op.BITS, dt.bool_, dt.uint64, 1, lanes, [flags])
    assert found == sum(1 << k for k in range(0, lanes, 3))
    e = ex.bits(ex.var("v", dt.bool_, lanes))
    assert (e.dtype, e.lanes) == (dt.uint64, 1)
    assert fault(Op.BITS, (dt.uint64, 1), [(dt.bool_, lanes)], lanes) is None


@pytest.mark.parametrize(("result", "arg", "attr"), [
    ((dt.uint32, 1), (dt.bool_, 8), 8), ((dt.uint64, 8), (dt.bool_, 8), 8),
    ((dt.uint64, 1), (dt.bool_, 128), 128), ((dt.uint64, 1), (dt.bool_, 8), 4),
    ((dt.uint64, 1), (dt.uint8, 8), 8),
])  # fmt: skip
def test_wrong_bits_are_found(result: tuple[dt.DType, int], arg: tuple[dt.DType, int],
                              attr: int) -> None:  # fmt: skip
    """Another type or number of lanes."""
    assert fault(Op.BITS, result, [arg], attr) is not None


@pytest.mark.parametrize("lanes", [2, 16])
def test_lanes_are_packed(lanes: int) -> None:
    """Lanes with a flag come first, in order; zeros follow."""
    flags, values = tuple(k % 3 == 1 for k in range(lanes)), tuple(range(100, 100 + lanes))
    kept = tuple(range(101, 100 + lanes, 3))
    found = apply(Op.COMPRESS, dt.int32, dt.int32, lanes, None, [flags, values])
    assert found == kept + (0,) * (lanes - len(kept))
    e = ex.compress(ex.var("f", dt.bool_, lanes), ex.var("v", dt.int32, lanes))
    assert (e.dtype, e.lanes) == (dt.int32, lanes)
