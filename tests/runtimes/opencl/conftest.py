"""The devices of OpenCL drivers that are here."""

import pytest

from weft.driver.context import context

DRIVERS = ("opencl:pocl", "opencl:intel")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.requires(name)) for name in DRIVERS])
def device(request):
    return context(request.param).runtime
