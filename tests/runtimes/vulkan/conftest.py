"""The devices of Vulkan drivers that are here, with memory that the host sees and by stages."""

import pytest

from weft.driver.context import context
from weft.runtimes.vulkan.device import VulkanDevice

_staged = {}


def _params(*names):
    return [pytest.param((name, staged), marks=pytest.mark.requires(name),
                         id=name + " staged" * staged)
            for name in names for staged in (False, True)]  # fmt: skip


def _of(name, staged):
    if not staged:
        return context(name).runtime
    if name not in _staged:
        _staged[name] = VulkanDevice(name, name.partition(":")[2], staged=True)
    return _staged[name]


@pytest.fixture(params=_params("vulkan:lavapipe"))
def device(request):
    return _of(*request.param)


@pytest.fixture(params=_params("vulkan:lavapipe", "vulkan:swiftshader"))
def any_device(request):
    """Return a device that may have no integers of 64 bits, which kernels need."""
    return _of(*request.param)
