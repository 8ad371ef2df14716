"""What programs ask of numba's driver: memory by its address, streams, errors by their classes."""

import ctypes

import numpy as np
import pytest

import weft.compat as numba
from weft.compat import cuda, float32, guvectorize, int32, void
from weft.compat.cuda.cudadrv import devicearray, driver, error, nvvm
from weft.errors import KernelError, LaunchError


@cuda.jit
def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


@pytest.mark.parametrize("name", ["memalloc", "memhostalloc", "memallocmanaged"])
def test_memory_by_its_address(name):
    context = cuda.current_context()
    memory = getattr(context, name)(40)
    assert driver.is_device_memory(memory)
    assert memory.device_ctypes_pointer.value == memory.handle != 0
    source, found = np.arange(10, dtype=np.int32), np.zeros(10, np.int32)
    driver.host_to_device(memory, source, 40)
    twice[1, 64](np.asarray(memory.view(8)).view(np.int32))
    driver.device_to_host(found, memory, 40)
    assert found.tolist() == [0, 1, 4, 6, 8, 10, 12, 14, 16, 18]
    driver.device_memset(memory.view(36), 1, 4)
    memory.memset(0, 4)
    driver.device_to_host(found, memory, 40)
    assert found.tolist() == [0, 1, 4, 6, 8, 10, 12, 14, 16, 0x01010101]
    with pytest.raises(LaunchError, match="memory for kernels"):
        driver.require_device_memory(source)


def test_pointers_of_others_are_given_back_once():
    ended = []
    pointer = cuda.MemoryPointer(cuda.current_context(), ctypes.c_void_p(64), 40,
                                 finalizer=lambda: ended.append(1))
    part = pointer.view(8)
    assert part.handle == 72
    assert part.size == 32
    assert part.owner is pointer
    del pointer
    assert not ended
    del part
    assert ended == [1]


def test_pinned_memory_is_that_of_the_array():
    x = np.arange(5.0)
    memory = cuda.current_context().mempin(x, x.ctypes.data, x.nbytes, mapped=True)
    np.asarray(memory).view(np.float64)[1] = 7
    assert x[1] == 7


def test_more_memory_than_there_is():
    with pytest.raises(MemoryError):
        cuda.current_context().memalloc(-1)


def test_extents_and_cores_of_arrays():
    x = np.zeros((4, 6), np.int16)
    first = x.ctypes.data
    assert driver.host_memory_extents(x) == (first, first + 48)
    assert driver.host_memory_extents(x[::-1, 1]) == (first + 2, first + 40)
    empty = np.zeros(0)
    assert driver.host_memory_extents(empty) == (empty.ctypes.data, empty.ctypes.data)
    assert devicearray.is_contiguous(x)
    assert not devicearray.is_contiguous(x.T)
    assert devicearray.array_core(np.broadcast_to(x, (3, 4, 6))).shape == (4, 6)
    assert devicearray.is_contiguous(np.broadcast_to(x, (3, 4, 6)))


def test_streams_and_events_of_contexts():
    context = cuda.current_context()
    foreign = cuda.external_stream(0x1234)
    assert (int(foreign), foreign.external) == (0x1234, True)
    own = context.create_stream()
    assert (own.handle, own.external) == (0, False)
    x = cuda.to_device(np.ones(3))
    twice[1, 32, foreign](x)
    event = context.create_event()
    event.record(context.get_default_stream())
    assert x.copy_to_host().tolist() == [2, 2, 2]
    assert len(context.deallocations) == 0
    context.deallocations.clear()


def test_arrays_tell_their_type_and_where_nothing_lies():
    assert cuda.to_device(np.zeros((2, 3), np.float32))._numba_type_ == float32[:, ::1]
    assert cuda.device_array(0).__cuda_array_interface__["data"][0] == 0
    record = np.zeros(2, [("a", "i4"), ("b", "f4")])[0]
    own = devicearray.DeviceRecord(record.dtype)
    assert (own.shape, own.alloc_size, own.copy_to_host()["a"]) == ((), 8, 0)
    held = cuda.to_device(np.array((3, 1.5), record.dtype))
    assert held.copy_to_host(record)["a"] == 3
    assert record["b"] == 1.5


def test_errors_have_the_classes_that_programs_catch():
    with pytest.raises(TypeError):
        cuda.device_array(1.5)
    with pytest.raises(ValueError, match="negative"):
        cuda.device_array(-3)
    masked = {**np.zeros(3).__array_interface__, "mask": np.zeros(3)}
    with pytest.raises(RuntimeError, match="mask") as caught:
        cuda.from_cuda_array_interface(masked)
    assert "NotImplementedError" in [kind.__name__ for kind in caught.type.__mro__]
    with pytest.raises(error.NvvmSupportError):
        nvvm.NVVM()
    assert not nvvm.is_available()
    assert issubclass(error.CudaSupportError, ImportError)
    assert issubclass(numba.errors.LinkerError, KernelError)
    with pytest.raises(numba.errors.NumbaError, match="declare_device"):
        cuda.declare_device("other", "int32(int32)", link="other.cu")
    with pytest.raises(RuntimeError, match="a device function"):
        cuda.jit(device=True)(lambda x: x)[1, 1]


def test_general_functions_are_refused_as_numba_does():
    def copy(x, y):
        y[0] = x[0]

    with pytest.raises(TypeError, match="nopython"):
        guvectorize([void(int32[:], int32[:])], "(n)->(n)", nopython=False)
    with pytest.raises(TypeError, match="a result of int32"):
        guvectorize([int32(int32[:], int32[:])], "(n)->(n)", target="cuda")(copy)
    made = guvectorize([void(int32[:], int32[:])], "(n)->(n)", target="cuda")(copy)
    x = np.zeros(3, np.int32)
    with pytest.raises(TypeError, match="3 arguments"):
        made(x, x, x)
    with pytest.raises(ValueError, match="by place and by name"):
        made(x, x, out=x)


def test_results_go_into_arrays_of_other_libraries():
    from weft.compat.cuda.testing import ForeignArray

    @guvectorize(["(f8, f8, f8[:])"], "(),()->()", target="cuda")
    def add(x, y, out):
        out[0] = x + y

    held = cuda.device_array(7)
    found = add(np.arange(7.0), 2.5, out=ForeignArray(held))
    np.testing.assert_array_equal(held, np.arange(7) + 2.5)
    np.testing.assert_array_equal(found.copy_to_host(), np.arange(7) + 2.5)


def test_bounds_of_launches():
    @cuda.jit(launch_bounds=(128, 2, 4))
    def bounded(x):
        x[cuda.grid(1)] = 1

    x = np.zeros(128)
    bounded[1, 128](x)  # the third is the most blocks of a cluster: no launch must have one
    assert x.all()
    with pytest.raises(numba.errors.CudaAPIError, match="at most 128"):
        bounded[1, 256](x)
    with pytest.raises(ValueError, match="Got 4 launch bounds"):
        cuda.jit(launch_bounds=(128, 2, 4, 8))(lambda x: None)


def test_what_is_linked_is_refused_and_what_is_set_is_checked():
    from weft.compat.cuda.cudadrv.linkable_code import CUSource

    for kind in (CUSource, cuda.PTXSource, cuda.LTOIR):
        with pytest.raises(KernelError, match="code of another language"):
            kind("int f();")
    for wrong in (150, -2, "much"):
        with pytest.raises(ValueError, match="carveout"):
            cuda.jit(shared_memory_carveout=wrong)
    for right in ("MaxL1", "default", 50, -1):
        x = np.ones(3)
        cuda.jit(shared_memory_carveout=right)(twice.py_func)[1, 32](x)
        assert x.tolist() == [2, 2, 2]


def test_a_specialised_kernel_tells_one_number():
    x = np.ones(3)
    special = cuda.jit(twice.py_func).specialize(x)
    special[1, 32](x)
    assert special.get_regs_per_thread() > 0
    assert special.get_local_mem_per_thread() == 0
    texts = special.inspect_llvm()
    assert texts == {s: special.inspect_llvm(s) for s in special.signatures}
    signed = cuda.jit("void(float64[:])")(twice.py_func)
    assert signed.get_shared_mem_per_block() == 0
    plain = cuda.jit(twice.py_func)
    plain[1, 32](x)
    assert list(plain.get_local_mem_per_thread().values()) == [0]


def test_the_devices_are_printed(capsys):
    assert cuda.detect()
    assert "Found 1 CUDA devices" in capsys.readouterr().out
