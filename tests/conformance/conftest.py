"""Every test of this folder that takes a device runs on each, and values are made there."""

import pytest
from devices import DEVICES, Device

import far_devices
import weft


@pytest.fixture(params=DEVICES)
def device(request):
    request.applymarker(pytest.mark.requires(DEVICES[request.param]))
    if request.param == "cpu":
        yield Device("cpu")
        return
    far_devices.register()
    weft.set_default_device(request.param)
    yield Device(request.param)
    weft.set_default_device(None)
