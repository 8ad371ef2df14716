"""What programs of others need of numba.cuda, found by running them: one feature at a time."""

import sys
import types

import numpy as np
import pytest

import weft
import weft.compat as numba
from weft.compat import cuda
from weft.errors import WeftError


@cuda.jit(device=True)
def emptied(x, spare, least):
    if x[0] < least:
        spare[:] = 0
        return (spare, 0.5, -1)
    return x, x[0], 7


@cuda.jit
def uses_emptied(x, spare, least, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        row, number, code = emptied(x[i], spare[i], least)
        out[i, 0] = row[1]
        out[i, 1] = number
        out[i, 2] = code


def test_functions_return_arrays_on_several_ways():
    rng = np.random.default_rng(0)
    x, spare, out = rng.random((37, 2)), np.ones((37, 2)), np.zeros((37, 3))
    uses_emptied[2, 32](x, spare, 0.4, out)
    low = x[:, 0] < 0.4
    assert 0 < low.sum() < 37
    expected = np.stack([np.where(low, 0, x[:, 1]), np.where(low, 0.5, x[:, 0]),
                         np.where(low, -1, 7)], 1)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(spare, np.where(low, 0.0, 1.0)[:, None] * np.ones((1, 2)))


@cuda.jit(device=True)
def longer(x, y):
    if x.size > y.size:
        return x
    return y


@cuda.jit
def uses_longer(x, y, out):
    out[0] = longer(x, y)[1]
    out[1] = longer(y, x).size


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (4, 4)])
def test_functions_return_one_of_two_arrays(sizes):
    x, y = np.arange(sizes[0]) + 10.0, np.arange(sizes[1]) + 20.0
    out = np.zeros(2)
    uses_longer[1, 1](x, y, out)
    np.testing.assert_array_equal(out, [(x if x.size > y.size else y)[1], max(sizes)])


@cuda.jit(device=True)
def by_mode(mode, value):
    if mode == 1:
        return value * 2
    elif mode == 2:
        return value + 0.5


@cuda.jit
def uses_by_mode(modes, out):
    i = cuda.grid(1)
    if i < out.size:
        by_mode(9, i)
        out[i] = by_mode(modes[i], i)


def test_functions_may_end_without_a_value_where_nobody_gets_there():
    modes, out = np.array([1, 2, 1, 2, 2]), np.zeros(5)
    uses_by_mode[1, 8](modes, out)
    np.testing.assert_array_equal(out, [0, 1.5, 4, 3.5, 4.5])


def test_none_is_an_error_where_a_value_is_used():
    with pytest.raises(WeftError, match="by_mode returned None"):
        uses_by_mode[1, 8](np.array([1, 3]), np.zeros(2))


@cuda.jit(device=True)
def lock(mutex):
    while cuda.atomic.compare_and_swap(mutex, 0, 1) != 0:
        pass
    cuda.threadfence()


@cuda.jit(device=True)
def unlock(mutex):
    cuda.threadfence()
    cuda.atomic.exch(mutex, 0, 0)


@cuda.jit
def locked_in_functions(mutex, total):
    i = cuda.grid(1)
    if i % 3 < 2:
        lock(mutex[i % 2:])
        total[i % 2] += i
        unlock(mutex[i % 2:])


@cuda.jit
def locked_by_exchange(mutex, total):
    i = cuda.grid(1)
    if i % 3 < 2:
        while True:
            if cuda.atomic.exch(mutex, i % 2, 1) == 0:
                break
        total[i % 2] += i
        cuda.threadfence()
        mutex[i % 2] = 0


@cuda.jit
def locked_inside(mutex, total):
    i = cuda.grid(1)
    done = i % 3 == 2
    while not done:
        if cuda.atomic.cas(mutex, i % 2, 0, 1) == 0:
            total[i % 2] += i
            cuda.threadfence()
            cuda.atomic.exch(mutex, i % 2, 0)
            done = True


LOCKED = [locked_in_functions, locked_by_exchange, locked_inside]


def _sums(count):
    i = np.arange(count)
    return [i[(i % 3 < 2) & (i % 2 == side)].sum() for side in (0, 1)]


@pytest.mark.parametrize("kernel", LOCKED, ids=lambda k: k.__name__)
@pytest.mark.parametrize("launch", [(1, 1), (1, 7), (1, 64), (5, 37)])
def test_threads_wait_for_a_lock(kernel, launch):
    mutex, total = np.zeros(2, np.int32), np.zeros(2, np.int64)
    kernel[launch](mutex, total)
    np.testing.assert_array_equal(total, _sums(launch[0] * launch[1]))
    np.testing.assert_array_equal(mutex, 0)


@pytest.mark.parametrize("kernel", LOCKED, ids=lambda k: k.__name__)
def test_the_interpreter_lets_threads_wait_for_a_lock(kernel):
    mutex, total = np.zeros(2, np.int32), np.zeros(2, np.int64)
    weft.sanitize(kernel, 2, 33)(mutex, total)
    np.testing.assert_array_equal(total, _sums(66))


@cuda.jit
def maximum_by_cas(best, x):
    i = cuda.grid(1)
    if i < x.size:
        old = best[0]
        while old < x[i]:
            assumed = old
            old = cuda.atomic.cas(best, 0, assumed, x[i])
            if old == assumed:
                break


def test_a_loop_that_tries_again_with_what_it_found_takes_no_lock():
    from weft.ir.analysis.spin_locks import takes_a_lock

    x, best = np.random.default_rng(0).permutation(500).astype(np.int32), np.zeros(1, np.int32)
    maximum_by_cas[4, 128](best, x)
    assert best[0] == 499
    assert not takes_a_lock(_body(maximum_by_cas, best, x))
    mutex, total = np.zeros(2, np.int32), np.zeros(2, np.int64)
    assert all(takes_a_lock(_body(kernel, mutex, total)) for kernel in LOCKED)


def _body(kernel, *args):
    from weft.lang.launch.variants import translated

    launch = kernel[1, 32]
    return translated(kernel, launch.take(args).types, launch)[0].body


@cuda.jit
def annotated(x, out: cuda.DeviceArray):
    i: int = cuda.grid(1)
    half: object = 0.5
    whole: int = x[i] + half
    out[i] = whole


def test_annotations_say_nothing():
    x, out = np.arange(4.0), np.zeros(4)
    annotated[1, 4](x, out)
    np.testing.assert_array_equal(out, x + 0.5)


def test_vectorize_takes_many_arguments():
    @numba.vectorize("float64(f8,f8,f8,f8,f8,f8,f8,f8,f8,f8)", target="cuda")
    def f(a, b, c, d, e, g, h, k, m, n):
        return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * g + 7 * h + 8 * k + 9 * m + 10 * n

    x = np.random.default_rng(0).random((10, 13))
    np.testing.assert_allclose(f(*x), np.arange(1, 11) @ x)


def test_guvectorize_takes_many_arrays_and_may_set_its_inputs():
    @numba.guvectorize(["f8[:],f8[:],f8[:],f8[:],f8[:],f8,f8[:]"], "(n),(n),(n),(n),(n),()->(n)",
                       target="cuda")
    def f(a, b, c, d, e, x, out):
        for i in range(a.shape[0]):
            if a[i] < x:
                a[i] = 0
            out[i] = a[i] + 2 * b[i] + 3 * c[i] + 4 * d[i] + 5 * e[i]

    rows = np.random.default_rng(0).random((5, 4, 7))
    before = rows.copy()
    out = f(*rows, 0.5)
    np.testing.assert_array_equal(rows, before)
    first = np.where(rows[0] < 0.5, 0, rows[0])
    np.testing.assert_allclose(out, first + np.tensordot([2.0, 3, 4, 5], rows[1:], 1))


class _Type:
    """A type of numba itself, as far as Weft looks at it."""

    __module__ = "numba.core.types.scalars"

    def __init__(self, name):
        self.name = name


class _NumberClass:
    __module__ = "numba.core.types.functions"


class _Array(_Type):
    def __init__(self, dtype, ndim, layout):
        super().__init__(f"array({dtype.name}, {ndim}d, {layout})")
        self.dtype, self.ndim, self.layout = dtype, ndim, layout


class _Signature:
    __module__ = "numba.core.typing.templates"

    def __init__(self, *args):
        self.return_type, self.args = _Type("none"), args


class _Dispatcher:
    __module__ = "numba.core.registry"

    def __init__(self, function):
        self.py_func = function

    def __call__(self, *args):
        return self.py_func(*args)


def _as_dtype(kind):
    return np.dtype(kind.name)


@pytest.fixture
def with_numba(monkeypatch):
    """Something like numba, which a program may have imported for its types and for njit."""
    kinds = types.SimpleNamespace(Type=_Type, NumberClass=_NumberClass)
    monkeypatch.setitem(sys.modules, "numba.core.types", kinds)
    monkeypatch.setitem(sys.modules, "numba.core.errors",
                        types.SimpleNamespace(NumbaError=KeyError))
    monkeypatch.setitem(sys.modules, "numba.np.numpy_support",
                        types.SimpleNamespace(as_dtype=_as_dtype))


float32_of_numba, complex64_of_numba = _Type("float32"), _Type("complex64")
twice = _Dispatcher(lambda x: x + x)


@pytest.mark.usefixtures("with_numba")
def test_types_and_functions_of_numba_itself_are_understood():
    @cuda.jit(_Signature(_Array(float32_of_numba, 1, "C"), _Type("int32")))
    def f(x, n):
        held = cuda.shared.array(4, float32_of_numba)
        z = cuda.local.array(1, dtype=complex64_of_numba)
        i = cuda.grid(1)
        held[i] = x[i]
        z[0] = complex(0, n)
        x[i] = twice(held[i]) + float32_of_numba(0.1) + z[0].imag

    x = np.arange(4, dtype=np.float32)
    f[1, 4](x, 3)
    np.testing.assert_array_equal(x, np.arange(4, dtype=np.float32) * 2 + np.float32(0.1) + 3)
    assert cuda.device_array(3, float32_of_numba).dtype == np.float32


@cuda.jit
def constant_argument(x, out):
    held = cuda.const.array_like(x)
    i = cuda.grid(1)
    if i < out.size:
        out[i] = held[i] * 2


def test_a_constant_like_an_argument_is_the_argument():
    x, out = np.arange(5.0), np.zeros(5)
    constant_argument[1, 8](x, out)
    np.testing.assert_array_equal(out, x * 2)


def test_memory_that_waits_to_be_freed_can_be_cleared():
    cuda.current_context().deallocations.clear()
    assert cuda.current_context().get_memory_info().total > 0


class prange:
    """numba's own, of a program that takes only `cuda` from Weft."""

    __module__ = "numba.misc.special"


def literal_unroll(items):
    raise AssertionError("numba's compiler knows it by its name")


literal_unroll.__module__ = "numba.misc.special"


def test_loops_by_words_of_numba_itself():
    @cuda.jit
    def kernel(x, out):
        for i in prange(x.shape[0]):
            out[0] += x[i]
        for k in prange(1, 8, 3):
            out[1] += k
        for part in literal_unroll((2, 0.5)):
            out[2] += part

    out = np.zeros(3)
    kernel[1, 1](np.arange(4.0), out)
    assert tuple(out) == (6, 1 + 4 + 7, 2.5)


def test_programs_tell_kernels_from_device_functions_by_their_options():
    @cuda.jit(device=True, inline=True)
    def twice(x):
        return x * 2

    @cuda.jit(fastmath=True, lineinfo=True)
    def kernel(x):
        x[0] = twice(x[0])

    @cuda.jit("float64(float64)", device=True)
    def half(x):
        return x / 2

    assert twice.targetoptions["device"] is half.targetoptions["device"] is True
    assert not kernel.targetoptions["device"]
    assert kernel.targetoptions["fastmath"]
    assert kernel.targetoptions["lineinfo"]
    assert not kernel.targetoptions["debug"]


def test_managers_of_memory_have_their_places():
    from weft.compat.cuda.cudadrv import driver

    for name in ("BaseCUDAMemoryManager", "HostOnlyCUDAMemoryManager", "GetIpcHandleMixin"):
        assert getattr(driver, name) is getattr(cuda, name)
    manager = driver.NumbaCUDAMemoryManager(context=None)
    assert isinstance(manager, driver.BaseCUDAMemoryManager)
    assert manager.get_memory_info().free > 0
