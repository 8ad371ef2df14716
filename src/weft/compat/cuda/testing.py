"""``numba.cuda.testing``: what tests of numba's documentation begin with."""

from __future__ import annotations

import contextlib
import io
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.compat import config

__all__ = ["CUDATestCase", "ContextResettingTestCase", "ForeignArray", "captured_stdout",
           "skip_if_external_memmgr", "skip_on_cudasim", "skip_on_standalone_numba_cuda",
           "skip_unless_cc_53", "skip_unless_cc_60", "skip_unless_cc_75", "skip_unless_cc_90",
           "skip_unless_cudasim", "unittest", "xfail_unless_cudasim"]  # fmt: skip


class CUDATestCase(unittest.TestCase):
    """A test of kernels: while it runs, numba's warnings about launches are off."""

    FLOAT16_RTOL = np.finfo(np.float16).eps

    def setUp(self) -> None:
        """Switch the warnings off."""
        self._kept = config.CUDA_LOW_OCCUPANCY_WARNINGS, config.CUDA_WARN_ON_IMPLICIT_COPY
        config.CUDA_LOW_OCCUPANCY_WARNINGS = config.CUDA_WARN_ON_IMPLICIT_COPY = 0

    def tearDown(self) -> None:
        """Set them as they were."""
        config.CUDA_LOW_OCCUPANCY_WARNINGS, config.CUDA_WARN_ON_IMPLICIT_COPY = self._kept


ContextResettingTestCase = CUDATestCase


class ForeignArray:
    """An array that shows nothing but the interface of libraries that take each other's."""

    def __init__(self, arr: Any) -> None:
        self._arr = arr
        self.__cuda_array_interface__ = arr.__cuda_array_interface__


@contextlib.contextmanager
def captured_stdout() -> Iterator[io.StringIO]:
    """Give what is printed meanwhile, also by kernels."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        yield text
        sys.stdout.flush()


def skip_on_cudasim(reason: str) -> Callable[[Any], Any]:
    """Return a test as it is: this is no simulator."""
    return unittest.skipIf(config.ENABLE_CUDASIM, reason)


def skip_unless_cudasim(reason: str) -> Callable[[Any], Any]:
    """Skip a test of numba's simulator."""
    return unittest.skipUnless(config.ENABLE_CUDASIM, reason)


def skip_if_external_memmgr(reason: str) -> Callable[[Any], Any]:
    """Return a test as it is: arrays lie in the memory of the process."""
    return unittest.skipIf(config.CUDA_MEMORY_MANAGER != "default", reason)


def _runs(test: Any) -> Any:
    """Return a test as it is: kernels have what it asks for."""
    return test


skip_on_standalone_numba_cuda = skip_unless_cc_53 = skip_unless_cc_60 = _runs
skip_unless_cc_75 = xfail_unless_cudasim = _runs


def skip_unless_cc_90(test: Any) -> Any:
    """Skip a test of what devices before 9.0 cannot do, as clusters."""
    return unittest.skip("requires a device of 9.0")(test)
