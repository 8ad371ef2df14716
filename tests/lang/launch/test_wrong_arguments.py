"""Whatever is given to a launch runs or is a typed error with the user's line."""

import ctypes
import dataclasses
import decimal
import enum
import sys
import traceback
import types
import warnings
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import build, gpu
from weft.compat import cuda
from weft.errors import DTypeError, LaunchError, RangeError, WeftError

pytestmark = pytest.mark.usefixtures("compiled")
PACKAGE = str(Path(weft.__file__).parent)


@weft.kernel
def plain(x, n):
    i = gpu.grid(1)
    if i < n:
        x[i] = x[i] + 1


@weft.kernel
def annotated(x: weft.float32[::1], n: weft.int32):
    i = gpu.grid(1)
    if i < n:
        x[i] = x[i] + 1


@cuda.jit
def under_cuda(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = x[i] + 1


@cuda.jit("void(float32[::1], int32)")
def with_signature(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = x[i] + 1


@weft.compute
def loops(x, n):
    for i in range(n):
        x[i] = x[i] + 1


@weft.critical
def critical(x: weft.float32[::1], n: weft.int32) -> weft.float32:
    s = weft.float32(0)
    for i in range(n):
        s += x[i]
    return s


def built() -> Any:
    with build.function("f") as f:
        x = f.array("x", weft.float32, 1, writable=True)
        n = f.scalar("n", weft.int32)
        with f.loop(n) as i:
            x[i] = x[i] + 1
    return f.program


def built_kernel() -> Any:
    with build.kernel("f") as f:
        x = f.array("x", weft.float32, 1, writable=True)
        n = f.scalar("n", weft.int32)
        i = f.grid()
        with f.if_(i < n):
            x[i] = x[i] + 1
    return f.program[1, 32]


def fused(*args: Any) -> None:
    with weft.fuse():
        plain[1, 32](*args)
        plain[1, 32](*args)


FRONTS: dict[str, Any] = {
    "kernel": lambda *a: plain[1, 32](*a),
    "annotated": lambda *a: annotated[1, 32](*a),
    "launch": lambda *a: plain.launch(*a, grid=1, block=32),
    "cuda": lambda *a: under_cuda[1, 32](*a),
    "signature": lambda *a: with_signature[1, 32](*a),
    "compute": lambda *a: loops(*a),
    "critical": lambda *a: critical(*a),
    "built": built(),
    "built kernel": built_kernel(),
    "interpreter": lambda *a: weft.interpret(plain, 1, 32)(*a),
    "sanitizer": lambda *a: weft.sanitize(plain, 1, 32)(*a),
    "native sanitizer": lambda *a: weft.sanitize(plain, 1, 32, native=True)(*a),
    "fuse": fused,
    "jit": lambda *a: weft.jit(lambda *b: plain[1, 32](*b))(*a),
    "check": lambda *a: plain.check(*a, grid=1, block=32),
}


class Letter(enum.Enum):
    A = 1


class NoExport:
    def __dlpack_device__(self):
        raise ValueError("not on any device")

    def __dlpack__(self, **options):
        raise ValueError("nothing")


class Broken:
    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        raise RuntimeError("lost")


@dataclasses.dataclass
class Pair:
    a: int = 1
    b: object = None


def readonly() -> Any:
    made = np.zeros(8, np.float32)
    made.flags.writeable = False
    return made


ARRAYS: dict[str, Any] = {
    "None": None, "int": 3, "float": 1.5, "text": "abc", "bytes": b"abcd",
    "bytearray": bytearray(8), "list": [1, 2, 3], "empty list": [], "dict": {},
    "objects": np.array([None] * 4), "texts": np.array(["a", "b"]),
    "dates": np.zeros(3, "M8[s]"), "float16": np.zeros(8, np.float16),
    "complex": np.zeros(8, np.complex64), "longdouble": np.zeros(8, np.longdouble),
    "bool": np.zeros(8, bool), "big-endian": np.zeros(8, ">f4"), "read-only": readonly(),
    "misaligned": np.zeros(33, np.uint8)[1:].view(np.float32),
    "gaps": np.zeros(16, np.float32)[::2], "backwards": np.zeros(8, np.float32)[::-1],
    "empty": np.zeros(0, np.float32), "expanded": np.broadcast_to(np.float32(0), 8),
    "no axes": np.array(1.0), "matrix": np.zeros((3, 3), np.float32),
    "records": np.zeros(4, [("a", "i4"), ("b", "f8")]), "bytes of 16": np.zeros(4, "V16"),
    "function": len, "type": int, "module": np, "enumeration": Letter.A, "struct": Pair(),
    "tuple": (1, 2), "big": 1 << 70, "NaN": float("nan"), "complex number": 1j,
    "decimal": decimal.Decimal(1), "array": array("f", [1] * 8), "ctypes": (ctypes.c_float * 8)(),
    "memoryview": memoryview(np.zeros(8, np.float32)), "no export": NoExport(), "broken": Broken(),
    "tensor": weft.zeros(8), "tensor of int64": weft.zeros(8).long(),
    "learned": weft.zeros(8).requires_grad_(), "view": weft.zeros(16)[::2], "slice": slice(3),
    "object": object(),
}  # fmt: skip
NUMBERS: dict[str, Any] = {
    "negative": -3, "None": None, "float": 2.5, "inf": float("inf"), "NaN": float("nan"),
    "big": 1 << 80, "over 32 bits": 1 << 40, "text": "a", "array": np.zeros(3), "int8": np.int8(3),
    "uint64": np.uint64(1 << 63), "object": object(), "complex": 1j, "tensor": weft.tensor(3),
    "list": [3],
}  # fmt: skip


def outcome(front: str, *args: Any) -> None:
    """Call a front end; its error, if there is one, is typed, short, and shows no frame of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = None
        try:
            FRONTS[front](*args)
        except WeftError as error:
            found = error
        if found is not None:
            files = [f.filename for f in traceback.extract_tb(found.__traceback__)]
            assert not [f for f in files if f.startswith(PACKAGE)]
            assert Path(__file__).name in str(found)
            assert len(str(found).splitlines()) < 10


@pytest.mark.grid
@pytest.mark.parametrize("front", FRONTS)
def test_anything_as_an_array(front: str) -> None:
    for value in ARRAYS.values():
        outcome(front, value, 4)


@pytest.mark.grid
@pytest.mark.parametrize("front", FRONTS)
def test_anything_as_a_number(front: str) -> None:
    for value in NUMBERS.values():
        outcome(front, np.zeros(8, np.float32), value)
    for args in ((), (np.zeros(8, np.float32),), (np.zeros(8, np.float32), 1, 2)):
        with pytest.raises(WeftError):
            FRONTS[front](*args)


@pytest.mark.grid
@pytest.mark.parametrize("front", FRONTS)
def test_what_native_code_was_made_for_and_then_anything(front: str) -> None:
    for _ in range(3):
        FRONTS[front](np.zeros(8, np.float32), 4)
        FRONTS[front](weft.zeros(8), 4)
    for value in ARRAYS.values():
        outcome(front, value, 4)


@pytest.mark.parametrize("configuration", [
    0, -1, None, 1.5, "a", (), (1,), (1, 0), (0, 1), (1, -1), (1, None), (1, 1.5), (1, 2048),
    (1, (1024, 2)), ((1, 1, 1, 1), 1), ((), 1), (1, ()), (1 << 31, 1), ((1, 1 << 16), 1),
    (1, 1, "stream"), (1, 1, Ellipsis), (1, 1, None, -1), (1, 1, None, 1 << 30),
    (1, 1, None, 1.5), (1, 1, 1, 1, 1), [1, 1], ({}, 1), (np.zeros(2), 1), (1, np.float64(3)),
    (1j, 1), (1 << 70, 1), (1, 1 << 70)], ids=repr)  # fmt: skip
def test_shapes_of_launches(configuration: Any) -> None:
    for kernel in (plain, under_cuda, built_kernel().kernel):
        with pytest.raises(LaunchError) as found:
            kernel[configuration](np.zeros(8, np.float32), 4)
        assert Path(__file__).name in str(found.value)
        assert len(str(found.value).splitlines()) < 10


def test_numbers_that_numba_would_cut() -> None:
    with pytest.raises(RangeError, match="an int of 81 bits"):
        with_signature[1, 32](np.zeros(8, np.float32), 1 << 80)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("front", FRONTS)
def test_tensors_of_torch(front: str) -> None:
    import torch

    for tensor in (torch.zeros(8, requires_grad=True), torch.zeros(8, dtype=torch.bfloat16),
                   torch.zeros(8).to_sparse(), torch.zeros(8, device="meta"),
                   torch.zeros(8, dtype=torch.complex64).conj(), torch.zeros(1).expand(8)):
        outcome(front, tensor, 4)


def test_annotations_in_cells_of_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a parameter was annotated is told as users know it, not by the file of a cell."""
    @weft.kernel
    def takes(x: weft.float32[:], n: weft.int32) -> None:
        x[0] = n

    shell = types.SimpleNamespace(compile=types.SimpleNamespace(
        format_code_name=lambda file: ("Cell", "In[3]") if file == __file__ else None))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    for args, count in (((np.zeros(3), 1), 1), ((np.zeros(3), 2.5), 2)):
        with pytest.raises(DTypeError) as caught:
            takes[1, 1](*args)
        assert str(caught.value).count("annotated at Cell In[3]:") == count
        assert __file__ not in str(caught.value)
