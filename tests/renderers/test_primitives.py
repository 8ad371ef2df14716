"""Primitives that devices lack: told from their targets, alike at loop level and kernel level."""

import pytest

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir import stmt as st
from weft.ir.linear import Value
from weft.renderers.cstyle.opencl.target import opencl_target
from weft.renderers.cstyle.wgsl.target import webgpu_target
from weft.renderers.primitives import PRIMITIVES, check, lacking, refuse
from weft.renderers.spirv.target import vulkan_target
from weft.target import Target

HOST = Target("cpu", "x86_64")
WEBGPU = webgpu_target()
POOR = opencl_target(HOST, {"is_cpu": False})
WIDE = opencl_target(HOST, {"is_cpu": False, "int64_atomics": True})
SHARED = vulkan_target(HOST, {"shaderSharedInt64Atomics": True})


def atomic(kind, dtype, scope="global", order="relaxed", threads="device"):
    """Return an atomic operation as a statement and as an instruction."""
    memory = st.Memory("x", dtype, (ex.index(4),), scope)
    value = ex.const(1, dtype)
    compare = value if kind == "cas" else None
    one = Value("v", 0, dtype)
    return (st.Atomic(ex.var("old", dtype), kind, memory, (ex.index(0),), value, compare, threads,
                      order),
            li.AtomicInst(Value("old", 1, dtype), kind, memory, Value("i", 2, dt.int64), one,
                          one if compare is not None else None, threads, order))  # fmt: skip


def others():
    """Return the other primitives in both forms."""
    local = st.Memory("x", dt.float32, (ex.index(4),), "local")
    result = Value("r", 0, dt.int64)
    return {
        "call": (st.Call((), "f", ()), li.CallInst((), "f", ())),
        "clock": (st.Clock(ex.var("t", dt.int64)), li.ClockInst(result)),
        "address": (st.Address(ex.var("a", dt.int64), local), li.AddressInst(result, local)),
        "fence": (st.Fence(), li.FenceInst()),
    }


@pytest.mark.parametrize("target", [HOST, WEBGPU, POOR, WIDE, SHARED], ids=lambda t: t.name)
def test_both_levels_are_told_alike(target):
    pairs = [*others().values(), *(atomic(kind, d, scope) for kind in ("add", "max", "cas", "inc")
                                   for d in dt.ALL for scope in st.SCOPES)]  # fmt: skip
    for pair in pairs:
        for asked in (False, True):
            first, second = (lacking(target, s, asked) for s in pair)
            assert first == second


def test_the_host_lacks_none_but_what_types_have_not():
    for pair in others().values():
        assert lacking(HOST, pair[0]) is None
    for d in dt.ALL:
        for kind, kinds in (("and", "biu"), ("add", "iuf"), ("nanmax", "f"), ("inc", "iu"),
                            ("exch", "biuf"), ("cas", "biuf")):  # fmt: skip
            told = lacking(HOST, atomic(kind, d)[0], True)
            assert (told is None) == (d.kind in kinds), (kind, d)


@pytest.mark.parametrize(("target", "lacks"), [
    (HOST, ()), (WEBGPU, ("call", "clock", "address", "fence")), (POOR, ("call", "clock")),
    (SHARED, ("call", "clock", "address")),
])  # fmt: skip
def test_what_targets_lack(target, lacks):
    found = {name for name, pair in others().items() if lacking(target, pair[0])}
    assert found == set(lacks)


@pytest.mark.parametrize(("target", "scope", "kind", "dtype", "asked", "is_there"), [
    (WEBGPU, "global", "add", dt.int64, False, True),
    (WEBGPU, "global", "add", dt.int64, True, False),
    (WEBGPU, "shared", "xor", dt.uint64, False, True),
    (WEBGPU, "local", "add", dt.int64, False, False),
    (WEBGPU, "global", "max", dt.int64, False, False),
    (WEBGPU, "global", "add", dt.float64, False, False),
    (WEBGPU, "global", "max", dt.int32, True, True),
    (POOR, "global", "add", dt.int64, False, False),
    (WIDE, "global", "add", dt.int64, True, True),
    (SHARED, "shared", "add", dt.int64, True, True),
    (SHARED, "global", "add", dt.int64, True, False),
    (SHARED, "local", "cas", dt.float64, True, True),
])
def test_atomic_operations_of_64_bits(target, scope, kind, dtype, asked, is_there):
    told = lacking(target, atomic(kind, dtype, scope)[0], asked)
    assert (told is None) == is_there, told


def test_an_order_is_not_needed_within_one_thread():
    assert lacking(WEBGPU, atomic("add", dt.int32, order="seq_cst", threads="thread")[0]) is None
    told = lacking(WEBGPU, atomic("add", dt.int32, order="seq_cst")[1])
    assert told[0] == "atomic add of order seq_cst and scope device"


def test_refusals_name_device_primitive_and_line():
    with pytest.raises(UnsupportedError, match="webgpu: found a clock in a kernel") as caught:
        refuse(WEBGPU, others()["clock"][0], where=("kernel.py", 7))
    assert caught.value.line == ("kernel.py", 7)
    assert "kernel.py:7" in str(caught.value)


@pytest.mark.parametrize("name", ["call", "clock", "address", "fence"])
def test_renderers_refuse_kernels(name):
    kernel = li.LinearKernel("k", (), (), (others()[name][1],))
    check(HOST, kernel)
    with pytest.raises(UnsupportedError):
        check(WEBGPU, kernel)


def test_every_primitive_has_a_row():
    assert {type(pair[0]) for pair in others().values()} | {st.Atomic} == set(PRIMITIVES)
