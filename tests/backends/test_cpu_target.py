"""The host's target, and targets of described processors."""

import pytest

from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.op import SCALAR_OPS, Op
from weft.target import ASSUMED, REPORTED, Target, native_operations

PROCESSORS = {
    "nehalem": ("x86_64", ("+sse2", "+sse4.2"), 16, 16, False),
    "sandybridge": ("x86_64", ("+avx", "+sse2"), 32, 16, False),
    "haswell": ("x86_64", ("+avx", "+avx2", "+f16c", "+fma", "+sse2"), 32, 16, True),
    "znver4": ("x86_64", ("+avx", "+avx512bw", "+avx512f", "+f16c", "+sse2"), 64, 32, True),
    "masked": ("x86_64", ("+avx", "+sse2", "-avx512f"), 32, 16, False),
    "neoverse-n1": ("aarch64", ("+fullfp16", "+neon"), 16, 32, True),
    "rva22": ("riscv64", ("+d",), 16, 16, False),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_described_processors(name):
    arch, features, width, registers, half = PROCESSORS[name]
    t = cpu.target_from(arch, name, features, {"l1_bytes": 1 << 15})
    assert (t.vector_bytes, t.vector_registers) == (width, registers)
    assert ("f16" in t.native_conversions) is half
    assert t.lanes(dt.float32) == width // 4
    assert t.lanes(dt.bool_) == width
    assert t.source("l1_bytes") == REPORTED
    assert t.source("l3_bytes") == ASSUMED


@pytest.mark.parametrize(("features", "whole"), [
    (("+avx512f", "+avx512fp16", "+avxvnni"), True), (("+amx-tile", "+avx512f"), True),
    (("+avx512f", "+avx512vp2intersect", "+avxvnni"), True),
    (("+avx512bf16", "+avx512f", "+avx512vnni"), False), (("+avx512f",), False),
    (("+avx2", "+avxvnni", "+fma"), False)])
def test_units_as_wide_as_vectors(features, whole):
    t = cpu.target_from("x86_64", "", features, {})
    assert t.whole_vectors is whole
    assert t.fingerprint() != t.replace(whole_vectors=not whole).fingerprint()


def test_fingerprints_tell_processors_apart():
    made = {cpu.target_from(a, n, f, {}).fingerprint() for n, (a, f, *_) in PROCESSORS.items()}
    assert len(made) == len(PROCESSORS)
    t = cpu.host_target()
    assert t.fingerprint() == t.replace(cores=77, memory_bytes=1).fingerprint()
    assert t.fingerprint() != t.replace(vector_bytes=8).fingerprint()
    assert t.fingerprint() != t.replace(operations=frozenset()).fingerprint()
    assert t.fingerprint() != t.replace(costs=t.costs.replace(l2_rate=1)).fingerprint()


def test_the_host():
    t = cpu.host_target()
    assert t.name == "cpu"
    assert t.cores >= 1
    assert t.l1_bytes >= 8 << 10
    assert t.vector_bytes in (16, 32, 64)
    assert t is cpu.host_target()


def test_caches_of_sysfs(tmp_path):
    rows = [("Data", "1", "48K", "64"), ("Instruction", "1", "32K", "64"),
            ("Unified", "2", "2048K", "64"), ("Unified", "3", "105M", "128")]  # fmt: skip
    for i, row in enumerate(rows):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for field, text in zip(("type", "level", "size", "coherency_line_size"), row, strict=True):
            (folder / field).write_text(text + "\n")
    found = cpu._caches_of_sysfs(str(tmp_path))
    assert found == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20, "l3_bytes": 105 << 20,
                     "line_bytes": 128}  # fmt: skip
    assert cpu._caches_of_sysfs(str(tmp_path / "none")) == {}


def test_the_table_knows_every_row():
    """Each op and dtype that the table accepts is either native or a known decomposition."""
    table = native_operations()
    t = Target("cpu", "x86_64", operations=table)
    assert t.supports(Op.ADD, dt.float32)
    assert not t.supports(Op.ADD, dt.bfloat16)
    assert not t.supports(Op.EXP, dt.float32)
    for op in SCALAR_OPS:
        for d in dt.ALL:
            if t.supports(op, d):
                assert d.kind in op.kinds or op.group == "convert"
    assert not Target("x", "y", operations=native_operations(without=(Op.MULHI,))).supports(
        Op.MULHI, dt.int32)
