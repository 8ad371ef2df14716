"""Indices beyond arrays of known extents, where no thread comes: they are no errors."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda, float32, float64
from weft.errors import BoundsError, KernelError


@cuda.jit(device=True)
def fill(f):
    f[0] = 1.5
    if f.size > 3:
        f[3] = 2.5
    if len(f) > 4 and f[4] > 0:
        f[0] = 0
    for _ in range(3, f.shape[0]):
        f[3] += 1


@cuda.jit
def of_extents(out):
    three, four = cuda.local.array((2, 3), float64), cuda.local.array(4, float32)
    fill(three[1, :])
    fill(four)
    out[0], out[1], out[2] = three[1, 0], four[0], four[3]


@cuda.jit
def of_arguments(out, n):
    part = cuda.shared.array(3, float64)
    part[cuda.threadIdx.x] = n
    cuda.syncthreads()
    if n > 3:
        part[3] = 1.0
    if n < 0:
        part[-4] = 1.0
    out[0] = part[-3]


@weft.func
def fill_again(f):
    f[0] = 1.5
    if f.size > 3:
        f[3] = 2.5


@weft.kernel
def of_both(out):
    three, four = gpu.local.array(3, weft.float64), gpu.local.array(4, weft.float64)
    fill_again(three)
    fill_again(four)
    out[0], out[1], out[2] = three[0], four[0], four[3]


@weft.kernel
def reached(out, n: weft.int64):
    part = gpu.local.array(3, weft.float64)
    if n > 3:
        part[3] = 1.0
    out[0] = part[0]


def launch(kernel, threads, *args, interpreted):
    if interpreted:
        weft.interpret(kernel, 1, threads)(*args)
    else:
        kernel[1, threads](*args)


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize(("kernel", "expected"), [(of_extents, 3.5), (of_both, 2.5)])
def test_a_condition_on_a_known_extent_guards_what_it_is_for(kernel, expected, interpreted):
    out = np.zeros(3)
    launch(kernel, 1, out, interpreted=interpreted)
    np.testing.assert_array_equal(out, [1.5, 1.5, expected])


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("n", [0, 3])
def test_a_kernel_of_numba_goes_past_an_index_that_no_thread_uses(n, interpreted):
    out = np.full(1, 7.0)
    launch(of_arguments, 3, out, n, interpreted=interpreted)
    assert out[0] == n


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize(("n", "found"), [(4, 3), (-1, -1)])
def test_it_stops_where_a_thread_uses_it(n, found, interpreted):
    with pytest.raises(BoundsError, match=f"found index {found}, expected an index from 0 to 2"):
        launch(of_arguments, 3, np.zeros(1), n, interpreted=interpreted)


def test_a_kernel_of_weft_is_refused_where_a_thread_could_come():
    with pytest.raises(KernelError, match="index 3 is out of bounds for an axis of 3"):
        reached[1, 1](np.zeros(1), 2)
