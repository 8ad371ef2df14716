"""Devices of WebGPU: names and probing, and whole programs on them."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import config, gpu, nn
from weft.backends import registry, webgpu
from weft.driver.context import context
from weft.errors import DeviceError, LaunchError
from weft.renderers.cstyle.wgsl.target import POOREST, webgpu_target
from weft.runtimes.webgpu import driver

DEVICES = [pytest.param(name, marks=pytest.mark.requires("webgpu"))
           for name in ("webgpu", "webgpu:poor")]  # fmt: skip


@pytest.fixture(params=DEVICES)
def device(request):
    weft.set_default_device(request.param)
    yield request.param
    weft.set_default_device(None)


def test_without_its_package_the_way_to_install_it_is_told():
    code = ("import sys; sys.modules['wgpu'] = None; from weft.runtimes.webgpu import driver; "
            "print(driver.probe())")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the package wgpu is not installed (pip install weft[webgpu])\n"


@pytest.mark.requires("webgpu")
def test_a_device_has_one_name_and_facts(monkeypatch):
    found = registry.probe("webgpu")
    for number, name in enumerate(found.devices):
        spellings = [name, f"webgpu:{number}", f"{name}/wgsl"] + ["webgpu"] * (not number)
        assert {context(spelling).name for spelling in spellings} == {name}
        facts = webgpu.facts_of(number)
        assert facts.keys() >= POOREST.keys()
        for fact, (_, least) in driver.LEAST.items():
            if name == "webgpu:poor":
                assert facts[fact] == least
            elif fact != "alignment":
                assert facts[fact] >= least
    assert found.devices[-1] == "webgpu:poor"
    monkeypatch.setenv("WEFT_DEVICE", "webgpu:poor")
    config.reset()
    assert weft.get_default_device() == "webgpu:poor"
    monkeypatch.delenv("WEFT_DEVICE")
    config.reset()
    for wrong in ("webgpu:no_such", "webgpu:99", "webgpu/spirv"):
        with pytest.raises(DeviceError, match="one of webgpu"):
            registry.lookup(wrong)


def test_the_target_of_the_least_device():
    target = webgpu_target()
    assert (target.name, target.style, target.max_items) == ("webgpu", "simt", 256)
    assert webgpu_target({**POOREST, "max_turns": 65_535}).fingerprint() != target.fingerprint()


def test_a_step_of_training_is_that_of_the_processor(device, rng):
    data, labels = rng.standard_normal((31, 17)).astype(np.float32), rng.integers(0, 5, 31)
    found = []
    for place in ("cpu", device):
        weft.manual_seed(3)
        model = nn.Sequential(nn.Linear(17, 23), nn.ReLU(), nn.Linear(23, 5)).to(place)
        optimizer = weft.optim.SGD(model.parameters(), lr=1e-1)
        x, y = weft.tensor(data, device=place), weft.tensor(labels, device=place)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = weft.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert found[1][0][2] < found[1][0][0]


def test_a_loop_of_any_length_ends_right_or_is_an_error(device):
    """Drivers that end long loops without a word do not give wrong sums."""
    x = np.ones((1, 200_000), np.float32)
    total = weft.tensor(x, device=device).sum(1)
    found = None
    with contextlib.suppress(LaunchError):
        found = total.numpy()
    assert found == [200_000] or (found is None and webgpu.facts_of(0)["max_turns"])
    assert weft.tensor(x[:, :999], device=device).sum().item() == 999


def test_names_of_the_language_may_be_names_of_kernels(device):
    @weft.kernel
    def kernel(weft_keep, fn, var, override, x, vec2, loop, NAN):
        select = gpu.grid(1)
        status, scratch, f32 = vec2[0], loop, 1.0
        if select < weft_keep.size:
            weft_keep[select] = fn[select] + var + override + x + status + scratch + f32 + NAN

    out = np.zeros(5, np.float32)
    kernel[1, 32](out, np.arange(5, dtype=np.float32), 10.0, 100.0, 1e3, np.ones(1, np.float32),
                  1e4, 1e5)  # fmt: skip
    np.testing.assert_array_equal(out, np.arange(5) + 10 + 100 + 1e3 + 1 + 1e4 + 1 + 1e5)


def test_errors_of_sums_are_computed_and_not_taken_for_zero(device, rng):
    """A driver that knew what it adds would take (1 - (1 - h)) - h for 0."""
    h = rng.random(1000, np.float32) ** 2
    x = weft.tensor(h)
    total = 1.0 - x
    lost, twice = (1.0 - total) - x, (total + x) - total
    np.testing.assert_array_equal(lost.numpy(), (1 - (1 - h)) - h)
    np.testing.assert_array_equal(twice.numpy(), ((1 - h) + h) - (1 - h))
    assert (lost.numpy() != 0).any()


@pytest.mark.parametrize("base", [2.0, 3, 0.5, 10.0])
def test_branches_on_constants_let_drivers_know_nothing(device, base):
    """Some make constants of the words of uniform buffers that branches depend on."""
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    found = (base ** weft.tensor(x)).numpy()
    np.testing.assert_allclose(found, np.float64(base) ** x, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_not_finite_less_itself_is_nan(device, dtype):
    x = weft.tensor(np.array([1, np.inf, -np.inf, np.nan], np.float32)).to(dtype).realize()
    for found in (x - x, x - x.flip(0).flip(0), x.float() - x.float()):
        assert np.isnan(found.float().numpy()).tolist() == [False, True, True, True]
