"""A CPU runtime as the backend joins it."""

import ctypes

import pytest
from native_kernels import KERNELS, SYMBOLS

from weft.compilers import llvm
from weft.runtimes.cpu.runtime import CpuRuntime


@pytest.fixture(scope="session")
def runtime():
    return CpuRuntime(llvm.compiler(), llvm.session(), thread_count=4)


@pytest.fixture(scope="session")
def kernels(runtime):
    return runtime.link(llvm.compiler().compile(KERNELS), SYMBOLS)


@pytest.fixture
def words():
    """Make an array of 64-bit words; keep it and use its address."""

    def make(*values):
        array = (ctypes.c_int64 * len(values))(*values)
        return array, ctypes.addressof(array)

    return make
