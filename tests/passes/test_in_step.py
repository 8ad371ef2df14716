"""Threads of a warp that meet in shared memory without barriers are lanes of one vector."""

import numpy as np
import pytest

import weft
from weft.compat import cuda, float32
from weft.passes.spmd import loop_fission
from weft.passes.spmd.warp_synchrony import relies_on_lockstep


def spied(kernel, grid, block, *args):
    """Run a kernel and return whether its threads were found to meet."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_fission, "relies_on_lockstep", lambda body: found.append(
            relies_on_lockstep(body)) or found[-1])
        kernel[grid, block](*args)
    return any(found)


@pytest.fixture(autouse=True)
def _afresh(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def unrolled():
    @cuda.jit
    def kernel(x, out):
        part = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        part[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        if t < 64:
            part[t] += part[t + 64]
        cuda.syncthreads()
        if t < 32:
            part[t] += part[t + 32]
            part[t] += part[t + 16]
            part[t] += part[t + 8]
            part[t] += part[t + 4]
            part[t] += part[t + 2]
            part[t] += part[t + 1]
        if t == 0:
            out[cuda.blockIdx.x] = part[0]

    return kernel


def chosen():
    @cuda.jit
    def kernel(x, out):
        part = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        part[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        if t < 32:
            if part[t + 32] < part[t]:
                part[t] = part[t + 32]
            for gap in (16, 8, 4, 2, 1):
                if part[t + gap] < part[t]:
                    part[t] = part[t + gap]
        if t == 0:
            out[cuda.blockIdx.x] = part[0]

    return kernel


def looped():
    @cuda.jit
    def kernel(x, out, gap):
        part = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        part[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        if t < 32:
            while gap > 0:
                part[t] += part[t + gap]
                gap //= 2
            if t == 0:
                out[cuda.blockIdx.x] = part[0]

    return kernel


@pytest.mark.parametrize(("make", "size", "wanted"), [
    (unrolled, 128, np.sum), (chosen, 64, np.min), (looped, 64, np.sum)],
    ids=["unrolled", "chosen", "looped"])  # fmt: skip
def test_last_warps_of_reductions_need_no_barriers(make, size, wanted):
    rng = np.random.default_rng(0)
    x = rng.integers(-50, 50, (5, size)).astype(np.float32)
    out = np.zeros(5, np.float32)
    kernel = make()
    extra = (32,) if make is looped else ()
    assert spied(kernel, 5, size, x.ravel(), out, *extra)
    np.testing.assert_array_equal(out, wanted(x, axis=1))
    found = weft.sanitize(kernel, 5, size)(x.ravel(), out, *extra).findings
    assert {f.kind for f in found} & {"race", "missing-barrier"}


def guarded(x, out, far):
    part = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    part[t] = x[t]
    cuda.syncthreads()
    gap = 1
    while gap < 32:
        if gap > far:
            cuda.syncthreads()
        if t % 32 >= gap:
            part[t] += part[t - gap]
        gap *= 2
    cuda.syncthreads()
    out[t] = part[t]


def around(x, out, far):
    part = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    part[t] = x[t]
    if far < 0:
        cuda.syncthreads()
    lane = t % 32
    out[t] = part[t - lane] + part[t - lane + 31 - lane]


@pytest.mark.parametrize("function", [guarded, around], ids=lambda f: f.__name__)
def test_barriers_in_branches_may_not_be_met(function):
    x = np.random.default_rng(0).integers(-50, 50, (8, 32)).astype(np.float32)
    out = np.zeros((8, 32), np.float32)
    assert spied(cuda.jit(function), 1, 256, x.ravel(), out.reshape(-1), 100)
    wanted = np.cumsum(x, 1) if function is guarded else x[:, :1] + x[:, ::-1]
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def tree(x, out):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[t]
    cuda.syncthreads()
    gap = 64
    while gap > 0:
        if t < gap:
            part[t] += part[t + gap]
        cuda.syncthreads()
        gap //= 2
    if t == 0:
        out[0] = part[0]


@cuda.jit
def of_one_thread(x, out):
    part = cuda.shared.array(512, float32)
    t = cuda.threadIdx.x
    part[4 * t] = x[t]
    part[4 * t + 1] = part[4 * t] * 2
    part[4 * t + 3] = part[4 * t + 1] - part[4 * t]
    cuda.atomic.add(out, 0, part[4 * t + 3])


@cuda.jit
def of_rows(x, out):
    part = cuda.shared.array((128, 3), float32)
    t = cuda.threadIdx.x
    for k in range(3):
        part[t, k] = x[t]
    cuda.atomic.add(out, 0, part[t, 1] * 2 - part[t, 2])


@pytest.mark.parametrize("kernel", [tree, of_one_thread, of_rows],
                         ids=lambda k: k.__name__)  # fmt: skip
def test_threads_with_barriers_or_elements_of_their_own_do_not_meet(kernel):
    x, out = np.arange(128, dtype=np.float32), np.zeros(1, np.float32)
    assert not spied(kernel, 1, 128, x, out)
    assert out[0] == x.sum()
