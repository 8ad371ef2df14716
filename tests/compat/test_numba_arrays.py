"""Arrays of kernels as programs for numba.cuda declare them: types by name, complex numbers."""

import numpy as np
import pytest

import weft
from weft.compat import complex64, complex128, cuda, float32


@pytest.mark.parametrize("name", [
    "float64", "f4", "float16", "int32", "i1", "uint8", "u8", "bool", "complex64", "c16", "int",
])  # fmt: skip
def test_a_type_by_its_name(name):
    @cuda.jit
    def turned(x, out):
        i = cuda.threadIdx.x
        held = cuda.local.array(2, name)
        met = cuda.shared.array(shape=8, dtype=name)
        held[1] = x[i]
        met[i] = held[1]
        cuda.syncthreads()
        out[i] = met[7 - i]

    x = np.arange(8).astype(name)
    out = np.zeros_like(x)
    turned[1, 8](x, out)
    assert list(out) == list(x[::-1])


@pytest.mark.parametrize("name", ["floaty", "O", "datetime64[25s]"])
def test_a_name_that_is_no_type(name):
    @cuda.jit
    def wrong(out):
        held = cuda.local.array(2, name)
        held[0] = out[0]

    with pytest.raises(weft.errors.KernelError, match="is not a dtype"):
        wrong[1, 1](np.zeros(1))


@pytest.mark.parametrize("kind", [complex64, complex128, np.complex64, "complex128"])
@pytest.mark.parametrize("n", [1, 3, 16])
def test_complex_numbers_in_shared_memory_of_the_launch(kind, n):
    @cuda.jit
    def summed(x, out):
        part = cuda.shared.array(0, dtype=kind)
        t = cuda.threadIdx.x
        part[t] = x[t] * 1j
        cuda.syncthreads()
        if t == 0:
            total = 0j
            for k in range(x.size):
                total += part[k]
            out[0] = total
            out[1] = part[-1]
            out[2] = part[x.size - 1:][0] if part.shape[0] == x.size else part[x.size]

    rng = np.random.default_rng(n)
    x = rng.random(n) + 1j * rng.random(n)
    out = np.zeros(3, np.complex128)
    size = 8 if kind in (complex64, np.complex64) else 16
    summed[1, n, 0, size * n](x, out)
    np.testing.assert_allclose(out, [x.sum() * 1j, x[-1] * 1j, x[-1] * 1j], rtol=1e-6)


def test_complex_and_real_numbers_share_the_memory_of_the_launch():
    @cuda.jit
    def shared(x, out):
        pairs = cuda.shared.array(0, complex64)
        flat = cuda.shared.array(0, float32)
        rest = cuda.shared.array(0, float32)[2 * x.size:]
        t = cuda.threadIdx.x
        pairs[t] = x[t]
        rest[t] = t
        cuda.syncthreads()
        out[t] = flat[2 * t] - flat[2 * t + 1] + 100 * rest[t]

    x = (np.arange(5) + 1j * np.arange(5)[::-1]).astype(np.complex64)
    out = np.zeros(5)
    shared[1, 5, 0, 5 * 12](x, out)
    np.testing.assert_allclose(out, x.real - x.imag + 100 * np.arange(5))


def test_too_little_memory_for_one_complex_number():
    @cuda.jit
    def one(out):
        part = cuda.shared.array(0, complex128)
        part[0] = 1j
        out[0] = part[0].imag

    with pytest.raises(weft.errors.KernelError, match="8 bytes of shared memory"):
        one[1, 1, 0, 8](np.zeros(1))
    out = np.zeros(1)
    one[1, 1, 0, 24](out)
    assert out[0] == 1


@pytest.mark.parametrize("kind", [np.float64, np.int8, np.bool_, np.complex64])
def test_arrays_without_axes(kind):
    @cuda.jit
    def moved(out, x, facts):
        out[()] = x[()]
        facts[()] += out.ndim + 10 * x.size + 100 * len(x.shape)

    facts = np.array(1, np.int32)
    for turn in range(4):  # also by the native path
        out = np.zeros((), kind)
        moved[1, 1](out, np.array(turn, kind), facts)
        assert out == kind(turn)
    assert facts == 41
    held = cuda.to_device(np.array(5, kind))
    moved[1, 1](held, cuda.to_device(np.array(1, kind)), cuda.to_device(facts))
    assert held.copy_to_host() == kind(1)
    assert facts == 41


def test_an_array_without_axes_is_added_to_by_all_threads():
    @cuda.jit
    def count(total):
        cuda.atomic.add(total, (), 2)

    total = np.array(0, np.int64)
    count[3, 7](total)
    assert total == 42
