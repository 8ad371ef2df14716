"""The devices of drivers that are here, those of Vulkan also with copies by stages."""

import pytest

from driver_images import opened

WITH_CLOCKS = ("opencl:pocl", "opencl:intel", "vulkan:lavapipe", "vulkan:lavapipe staged")
OTHERS = ("webgpu", "webgpu:poor")


def _params(names):
    return [pytest.param(name, marks=pytest.mark.requires(
        "webgpu" if name.startswith("webgpu") else name.partition(" ")[0])) for name in names]


@pytest.fixture(params=_params(WITH_CLOCKS + OTHERS))
def device(request):
    return opened(request.param)


@pytest.fixture(params=_params(WITH_CLOCKS))
def clocked(request):
    """Return a device that tells times and runs kernels that never end."""
    return opened(request.param)


@pytest.fixture(params=_params((*WITH_CLOCKS, *OTHERS, "vulkan:swiftshader",
                                "vulkan:swiftshader staged")))  # fmt: skip
def any_device(request):
    """Return a device that may have no integers of 64 bits, which kernels need."""
    return opened(request.param)
