"""Every test of this folder runs once a device."""

import pytest
from devices import DEVICES, Device


@pytest.fixture(params=DEVICES)
def device(request):
    request.applymarker(pytest.mark.requires(request.param))
    return Device(request.param)
