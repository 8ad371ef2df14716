"""DLPack, both ways, plain and versioned."""

import gc

import numpy as np
import pytest

import weft
from weft.exchange import dlpack

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_round_trip_with_numpy(dtype, shape):
    x = weft.ones(*shape, dtype=dtype)
    out = np.from_dlpack(x)
    assert out.dtype == np.dtype(dtype)
    assert out.shape == shape
    assert (out == 1).all()
    back = weft.from_dlpack(np.ones(shape, dtype))
    assert back.dtype.name == dtype
    assert back.tolist() == np.ones(shape, dtype).tolist()


@pytest.mark.slow
def test_memory_is_shared_and_kept():
    x = weft.arange(5).realize()
    out = np.from_dlpack(x)
    assert out.__array_interface__["data"][0] == x.numpy().__array_interface__["data"][0]
    assert not out.flags.writeable
    del x
    gc.collect()
    assert out.tolist() == [0, 1, 2, 3, 4]
    a = np.zeros(3)
    y = weft.from_dlpack(a)
    a[1] = 2
    assert y.tolist() == [0, 2, 0]
    strided = np.arange(12.0).reshape(3, 4)[:, ::2].T
    assert weft.from_dlpack(strided).tolist() == strided.tolist()


@pytest.mark.slow
def test_unused_capsules_are_freed():
    x = weft.arange(5).realize()
    count = len(dlpack._exported)
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert len(dlpack._exported) == count + 1
        del capsule
        gc.collect()
        assert len(dlpack._exported) == count
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    assert x.__dlpack_device__() == (1, 0)


class Elsewhere:
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        raise AssertionError("not asked")


def test_other_devices_and_types():
    with pytest.raises(weft.DeviceError, match="host"):
        weft.from_dlpack(Elsewhere())
    with pytest.raises(weft.DTypeError):
        weft.from_dlpack([1, 2])
    with pytest.raises(weft.DTypeError, match="complex128"):
        weft.from_dlpack(np.ones(2, complex))


@pytest.mark.requires("torch")
@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "bfloat16", "float32"])
def test_torch(dtype):
    import torch

    t = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    x = weft.from_dlpack(t)
    assert x.dtype.name == dtype
    assert x.tolist() == t.tolist()
    assert torch.from_dlpack(x).tolist() == t.tolist()
    assert torch.from_dlpack(x).dtype is t.dtype
    assert (x + weft.asarray(t)).dtype.name == dtype
    assert weft.tensor(t.reshape(3, 1).T).shape == (1, 3)


def test_buffer_protocol():
    import array

    x = weft.tensor(array.array("d", [1.0, 2.0]))
    assert x.dtype is weft.float64
    assert x.tolist() == [1.0, 2.0]
    assert weft.asarray(memoryview(b"ab")).tolist() == [97, 98]
