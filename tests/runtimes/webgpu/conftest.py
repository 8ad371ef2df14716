"""The devices of WebGPU that are here, and one with the least limits."""

import pytest

from weft.driver.context import context


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.requires("webgpu"))
                        for name in ("webgpu", "webgpu:poor")])  # fmt: skip
def device(request):
    return context(request.param).runtime
