"""What a module tells of itself: golden text, and what is in it for kernels of several kinds."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError, VariableError
from weft.ir.module import least_ptx, ptx_version

TABLE = np.arange(16, dtype=np.float32)


@weft.func
def weighted(value: Any, place: Any) -> Any:
    return value * TABLE[place % 16]


@weft.func
def halved(value: Any) -> Any:
    return weighted(value, 3) / weft.float32(2)


@weft.kernel(workgroup=64, max_registers=40, min_blocks=2, cluster=2, arch=("sm_89", "sm_90a",
             "gfx90a"), kind="reduce", hints={"unroll": 4, "tensor_cores": False})  # fmt: skip
def total(x: weft.float32[::1], out: weft.float32[::1], n: weft.int32) -> None:
    part = gpu.shared.array(64, weft.float32)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    part[t] = halved(x[i]) if i < n else weft.float32(0)
    gpu.syncthreads()
    sum_ = gpu.shfl_down_sync(gpu.ALL, part[t], 1)
    if t == 0:
        gpu.atomic.add(out, 0, sum_)


@weft.kernel
def copied(x: Any, y: Any) -> None:
    t = gpu.threadIdx.x
    part = gpu.shared.array(0, weft.float16)
    gpu.memcpy_async(part[8 * t:], x[8 * t:], 8)
    gpu.commit_group()
    gpu.wait_group(0)
    gpu.syncthreads()
    y[t] = part[t]


def test_text(golden: Any) -> None:
    one = total.metadata()
    two = copied.metadata(32, np.zeros(256, np.float16), np.zeros(256, np.float16), shared=512)
    golden("kernel_module.txt", f"{one}\n\n{two}\n\n{one | two}\n")
    assert one.ptx == (8, 0)
    assert two.ptx is None
    assert one.constant_bytes == 64
    assert one.functions == ("halved", "weighted")


def test_types_come_from_arguments_or_annotations() -> None:
    with pytest.raises(VariableError, match="metadata copied"):
        copied.metadata(32)
    double = np.zeros(8)
    found = copied.metadata(32, double.astype(np.float16), double, shared=512)
    assert "float64 values" in found.features


def test_version_of_ptx() -> None:
    assert least_ptx(("sm_75",)) == (6, 3)
    assert least_ptx(("sm_89",)) == (7, 8)
    assert least_ptx(("sm_90a", "sm_75")) == (8, 0)
    assert least_ptx(("sm_100",)) == (8, 6)
    assert least_ptx(("sm_120", "gfx90a")) == (8, 7)
    assert least_ptx(("gfx90a",)) is None
    assert ptx_version(("sm_90", "ptx82")) == (8, 2)
    with pytest.raises(KernelError, match="ptx86 or later"):
        weft.kernel(arch=("sm_100", "ptx80"))
