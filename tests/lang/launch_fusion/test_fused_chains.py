"""Random chains of launches that may become one kernel, against what each thread touches."""

import itertools
import random

import numpy as np
import pytest

import weft
from launch_parts import parts_of
from weft import gpu
from weft.lang.launch_fusion import fuse_launches
from weft.schedule.launch_fusion.fused_kernel import joined
from weft.schedule.launch_fusion.legality import group as group_of


@weft.kernel
def moved(a, b, c, d, x, y):
    i = gpu.grid(1)
    j = a * i + b
    k = c * i + d
    if j >= 0 and j < y.size and k >= 0 and k < x.size:
        y[j] = y[j] * 3 + x[k]


@weft.kernel
def by_block(a, b, c, d, x, y):
    j = a * gpu.blockIdx.x + b * gpu.threadIdx.x + c
    k = d * gpu.blockIdx.x + gpu.threadIdx.x
    if j >= 0 and j < y.size and k >= 0 and k < x.size:
        y[j] = x[k] - 1


@weft.kernel
def striding(a, b, c, d, x, y):
    for i in range(gpu.grid(1), 40, gpu.gridsize(1)):
        j = a * i + b
        k = c * i + d
        if j >= 0 and j < y.size and k >= 0 and k < x.size:
            y[j] = x[k] ^ 5


@weft.kernel
def divided(a, b, c, d, x, y):
    i = gpu.grid(1)
    j = (i // 4) * a + (i % 4) * b
    if j >= 0 and j < y.size and i + d >= 0 and i + d < x.size and i % 3 != c:
        y[j] = x[i + d] + 7


@weft.kernel
def turning(a, b, c, d, x, y):
    i = gpu.grid(1)
    while i < 40:
        if a * i + b >= 0 and a * i + b < y.size and c * i + d >= 0 and c * i + d < x.size:
            y[a * i + b] = x[c * i + d] * 2
        i += gpu.gridsize(1)


ALONE = {moved: (1, 0, 1, 0), by_block: (4, 1, 0, 4), striding: (1, 0, 1, 0),
         divided: (4, 1, 9, 0), turning: (1, 0, 1, 0)}  # fmt: skip


def touched(kernel, numbers, block, thread, shape, ny, nx):
    """Return the elements of y and of x that a thread writes and reads."""
    a, b, c, d = numbers
    blocks, threads = shape
    i = block * threads + thread
    if kernel is moved:
        pairs = [(a * i + b, c * i + d)]
    elif kernel is by_block:
        pairs = [(a * block + b * thread + c, d * block + thread)]
    elif kernel is divided:
        pairs = [((i // 4) * a + (i % 4) * b, i + d)] if i % 3 != c else []
    else:
        pairs = [(a * q + b, c * q + d) for q in range(i, 40, blocks * threads)]
    return {(j, k) for j, k in pairs if 0 <= j < ny and 0 <= k < nx}


def threads_of(launch, shape):
    kernel, numbers, x, y = launch
    for block in range(shape[0]):
        for thread in range(shape[1]):
            pairs = touched(kernel, numbers, block, thread, shape, y.size, x.size)
            written = {(id(y), j) for j, _ in pairs}
            yield block, thread, written, written | {(id(x), k) for _, k in pairs}


def distance(first, second):
    """Return 2 if threads of different blocks meet, 1 if threads of one block do, else 0."""
    found = 0
    for b, t, w, a in first:
        for c, u, v, e in second:
            if (b, t) != (c, u) and (w & e or a & v):
                if b != c:
                    return 2
                found = 1
    return found


def random_chain(r):
    shape = r.choice([(4, 4), (2, 8), (4, 8), (5, 3), (7, 1), (1, 16)])
    held = [np.arange(r.choice([32, 16, 7, 40])) * (k + 1) for k in range(3)]
    chain = []
    for _ in range(r.choice([2, 2, 3])):
        kernel = r.choice(list(ALONE))
        numbers = ALONE[kernel]
        if r.random() < 0.5:
            numbers = (r.choice([1, 1, 2, -1, 4, 3, 8]), r.choice([0, 0, 1, -1, 7, 16]),
                       r.choice([1, 1, 2, -1, 0]), r.choice([0, 0, 1, -1, 3, 4]))
        x, y = r.sample(held, 2)
        chain.append((kernel, numbers, x, y))
    return shape, held, chain


def decided(chain, shape):
    noted = []
    for kernel, numbers, x, y in chain:
        launch = kernel[shape]
        host = launch.take((*numbers, x, y))
        noted.append(fuse_launches._Noted(launch, host, host.types, ()))
    return group_of(parts_of(noted))[0]


@pytest.mark.slow
def test_decisions_about_random_chains():
    r = random.Random(4)
    missed = 0
    for _ in range(250):
        shape, _, chain = random_chain(r)
        groups = decided(chain, shape)
        threads = [list(threads_of(launch, shape)) for launch in chain]
        for group in groups:
            for at, a in enumerate(group.parts):
                for b in group.parts[at + 1 :]:
                    apart = distance(threads[a], threads[b])
                    assert apart < 2, (chain, group)
                    assert not apart or any(a < c <= b for c in group.barriers), (chain, group)
        for before, after in itertools.pairwise(groups):
            missed += all(distance(threads[a], threads[after.parts[0]]) < 2 for a in before.parts)
    assert missed <= 8  # of about 400 pairs; what is missed costs speed only


def test_random_chains_give_what_the_interpreter_gives():
    r = random.Random(5)
    fused = 0
    for _ in range(14):
        shape, held, chain = random_chain(r)
        threads = [list(threads_of(launch, shape)) for launch in chain]
        if any(distance(t, t) for t in threads):
            continue  # a race within one kernel has no result to compare
        before = [a.copy() for a in held]
        with weft.fuse() as f:
            for kernel, numbers, x, y in chain:
                kernel[shape](*numbers, x, y)
        after = [a.copy() for a in held]
        for a, b in zip(held, before, strict=True):
            a[:] = b
        for kernel, numbers, x, y in chain:
            weft.interpret(kernel, *shape)(*numbers, x, y)
        for a, b in zip(held, after, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f.explain())
        fused += "fused: " in f.explain()
    assert fused > 3


def test_joined_kernels_verify():
    from weft.ir.verify.verify import verify

    r = random.Random(6)
    for _ in range(40):
        shape, _, chain = random_chain(r)
        for group in decided(chain, shape):
            if len(group.parts) > 1:
                verify(joined(group))
