"""The places of numba's names: programs import errors, types and the driver's classes by them."""

import importlib
import warnings

import numpy as np
import pytest

import weft.compat as numba
from weft import errors
from weft.compat import cuda, types


@cuda.jit
def fill(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value


@cuda.jit
def wrong(x):
    x[0] = [1, 2] @ x


@pytest.mark.parametrize(("place", "name"), [
    ("core.errors", "NumbaPerformanceWarning"), ("core.errors", "TypingError"),
    ("core.types", "float32"), ("core", "config"), ("errors", "NumbaWarning"),
    ("types", "int64"), ("np.numpy_support", "from_dtype"),
    ("np.numpy_support", "numpy_version"), ("np.numpy_support", "as_dtype"),
    ("cuda.errors", "TypingError"), ("cuda.types", "UniTuple"),
    ("cuda.cudadrv.driver", "CudaAPIError"), ("cuda.cudadrv.driver", "Stream"),
    ("cuda.cudadrv.devicearray", "DeviceNDArray"), ("cuda.cudadrv.devices", "get_context"),
    ("cuda.cudadrv.error", "CudaSupportError"), ("cuda.cudadrv.runtime", "runtime"),
    ("core.config", "ENABLE_CUDASIM"), ("core.typing", "signature"), ("core.utils", "PYVERSION"),
    ("core.typing.typeof", "typeof"), ("misc.special", "literal_unroll"),
    ("cuda.config", "CUDA_LOW_OCCUPANCY_WARNINGS"), ("cuda.core.config", "ENABLE_CUDASIM"),
    ("cuda.core.errors", "TypingError"), ("cuda.np.numpy_support", "from_dtype"),
    ("cuda.misc.special", "literal_unroll"), ("cuda.typing.typeof", "typeof"),
    ("cuda.compiler", "compile_ptx"), ("cuda.api", "to_device"), ("cuda.utils", "PYVERSION"),
    ("cuda.vector_types", "vector_types"), ("cuda.testing", "CUDATestCase"),
    ("cuda.dispatcher", "CUDADispatcher"), ("cuda.compiler", "Dispatcher"),
    ("cuda.compiler", "DeviceFunctionTemplate"), ("cuda.args", "Out"),
    ("cuda.kernels.reduction", "Reduce"), ("core.registry", "CPUDispatcher"),
    ("core.dispatcher", "Dispatcher"), ("core.errors", "NumbaParallelSafetyWarning"),
    ("core.errors", "NumbaNotImplementedError"), ("types", "uint"),
])  # fmt: skip
def test_names_are_where_numba_has_them(place, name):
    assert hasattr(importlib.import_module(f"weft.compat.{place}"), name)


def test_programs_tell_what_jit_made_from_plain_functions():
    from weft.compat.core.dispatcher import Dispatcher
    from weft.compat.core.registry import CPUDispatcher
    from weft.compat.cuda.dispatcher import CUDADispatcher

    def plain(x):
        return x + 1

    kernel, device = cuda.jit(plain), cuda.jit(device=True)(plain)
    signed = cuda.jit("float64(float64)", device=True)(plain)
    host = numba.njit(plain)
    assert [[isinstance(f, kind) for f in (kernel, device, signed, host, plain)]
            for kind in (CUDADispatcher, CPUDispatcher, Dispatcher)] == [
        [True, True, True, False, False], [False, False, False, True, False],
        [True, True, True, True, False]]  # fmt: skip
    assert cuda.dispatcher.CUDADispatcher is cuda.compiler.Dispatcher is CUDADispatcher
    assert not hasattr(cuda, "OtherDispatcher")
    with pytest.raises(AttributeError, match="no nothing here"):
        _ = numba.core.nothing


def test_all_errors_are_also_in_numba_itself():
    assert numba.NumbaTypeError is errors.KernelError
    assert issubclass(numba.NumbaPedanticWarning, numba.NumbaWarning)


def test_one_name_at_two_places_is_one_thing():
    from weft.compat.core.errors import NumbaPerformanceWarning
    from weft.compat.core.types import float32

    from weft.compat.core import errors as core_errors

    assert core_errors is numba.errors is cuda.errors
    assert float32 is types.float32
    assert types is numba.types is cuda.types
    assert NumbaPerformanceWarning is numba.errors.NumbaPerformanceWarning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=NumbaPerformanceWarning)


def test_a_launch_that_fails_is_caught_as_of_the_driver():
    x = cuda.to_device(np.zeros(5))
    with pytest.raises(cuda.cudadrv.driver.CudaAPIError):
        fill[1, 4096](x, 1.0)
    with pytest.raises(cuda.cudadrv.error.CudaDriverError):
        fill[1, 8, 0, 1 << 30](x, 1.0)
    with pytest.raises(numba.core.errors.TypingError):
        wrong[1, 1](x)
    assert not x.any()


def test_memory_that_there_is_not_is_caught_as_of_the_driver():
    for caught in (cuda.cudadrv.driver.CudaAPIError, MemoryError, errors.WeftError):
        with pytest.raises(caught, match="device_array"):
            cuda.device_array(1 << 57)


def test_classes_of_the_driver():
    x = cuda.to_device(np.arange(6.0))
    assert isinstance(x, cuda.devicearray.DeviceNDArray)
    assert cuda.devicearray.is_cuda_ndarray(x)
    assert not cuda.devicearray.is_cuda_ndarray(np.zeros(2))
    cuda.devicearray.verify_cuda_ndarray_interface(x)
    with pytest.raises(errors.LaunchError, match="expected an array of to_device"):
        cuda.devicearray.verify_cuda_ndarray_interface([1])
    same, copied = cuda.devicearray.auto_device(x)
    other, new = cuda.devicearray.auto_device(np.ones(3))
    assert same is x
    assert not copied
    assert new
    assert cuda.devicearray.is_cuda_ndarray(other)
    assert isinstance(cuda.stream(), cuda.cudadrv.driver.Stream)
    assert isinstance(cuda.event(), cuda.driver.Event)
    assert cuda.driver.driver.get_device_count() == 1
    assert cuda.runtime.get_version() == cuda.driver.driver.get_version()


def test_copies_of_the_driver():
    driver = cuda.cudadrv.driver
    x = cuda.to_device(np.arange(6, dtype=np.int32))
    size = driver.device_memory_size(x)
    assert size == 24
    assert driver.device_pointer(x) == x.__array_interface__["data"][0]
    y = np.zeros(6, np.int32)
    driver.device_to_host(y, x, size)
    driver.device_memset(x, 0, 12)
    assert list(y) == [0, 1, 2, 3, 4, 5]
    assert list(x) == [0, 0, 0, 3, 4, 5]
    driver.host_to_device(x, y, size)
    assert list(x) == list(y)
    with pytest.raises(errors.LaunchError, match="gaps"):
        driver.device_memset(x[::2], 0, 4)
    driver.device_memset(cuda.device_array(0), 0, 0)


def test_what_is_asked_of_the_context_and_the_device():
    context = cuda.current_context()
    free, total = context.get_memory_info()
    assert 0 < free <= total == context.get_memory_info().total
    assert context.get_active_blocks_per_multiprocessor(fill, 32, 0) >= 1
    assert cuda.devices.get_context().device is cuda.gpus[0] is cuda.gpus.lst[0]
    device = cuda.get_current_device()
    for name in ("MAX_THREADS_PER_BLOCK", "MULTIPROCESSOR_COUNT", "WARP_SIZE", "ASYNC_ENGINE_COUNT",
                 "CAN_MAP_HOST_MEMORY", "PCI_BUS_ID", "MAX_SHARED_MEMORY_PER_BLOCK"):  # fmt: skip
        assert getattr(device, name) >= 0
    with cuda.gpus[0], context:
        fill.forall(4)(np.zeros(4), 1.0)


def test_types_that_only_annotations_have():
    @cuda.jit(device=True)
    def twice(x: types.CPointer(types.float64), i: types.int32) -> types.float64:
        return x[i] * 2

    @cuda.jit
    def double(x: types.float64[:], out: types.Array(types.float64, 1, "C")) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = twice(x, i)

    out = np.zeros(4)
    double[1, 4](np.arange(4.0), out)
    assert list(out) == [0, 2, 4, 6]


ADDRESSES = {
    "text": "void(CPointer(float64), int64)",
    "text of a name": "void(voidptr)",
    "types": types.void(types.CPointer(types.float64), types.int64),
    "tuple": (types.CPointer(types.float64), types.int64),
    "list": [types.void(types.float64[:]), types.void(types.CPointer(types.int8))],
    "inside": types.void(types.Tuple((types.int64, types.CPointer(types.int8)))),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_in_signatures_say_what_to_write(name):
    with pytest.raises(errors.DTypeError) as caught:
        cuda.jit(ADDRESSES[name])(fill)
    text = str(caught.value)
    assert "CPointer" in text
    assert "float64[:] in place of CPointer(float64)" in text
    assert "pass the array itself" in text


def test_names_that_are_no_types_are_named():
    with pytest.raises(errors.DTypeError, match="'flaot32' in void"):
        cuda.jit("void(flaot32[:])")(fill)


def test_arrays_know_their_stream():
    stream, other = cuda.stream(), cuda.stream()
    x = np.arange(12.0).reshape(3, 4)
    made = {
        "to_device": cuda.to_device(x, stream=stream), "empty": cuda.device_array(3, stream=stream),
        "strided": cuda.device_array(3, strides=16, stream=stream),
        "like": cuda.device_array_like(x, stream=stream),
        "mapped": cuda.mapped_array(3, stream=stream),
        "mapped like": cuda.mapped_array_like(x, stream=stream),
    }  # fmt: skip
    for name, array in made.items():
        assert array.stream is stream, name
        views = [array[1:], array.ravel(), array.reshape(-1), array.T, array.view(np.int64),
                 array.getitem(slice(1)), *array.ravel().split(2)]  # fmt: skip
        assert all(view.stream is stream for view in views), name
        bound = array.bind(other)
        assert bound.stream is other
        assert array.stream is stream
        assert np.shares_memory(bound, array)
        assert array.getitem(slice(1), stream=other).stream is other
        assert [p.stream is other for p in array.ravel().split(2, other)]
    assert cuda.to_device(x).stream == 0
    assert cuda.device_array(3).stream == 0
    assert cuda.to_device(x).__cuda_array_interface__["stream"] is None
    foreign = cuda.external_stream(0x1234)
    assert cuda.to_device(x, stream=foreign).__cuda_array_interface__["stream"] == 0x1234
    assert type(made["to_device"].copy_to_host(stream=stream)) is np.ndarray


def test_records_and_dtypes_of_types():
    pair = types.Record.make_c_struct([("a", types.int8), ("b", types.float64)])
    assert numba.core.types.float32 is numba.float32
    support = numba.np.numpy_support
    assert support.as_dtype(pair) == np.dtype([("a", "i1"), ("b", "f8")], align=True)
    assert support.as_dtype(types.float32) == np.float32
    assert support.from_dtype(np.dtype(np.int16)) is types.int16
    with pytest.raises(errors.DTypeError, match="scalar or record"):
        support.as_dtype(types.void)


def test_a_star_leaves_the_names_of_other_modules_alone():
    names = {}
    exec("import numpy as np\nfrom weft.compat import *", names)
    assert names["np"] is np
    assert names["cuda"] is cuda


def test_kernels_by_the_names_of_a_dispatcher():
    @cuda.jit
    def local(x, value):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = value

    x = np.zeros(5)
    assert local.signatures == []
    assert local.compile("void(float64[:], float64)") is local
    assert local.compile((types.float64[:], types.float64)) is local
    with pytest.raises(errors.KernelError, match="a signature of 1 types"):
        local.compile("void(float64[:])")
    local.configure(1, 8)(x, 2.0)
    local.configure((1, 1), (8, 1), cuda.stream(), 16)(x, 2.0)
    assert list(x) == [2] * 5
    assert len(local.signatures) == 1
    assert local.compile(8, x, 2.0) is local


def test_elements_by_call():
    x = cuda.to_device(np.arange(6.0).reshape(2, 3))
    x.setitem((0, 1), 9, stream=cuda.stream())
    x.setitem(1, np.ones(3))
    assert x.getitem((0, 1), stream=0) == 9
    assert list(x.getitem(1).copy_to_host()) == [1, 1, 1]


def test_streams_call_back_and_can_be_awaited():
    import asyncio

    stream = cuda.stream()
    met = []
    x = np.zeros(4)

    async def work():
        fill[1, 4, stream](x, 3.0)
        return await stream.async_done()

    stream.add_callback(lambda *args: met.append(args), "what")
    assert met == [(stream, 0, "what")]
    assert asyncio.run(work()) is stream
    assert list(x) == [3] * 4


def test_names_of_the_host():
    assert numba.__version__.split(".")[0] == "0"
    assert numba.version_info >= (0, 50)
    assert numba.numba is numba
    numba.set_num_threads(3)
    assert numba.get_num_threads() == 3
    numba.set_num_threads(1)

    @numba.extending.register_jitable
    def added(values):
        total = 0
        for value in numba.literal_unroll(values):
            total += value
        return total

    @cuda.jit
    def total(x):
        x[0] = added((1, 2.5, x[1]))

    x = np.array([0.0, 4.0])
    total[1, 1](x)
    assert x[0] == 7.5 == added((1, 2.5, 4.0))
    assert numba.NumbaPerformanceWarning is numba.errors.NumbaPerformanceWarning


def test_what_a_type_tells_of_itself():
    assert (types.int8.minval, types.int8.maxval, types.uint64.maxval) == (-128, 127, 2**64 - 1)
    assert [t.bitwidth for t in (types.float16, types.int32, types.complex128)] == [16, 32, 128]
    assert not numba.core.config.DISABLE_JIT


def test_a_setting_is_one_wherever_it_is_set(monkeypatch):
    monkeypatch.setattr(numba.core.config, "CUDA_LOW_OCCUPANCY_WARNINGS", 5)
    assert numba.config.CUDA_LOW_OCCUPANCY_WARNINGS == 5
    assert cuda.config is numba.config


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 33), (16, 16), (37, 101)])
def test_matrices_are_transposed(shape):
    from weft.compat.cuda.kernels.transpose import transpose

    a = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(transpose(cuda.to_device(a)).copy_to_host(), a.T)
    given = cuda.device_array(shape[::-1], np.float32)
    assert transpose(a, given) is given
    np.testing.assert_array_equal(given.copy_to_host(), a.T)
    with pytest.raises(errors.ShapeError):
        transpose(a, cuda.device_array((shape[1] + 1, shape[0])))


def test_matrices_of_records_are_transposed():
    from weft.compat.cuda.kernels.transpose import transpose

    a = np.zeros((5, 17), np.dtype([("i", np.int32), ("j", np.float32, (2,))]))
    a["i"], a["j"][..., 1] = np.arange(85).reshape(5, 17), 3
    np.testing.assert_array_equal(transpose(a).copy_to_host(), a.T)


def test_the_frame_of_tests_runs_them(capsys):
    from weft.compat.cuda.testing import CUDATestCase, captured_stdout, skip_on_cudasim, unittest

    seen = []

    class Case(CUDATestCase):
        @skip_on_cudasim("not here")
        def test_setting(self):
            seen.append(numba.config.CUDA_LOW_OCCUPANCY_WARNINGS)
            with captured_stdout() as text:
                print("caught")
            seen.append(text.getvalue())

    result = unittest.TestResult()
    Case("test_setting").run(result)
    assert result.wasSuccessful()
    assert not result.skipped
    assert seen == [0, "caught\n"]
    assert numba.config.CUDA_LOW_OCCUPANCY_WARNINGS == 1
    assert capsys.readouterr().out == ""


def test_types_are_asked_what_they_are():
    assert isinstance(types.int8, types.Integer)
    assert isinstance(types.complex64, types.Number)
    assert not isinstance(types.boolean, types.Number)
    assert not isinstance(types.float32, types.Integer)
    assert isinstance(types.float32[:], types.Array)
    assert isinstance(types.UniTuple(types.int8, 2), types.BaseTuple)
    assert all(isinstance(t, types.Type) for t in (types.float64, types.int8[:]))
    assert not isinstance(8, types.Type)
    assert types.Array(types.int8, 2, "C") == types.int8[:, ::1]
    assert types.Tuple((types.int8, types.float32)).types == (types.int8, types.float32)
    assert types.complex64.underlying_float is types.float32
    assert types.float32[:, ::1].dtype is types.float32
    assert types.float32[:, ::1].layout == "C"
    assert types.int16 in types.signed_domain
    assert types.uint16 in types.integer_domain
    assert str(numba.typeof(np.zeros((2, 2), np.int8))) == "array(int8, 2d, C)"


class TestCompiler:
    """What programs import to extend numba's compiler: named, and refused where it is taken."""

    @pytest.mark.parametrize("line", [
        "from weft.compat.core.imputils import lower_constant",
        "from weft.compat.core.typing.templates import ConcreteTemplate",
        "from weft.compat.core.datamodel import models",
        "from weft.compat.cuda.cudadecl import register",
        "from weft.compat.cuda.cudaimpl import lower",
        "from weft.compat.cuda.models import register_model",
        "from weft.compat.core import cgutils; cgutils.create_struct_proxy",
    ])  # fmt: skip
    def test_what_is_taken_is_refused_with_what_to_write(self, line):
        with pytest.raises(errors.KernelError, match="dataclass") as refused:
            exec(line, {})
        assert "numba.c" in str(refused.value)

    def test_unused_modules_may_be_imported(self):
        assert importlib.import_module("weft.compat.cuda.cgutils") is cuda.cgutils
        assert importlib.import_module("weft.compat.core.cgutils") is numba.core.cgutils
        assert not hasattr(cuda.cgutils, "__path__")

    def test_other_names_of_typing_are_not_there(self):
        with pytest.raises(ImportError):
            exec("from weft.compat.core.typing.templates import nothing", {})


def test_a_device_is_made_of_its_number() -> None:
    made = cuda.cudadrv.driver.Device(devnum=0)
    assert made == cuda.get_current_device()
    assert type(made).from_identity(made.get_device_identity()) == made
    assert len({made, *cuda.gpus}) == 1
    assert made.compute_capability == cuda.gpus[0].compute_capability
    with pytest.raises(errors.LaunchError, match="device 0"):
        cuda.cudadrv.driver.Device(1)
    with pytest.raises(errors.LaunchError, match="from_identity"):
        type(made).from_identity({})
