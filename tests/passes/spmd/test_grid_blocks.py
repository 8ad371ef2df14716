"""Kernels that wait for their grid: blocks run beside each other between its barriers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import cg, gpu
from weft.driver.context import host_context
from weft.ir.stmt import PARALLEL, For
from weft.ir.traverse import walk
from weft.lang.reader.translate import Launch, translate
from weft.passes.spmd.loop_fission import blocks_to_loops

RNG = np.random.default_rng(0)


@weft.kernel
def in_turn(x: Any, parts: Any, out: Any, turns: Any) -> None:
    """Count in shared memory, in each turn what the grid has made of the turn before."""
    counts = gpu.shared.array(5, weft.int32)
    own = gpu.local.array(3, weft.int64)
    t = gpu.threadIdx.x + gpu.blockDim.x * gpu.threadIdx.y
    b = gpu.blockIdx.x + gpu.gridDim.x * gpu.blockIdx.y
    i = b * gpu.blockDim.x * gpu.blockDim.y + t
    for k in range(3):
        own[k] = i * k
    for k in range(turns):
        if t == 0:
            for j in range(5):
                counts[j] = 0
        gpu.syncthreads()
        if i < x.shape[0]:
            gpu.atomic.add(counts, x[i] % 5, 1)
            gpu.atomic.add(parts, k, x[i])
        gpu.syncthreads()
        cg.this_grid().sync()
        if i < x.shape[0]:
            x[i] = (x[i] + counts[x[i] % 5] + parts[k] + own[k % 3]) % 1000
        cg.this_grid().sync()
    if i < x.shape[0]:
        out[i] = counts[x[i] % 5] + own[2]


@pytest.mark.grid
@pytest.mark.parametrize(("grid", "block"), [
    ((1, 1), (1, 1)), ((5, 1), (1, 1)), ((7, 1), (3, 1)), ((4, 2), (16, 2)), ((3, 3), (33, 1)),
    ((2, 1), (5, 7)), ((16, 1), (64, 4)),
])  # fmt: skip
def test_shared_and_local_memory_of_each_block(grid: Any, block: Any) -> None:
    threads = grid[0] * grid[1] * block[0] * block[1]
    for n in {threads, max(threads - 2, 0)}:
        x, parts = RNG.integers(0, 1000, n), np.zeros(3, np.int64)
        first = [x.copy(), parts.copy(), np.zeros(n, np.int64)]
        second = [a.copy() for a in first]
        in_turn[grid, block](*first, 3)
        weft.interpret(in_turn, grid, block)(*second, 3)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


@weft.kernel
def passed_on(x: Any, y: Any) -> None:
    i = gpu.grid(1)
    y[i] = x[i]
    cg.this_grid().sync()
    x[i] = y[y.shape[0] - 1 - i]


def test_blocks_are_iterations_of_parallel_loops() -> None:
    """Each of the two parts is one loop over blocks, never over parts of a block."""
    types = passed_on[6, 64].take((np.zeros(384), np.zeros(384))).types
    nest = translate(passed_on.__weft_function__, types, Launch((64, 1, 1), 1, 0, (6, 1, 1)))
    flat = blocks_to_loops(nest, host_context().target.vector_bytes // 4)
    loops = [s for s in walk(flat.body) if isinstance(s, For) and s.kind == PARALLEL]
    assert [int(s.extent.attr) for s in loops] == [6, 6]


def test_many_launches_have_the_same_bits() -> None:
    x = RNG.standard_normal(64 * 128)
    expected = x[::-1]
    for _ in range(50):
        a, y = x.copy(), np.zeros_like(x)
        passed_on[64, 128](a, y)
        np.testing.assert_array_equal(a, expected)


@weft.kernel
def many_kept(x: Any, out: Any) -> None:
    """Keep 16 KB a thread over a barrier: 4 MB for a block of 256."""
    t = gpu.threadIdx.x
    own = gpu.local.array(2048, weft.float64)
    held = gpu.shared.array(256, weft.float64)
    i = gpu.grid(1)
    for k in range(2048):
        own[k] = x[i] * k
    held[t] = x[i]
    gpu.syncthreads()
    total = 0.0
    for k in range(2048):
        total += own[k] * held[(t + k) % gpu.blockDim.x]
    out[i] = total


@pytest.mark.slow
def test_large_local_arrays_live_over_barriers() -> None:
    for block in (1, 96, 256):
        x = RNG.integers(0, 9, 2 * block).astype(np.float64)
        out, other = np.zeros_like(x), np.zeros_like(x)
        many_kept[2, block](x, out)
        weft.interpret(many_kept, 2, block)(x, other)
        np.testing.assert_array_equal(out, other)


def test_no_memory_is_an_error_of_the_launch(tmp_path: Path) -> None:
    """512 KB for each of 1024 threads, in a process that may not have so much."""
    program = textwrap.dedent("""
        import resource, sys
        sys.path.insert(0, sys.argv[1])
        import numpy as np, weft
        from large import large
        x = np.zeros(1024)
        large[1, 1](x)
        pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages + (200 << 20), most))
        try:
            large[1, 1024](x)
        except weft.AllocationError as error:
            print("told:", error)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        large[1, 2](x)
        print(x[:2])
    """)
    kernel = textwrap.dedent("""
        import weft
        from weft import gpu
        @weft.kernel
        def large(x):
            own = gpu.local.array(1 << 16, weft.float64)
            t = gpu.threadIdx.x
            own[t % 4 + 60000] = t + 1
            gpu.syncthreads()
            x[t] = own[t % 4 + 60000]
    """)
    run_alone(program, kernel, tmp_path)


def run_alone(program: str, kernel: str, folder: Path) -> None:
    (folder / "large.py").write_text(kernel)
    (folder / "program.py").write_text(program)
    done = subprocess.run([sys.executable, str(folder / "program.py"), str(folder)],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "told: large: found no memory for 536870" in done.stdout
    assert done.stdout.endswith("[1. 2.]\n")
