"""Shared libraries of C kernels: their entry, parallel loops with OpenMP and without, loading."""

import ctypes

import numpy as np
import pytest
from c_compiled import COMPILERS, c_compiler, target
from compiled import Code, Status, memory

from weft.compilers.c_library import SharedLoader, load_library
from weft.errors import CompileError, HandleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.op import Op
from weft.renderers.cstyle.c.export import BAD_ARGUMENTS
from weft.renderers.cstyle.c.renderer import CRenderer

F32, I64 = dt.float32, dt.int64

pytestmark = pytest.mark.parametrize("compiler", COMPILERS)


def scaled(kind="parallel"):
    """Return y[i] = x[i] * k for i < n, which fails at elements of -1."""
    n, k = ex.Variable("n", 0, 1000), ex.Variable("k", -5, 1 << 40)
    x, y = memory("x", I64, 1000), memory("y", I64, 1000)
    b = Code()
    size, factor = b.value("n", I64), b.value("k", I64)
    b.emit(li.VariableInst(size, 0, n.attr))
    b.emit(li.VariableInst(factor, 1, k.attr))
    i = b.loop(size, kind)
    v = b.load(x, i)
    b.emit(li.AssertInst(b.op(Op.NE, v, b.i(-1)), 0, v, b.i(0)))
    b.store(y, i, b.op(Op.MUL, v, factor))
    b.end()
    return b.kernel(x, y, variables=(n, k), messages=(('no "-1" here', None),))


def shared(kernel, compiler, openmp=None):
    """Return the library of a kernel, and its entry."""
    source = CRenderer(target()).library(kernel)
    data = c_compiler(compiler).shared(source.text, openmp=openmp)
    library = load_library(data, [source.name, f"{source.name}_plan"])
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulong)
    return library, kind(library[source.name])


def call(entry, arrays, variables, status=None, count=None):
    numbers = [ctypes.c_int64(v) for v in variables]
    places = [a.ctypes.data for a in arrays] + [ctypes.addressof(n) for n in numbers]
    places += [] if status is None else [ctypes.addressof(status)]
    entry((ctypes.c_void_p * len(places))(*places), len(places) if count is None else count)


def test_B1_entry_takes_buffers_then_addresses_of_variables(compiler):
    library, entry = shared(scaled(), compiler)
    x, y = np.arange(1000), np.zeros(1000, np.int64)
    call(entry, [x, y], [700, -3])
    np.testing.assert_array_equal(y, np.where(x < 700, x * -3, 0))
    status = Status(code=9)
    call(entry, [x, y], [0, 1 << 40], status)
    assert status.code == 0
    library.unload()


def test_B1_first_failure_is_in_the_record_or_on_the_standard_error(compiler, capfd):
    library, entry = shared(scaled("serial"), compiler)
    x, y = np.array([5, -1, 6]), np.zeros(3, np.int64)
    status = Status()
    call(entry, [x, y], [3, 2], status)
    assert (status.code, status.index, status.bound) == (1, -1, 0)
    assert y.tolist() == [10, 0, 0]
    assert capfd.readouterr().err == ""
    call(entry, [x, y], [3, 2])
    assert 'no "-1" here: -1, bound 0' in capfd.readouterr().err
    library.unload()


@pytest.mark.parametrize(("variables", "count", "index", "bound"), [
    ([3, 2], 4, None, None), ([3, 2], 0, 0, 4), ([3, 2], 7, 7, 4),
    ([1001, 2], None, 1001, 1000), ([-1, 2], None, -1, 0), ([3, -6], None, -6, -5),
    ([3, (1 << 40) + 1], None, (1 << 40) + 1, 1 << 40),
])  # fmt: skip
def test_B1_wrong_counts_and_variables_touch_nothing(variables, count, index, bound, compiler,
                                                     capfd):
    library, entry = shared(scaled(), compiler)
    x, y = np.arange(1000), np.zeros(1000, np.int64)
    call(entry, [x, y], variables, count=count)
    said = capfd.readouterr().err
    if index is None:
        assert said == ""
        assert y[2] == 4
    else:
        assert f"wrong arguments: {index}, bound {bound}" in said
        assert not y.any()
    if count is None:
        status = Status()
        call(entry, [x, y], variables, status)
        assert (status.code, status.index, status.bound) == (BAD_ARGUMENTS, index, bound)
    library.unload()


def test_plans_call_the_other_entry(compiler):
    library, _ = shared(scaled(), compiler)
    x, y = np.arange(1000), np.zeros(1000, np.int64)
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
    buffers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    values, status = (ctypes.c_int64 * 2)(10, 3), Status()
    assert kind(library["k_plan"])(buffers, values, ctypes.byref(status)) == 0
    assert y[:11].tolist() == [*range(0, 30, 3), 0]
    library.unload()


def test_B4_results_are_the_same_with_openmp_and_without(compiler):
    """Sums of runs of floats in a private array, whoever runs which."""
    x, y = memory("x", F32, 64 * 1000), memory("y", F32, 1000)
    b = Code()
    i = b.loop(1000, "parallel")
    acc = memory("acc", F32, 1).replace(scope="local")
    b.emit(li.StorageInst(acc, 1))
    b.store(acc, b.i(0), b.const(0.0, F32))
    j = b.loop(64)
    v = b.load(x, b.op(Op.ADD, b.op(Op.MUL, i, b.i(64)), j))
    b.store(acc, b.i(0), b.op(Op.ADD, b.load(acc, b.i(0)), v))
    b.end()
    b.store(y, i, b.load(acc, b.i(0)))
    b.end()
    kernel = b.kernel(x, y)
    data = np.random.default_rng(1).standard_normal(64 * 1000).astype(np.float32)
    results = []
    for openmp in [False, None] + [True] * c_compiler(compiler).openmp:
        library, entry = shared(kernel, compiler, openmp)
        sums = np.zeros(1000, np.float32)
        if openmp:  # whatever the environment says
            library._handle.omp_set_num_threads(4)
        call(entry, [data, sums], [])
        if openmp:
            library._handle.omp_set_num_threads(1)
        results.append(sums.tobytes())
        library.pin()  # its threads may wait in it
    assert len(set(results)) == 1
    np.testing.assert_allclose(sums, data.reshape(1000, 64).sum(1), atol=1e-4)


def test_B4_what_has_no_openmp_says_so(compiler, monkeypatch):
    """Libraries are sequential then; asking for OpenMP is an error."""
    found = c_compiler(compiler)
    monkeypatch.setattr(found, "_arguments", (*found._arguments, "-DNONE", "-include", "/nowhere"))
    monkeypatch.setattr(found, "_openmp", None)
    assert not found.openmp
    with pytest.raises(CompileError):
        found.shared("int x;", openmp=True)


def test_objects_link_to_one_library(compiler):
    one, two = (c_compiler(compiler).compile(
        f'__attribute__((visibility("default"))) int f{k}(void) {{ return {k}; }}')
        for k in (1, 2))  # fmt: skip
    loader = SharedLoader(c_compiler(compiler))
    library = loader.load([one, two], ["f1", "f2"])
    kind = ctypes.CFUNCTYPE(ctypes.c_int)
    assert [kind(library[f"f{k}"])() for k in (1, 2)] == [1, 2]
    library.unload()
    library.unload()
    with pytest.raises(HandleError):
        _ = library["f1"]
    with pytest.raises(CompileError, match="f3"):
        loader.load(one, ["f3"])
    with pytest.raises(CompileError, match="malloc"):
        loader.load(one, ["f1"], {"malloc": 1})


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x7fELF" + bytes(200)])
def test_what_is_no_library_is_refused(data, compiler):
    with pytest.raises(CompileError, match="load library"):
        load_library(data, [])
    with pytest.raises(CompileError):
        SharedLoader(c_compiler(compiler)).load(data, ["f"])
