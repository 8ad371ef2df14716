"""Every test of this folder that takes a device runs on each, and values are made there."""

import os

import device_coverage
import pytest
from devices import DEVICES, Device

import far_devices
import weft


def pytest_sessionfinish():
    """Leave what this process has computed for the page of coverage."""
    if folder := os.environ.get("WEFT_COVERAGE"):
        device_coverage.write(folder)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.requires(capability))
                        for name, capability in DEVICES.items()])  # fmt: skip
def device(request):
    if request.param == "cpu":
        yield Device("cpu")
        return
    far_devices.register()
    weft.set_default_device(request.param)
    yield Device(request.param)
    weft.set_default_device(None)
