"""Loops of which all threads of a row make a turn before the next one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import float32, gpu
from weft.ir.stmt import SERIAL, VECTOR, For, Stmt
from weft.ir.traverse import walk
from weft.lang.reader.translate import Launch, translate
from weft.passes.spmd.loop_fission import blocks_to_loops

LANES = 16


@weft.kernel
def transpose(a: Any, out: Any) -> None:
    """Transpose through a tile; each thread copies four elements."""
    tile = gpu.shared.array((32, 33), float32)
    x = gpu.blockIdx.x * 32 + gpu.threadIdx.x
    y = gpu.blockIdx.y * 32 + gpu.threadIdx.y
    for j in range(0, 32, 8):
        if x < a.shape[1] and y + j < a.shape[0]:
            tile[gpu.threadIdx.y + j, gpu.threadIdx.x] = a[y + j, x]
    gpu.syncthreads()
    x = gpu.blockIdx.y * 32 + gpu.threadIdx.x
    y = gpu.blockIdx.x * 32 + gpu.threadIdx.y
    for j in range(0, 32, 8):
        if x < a.shape[0] and y + j < a.shape[1]:
            out[y + j, x] = tile[gpu.threadIdx.x, gpu.threadIdx.y + j]


@weft.kernel
def a_row_each(a: Any, out: Any) -> None:
    """Copy a row a thread: neighbours lie a row apart."""
    t = gpu.threadIdx.x + 32 * gpu.threadIdx.y
    for j in range(64):
        out[t, j] = a[t, j] + float32(1)


@weft.kernel
def from_before(a: Any, out: Any) -> None:
    """Write in each turn what the turn before has read."""
    t = gpu.threadIdx.x
    y = gpu.threadIdx.y
    last = float32(0)
    for j in range(4):
        out[j * 8 + y, t] = last
        last = a[j * 8 + y, t]


def around_vectors(kernel: Any, *arrays: np.ndarray) -> list[list[int]]:
    """Return the turns of the serial loops around and in each loop over lanes, outermost first."""
    types = kernel[(1, 1), (32, 8)].take(arrays).types
    nest = translate(kernel.__weft_function__, types, Launch((32, 8, 1), 1, 0, (1, 1, 1)))
    found: list[list[int]] = []

    def visit(stmt: Stmt, turns: list[int]) -> None:
        if isinstance(stmt, For) and stmt.kind == VECTOR:
            found.append([*turns, *(-int(s.extent.attr) for s in walk(stmt.body)
                                    if isinstance(s, For))])
            return
        inside = [*turns, int(stmt.extent.attr)] if (
            isinstance(stmt, For) and stmt.kind == SERIAL) else turns
        for body in stmt.bodies():
            for s in body:
                visit(s, inside)

    for s in blocks_to_loops(nest, LANES).body:
        visit(s, [])
    return found


def test_both_vectors_of_a_row_are_written_in_one_turn() -> None:
    """The two vectors of 32 elements are the innermost loop, not the turns of a thread."""
    a = np.zeros((32, 32), np.float32)
    assert around_vectors(transpose, a, a) == [[8, 4, 2], [8, 4, 2]]


@pytest.mark.parametrize("kernel", [a_row_each, from_before])
def test_other_loops_stay_in_the_thread(kernel: Any) -> None:
    """What threads keep, or read a row apart, is not spread over turns of the block."""
    a = np.zeros((256, 64), np.float32)
    assert all(turns[-1] < 0 for turns in around_vectors(kernel, a, a))


@pytest.mark.parametrize("shape", [(96, 64), (75, 61), (33, 130), (1, 1)])
def test_edges(shape: tuple[int, int], rng: np.random.Generator) -> None:
    rows, columns = shape
    a = rng.standard_normal(shape).astype(np.float32)
    out = np.full((columns, rows), np.nan, np.float32)
    transpose[(-(-columns // 32), -(-rows // 32)), (32, 8)](a, out)
    np.testing.assert_array_equal(out, a.T)


def test_values_of_the_turn_before(rng: np.random.Generator) -> None:
    a = rng.standard_normal((256, 64)).astype(np.float32)
    first, second = np.zeros((32, 32), np.float32), np.zeros((256, 64), np.float32)
    from_before[1, (32, 8)](a, first)
    np.testing.assert_array_equal(first[8:], a[:24, :32])
    np.testing.assert_array_equal(first[:8], 0)
    a_row_each[1, (32, 8)](a, second)
    np.testing.assert_array_equal(second, a + np.float32(1))
