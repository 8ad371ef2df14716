"""The devices of Vulkan drivers that are here, with memory that the host sees and by stages."""

import pytest

from weft.driver.context import context
from weft.runtimes.vulkan.device import VulkanDevice

DRIVERS = ("vulkan:lavapipe", "vulkan:swiftshader")
_staged = {}


@pytest.fixture(params=[pytest.param((name, staged), marks=pytest.mark.requires(name),
                                     id=name + " staged" * staged)
                        for name in DRIVERS for staged in (False, True)])  # fmt: skip
def device(request):
    name, staged = request.param
    if not staged:
        return context(name).runtime
    if name not in _staged:
        _staged[name] = VulkanDevice(name, name.partition(":")[2], staged=True)
    return _staged[name]
