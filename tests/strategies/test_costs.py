"""What work takes is a figure of the target, and none of a module."""

import ast
from pathlib import Path

import pytest

import schedule_nests as nests
import weft.strategies
from weft.ir.stmt import PARALLEL, For, Prefetch, Store
from weft.ir.traverse import walk
from weft.strategies import choose
from weft.strategies.common.nest import Plan
from weft.target import CostModel, Target

TARGET = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10,
                l2_bytes=2 << 20, l3_bytes=256 << 20)
SIZES = ("BYTES", "CYCLES", "NANOSECONDS", "PAGE", "PARALLEL_WORK")


def scheduled(kernel, threads=1, **costs):
    return choose(kernel, TARGET.replace(costs=TARGET.costs.replace(**costs)), threads)


def test_targets_say_from_which_work_on_threads_pay():
    for work, shared in ((1 << 10, True), (1 << 18, False), (1 << 30, False)):
        made = scheduled(nests.matmul(32, 64, 16), 2, parallel_work=work)
        assert any(isinstance(s, For) and s.kind == PARALLEL for s in walk(made.body)) == shared


def test_targets_say_which_results_no_cache_keeps():
    for size, streams in ((1 << 10, True), (32 << 20, False)):
        made = scheduled(nests.chain(1 << 20), stream_bytes=size)
        assert all(s.streaming == streams for s in walk(made.body) if isinstance(s, Store))


def test_targets_say_how_far_ahead_arrays_are_asked_for():
    for size, asked in ((1 << 20, 4), (1 << 30, 0)):
        made = scheduled(nests.chain(10_000_001), prefetch_array_bytes=size)
        assert sum(isinstance(s, Prefetch) for s in walk(made.body)) == asked


@pytest.mark.parametrize("name", CostModel._fields)
def test_every_figure_changes_the_key_of_code(name):
    costs = TARGET.costs.replace(**{name: getattr(TARGET.costs, name) + 1})
    assert TARGET.replace(costs=costs).fingerprint() != TARGET.fingerprint()
    assert Plan(nests.chain(8), TARGET.replace(costs=costs), 1).costs is costs


def test_strategies_keep_no_sizes_of_processors():
    found = []
    for file in Path(weft.strategies.__file__).parent.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.AnnAssign) and node.target.id.endswith(SIZES):
                found.append(f"{file.stem}.{node.target.id}")
    assert not found
