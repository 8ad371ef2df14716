"""The devices of Vulkan drivers that are here, with memory that the host sees and by stages."""

import pytest

from driver_images import opened


def _params(*names):
    return [pytest.param(name + " staged" * staged, marks=pytest.mark.requires(name))
            for name in names for staged in (False, True)]  # fmt: skip


@pytest.fixture(params=_params("vulkan:lavapipe"))
def device(request):
    return opened(request.param)


@pytest.fixture(params=_params("vulkan:lavapipe", "vulkan:swiftshader"))
def any_device(request):
    """Return a device that may have no integers of 64 bits, which kernels need."""
    return opened(request.param)
