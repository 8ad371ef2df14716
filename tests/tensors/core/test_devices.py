"""Devices: names, the default, what is there and why the rest is not."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import far_devices
import weft
from weft import config
from weft.backends import probing, registry
from weft.backends.registry import Backend
from weft.config import BackendConfig, Config
from weft.errors import DeviceError

UNBUILT = ["cuda", "hip", "tenstorrent"]


@pytest.fixture(autouse=True)
def _fresh():
    registry.reset()
    yield
    weft.set_default_device(None)
    registry.reset()
    config.reset()


class Queue:
    waited = 0

    def synchronize(self):
        Queue.waited += 1


class Toy:
    queue = Queue()


def devices():
    """Return the devices without those of drivers, which a machine may have or not."""
    return tuple(name for name in weft.devices()
                 if not name.startswith(("opencl", "vulkan", "webgpu")))  # fmt: skip


def toy(probe=lambda: ""):
    return Backend("toy", ("a", "b"), probe, lambda: 2, None, None, None,
                   lambda ordinal, pair: Toy())


def test_devices_in_the_order_of_probing():
    assert devices() == ("cpu", "disk", "null", "interpreter")
    assert [f.family for f in registry.available()] == [
        "cpu", "disk", "null", "cuda", "hip", "opencl", "tenstorrent", "vulkan", "webgpu",
        "interpreter"]
    registry.register(toy())
    assert devices() == ("cpu", "disk", "null", "interpreter", "toy", "toy:1")


@pytest.mark.parametrize("family", UNBUILT)
def test_families_without_a_backend_say_so(family):
    assert registry.probe(family).reason
    assert not weft.is_available(family)
    with pytest.raises(DeviceError, match=r"no backend for it|no toolchain"):
        weft.zeros(2, device=family)


def test_disabled_devices_are_absent():
    config.reset(Config(backends={"toy": BackendConfig(enabled=False)}))
    registry.register(toy())
    assert devices() == ("cpu", "disk", "null", "interpreter")
    assert registry.probe("toy").reason == "disabled in the configuration"
    assert not weft.is_available("toy")


def test_device_ids_of_the_configuration():
    config.reset(Config(backends={"toy": BackendConfig(ids=(1,))}))
    registry.register(toy())
    assert devices() == ("cpu", "disk", "null", "interpreter", "toy:1")
    assert weft.is_available("toy:1")
    assert not weft.is_available("toy")


def test_failing_and_hanging_probes_stop_nobody(monkeypatch):
    may_end = threading.Event()
    for probe, patience, reason in [(lambda: 1 / 0, 60, "ZeroDivisionError"),
                                    (lambda: may_end.wait(60), 0.05, "answer")]:  # fmt: skip
        monkeypatch.setattr(probing, "PATIENCE", patience)
        registry.register(toy(probe))
        assert devices() == ("cpu", "disk", "null", "interpreter")
        assert reason in registry.probe("toy").reason
    may_end.set()


def test_no_device_at_all_is_an_error_that_says_why():
    off = BackendConfig(enabled=False)
    config.reset(Config(backends={"cpu": off, "disk": off, "null": off, "interpreter": off,
                                   "opencl": off, "vulkan": off, "webgpu": off}))  # fmt: skip
    assert weft.devices() == ()
    assert not weft.is_available()
    with pytest.raises(DeviceError, match="cpu: disabled in the configuration; disk: dis"):
        weft.zeros(2)


@pytest.mark.parametrize("name", ["cpu:7", "cpu/d", "cpu:1/c", "cuda:1", "gpu", "CPU", "", 3])
def test_devices_that_are_not_there_are_refused(name):
    x = weft.zeros(2)
    for use in (lambda: weft.tensor(1, device=name), lambda: weft.arange(3, device=name),
                lambda: weft.rand(2, device=name), lambda: x.to(device=name)):  # fmt: skip
        with pytest.raises(DeviceError):
            use()


@pytest.mark.parametrize("name", [None, "cpu", "cpu:0", "cpu/llvm", "auto"])
def test_devices_that_are_there(name):
    assert weft.tensor(1, device=name).device == "cpu"
    assert weft.zeros(2).to(device=name).device == "cpu"


def test_default_device():
    assert weft.get_default_device() == "cpu"
    weft.set_default_device("cpu/llvm")
    assert weft.get_default_device() == "cpu/llvm"
    assert weft.zeros(2).device == "cpu"
    for name in ("cuda", "cpu:1", "cpu/d", "no such"):
        with pytest.raises(DeviceError):
            weft.set_default_device(name)
    assert weft.get_default_device() == "cpu/llvm"
    weft.set_default_device(None)
    assert weft.get_default_device() == "cpu"


def test_values_are_computed_on_the_default_device():
    far_devices.register()
    weft.set_default_device("late:1")
    for made in (weft.tensor([1.0, 2.0]), weft.rand(2), weft.arange(2), weft.zeros(2),
                 weft.from_numpy(np.ones(2))):  # fmt: skip
        assert (made + 1).exp().device == made.device == "late:1"
    assert weft.zeros(2, device="cpu").device == "cpu"
    assert (weft.ones(2, device="cpu") * 2).realize().device == "cpu"


def test_default_device_of_the_environment(monkeypatch):
    monkeypatch.setenv("WEFT_DEVICE", "cpu:0")
    config.reset()
    assert weft.get_default_device() == "cpu:0"
    assert weft.zeros(2).tolist() == [0.0, 0.0]
    monkeypatch.setenv("WEFT_DEVICE", "cuda:1")
    config.reset()
    with pytest.raises(DeviceError, match=r"WEFT_DEVICE: found cuda:1.*no backend for it"):
        weft.zeros(2)
    monkeypatch.setenv("WEFT_DEVICE", "cpu:3")
    config.reset()
    with pytest.raises(DeviceError, match=r"WEFT_DEVICE: found cpu:3.*one of cpu"):
        weft.get_default_device()


def test_is_available():
    assert weft.is_available()
    assert weft.is_available("cpu")
    assert not weft.is_available("cpu:1")
    assert not weft.is_available("gpu")
    with pytest.raises(DeviceError, match="family"):
        weft.is_available("not a name")


def test_synchronize():
    weft.synchronize()
    registry.register(toy())
    weft.synchronize("toy:1")
    assert Queue.waited == 1
    with pytest.raises(DeviceError):
        weft.synchronize("cuda")


def test_a_tensor_is_made_without_probing_other_devices():
    code = ("import sys, weft; weft.zeros(3).to('cpu'); from weft.backends import registry;"
            "print(sorted(registry._probed), 'importlib.metadata' in sys.modules)")  # fmt: skip
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['cpu'] False"
