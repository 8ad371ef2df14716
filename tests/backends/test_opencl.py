"""Probing of OpenCL drivers, and the names of their devices."""

import os
import subprocess
import sys

import pytest

import weft
from weft import config
from weft.backends import opencl, registry
from weft.driver.context import context
from weft.errors import DeviceError
from weft.runtimes.opencl import driver


@pytest.fixture(autouse=True)
def _fresh():
    yield
    weft.set_default_device(None)
    config.reset()


def test_without_its_package_the_way_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    assert driver.probe() == "the package pyopencl is not installed (pip install weft[opencl])"
    with pytest.raises(DeviceError, match=r"pip install weft\[opencl\]"):
        driver.devices()


@pytest.mark.requires("opencl")
def test_without_a_driver_the_way_to_install_one_is_told(tmp_path):
    """Loaders without any driver, and with one whose library is not there."""
    code = ("from weft.backends import registry; found = registry.probe('opencl'); "
            "print(found.devices, found.reason)")  # fmt: skip
    for number in range(2):
        if number:
            (tmp_path / "absent.icd").write_text("/nowhere/libabsent.so\n")
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "OCL_ICD_VENDORS": str(tmp_path),
                 "OPENCL_VENDOR_PATH": str(tmp_path)})  # fmt: skip
        assert done.stdout.startswith("() no OpenCL driver is installed"), done.stdout
        assert "apt-get install pocl-opencl-icd" in done.stdout


@pytest.mark.parametrize(("platform", "name"), [
    ("Portable Computing Language", "pocl"), ("Intel(R) OpenCL", "intel"),
    ("Intel(R) OpenCL Graphics", "intel"), ("NVIDIA CUDA", "nvidia"),
    ("AMD Accelerated Parallel Processing", "amd"), ("rusticl", "rusticl"), ("Clover", "clover"),
    ("Oclgrind", "oclgrind"), ("3D (TM)", "other"), ("", "other"), ("QUALCOMM Snapdragon(TM)",
                                                                   "qualcomm"),
])  # fmt: skip
def test_devices_are_called_after_their_driver(platform, name):
    assert driver.short_name(platform) == name


class Device:
    available = compiler_available = True

    def __init__(self, kind, version="OpenCL 3.0 of a test"):
        self.type, self.version = kind, version


class Platform:
    def __init__(self, name, *devices):
        self.name, self._devices = name, devices

    def get_devices(self):
        if not self._devices:
            raise driver.pyopencl().RuntimeError("none")
        return list(self._devices)


@pytest.mark.requires("opencl")
def test_gpus_come_first_and_names_are_unique(monkeypatch):
    cl = driver.pyopencl()
    cpu, gpu = cl.device_type.CPU, cl.device_type.GPU
    monkeypatch.setattr(cl, "get_platforms", lambda: [
        Platform("Portable Computing Language", Device(cpu)), Platform("broken"),
        Platform("NVIDIA CUDA", Device(gpu), Device(gpu), Device(gpu, "OpenCL 1.1 too old")),
        Platform("Intel(R) OpenCL", Device(cpu)), Platform("Intel(R) OpenCL Graphics", Device(gpu)),
    ])  # fmt: skip
    assert [name for name, *_ in driver.devices()] == [
        "nvidia", "nvidia_1", "intel", "pocl", "intel_1"]


@pytest.mark.requires("opencl")
def test_a_device_has_one_name_and_facts(monkeypatch):
    found = registry.probe("opencl")
    for number, name in enumerate(found.devices):
        spellings = [name, f"opencl:{number}", f"{name}/c"] + ["opencl"] * (not number)
        assert {context(spelling).name for spelling in spellings} == {name}
        facts = opencl.facts_of(number)
        assert facts["units"] >= 1
        assert facts["max_alloc"] > 0
        assert {type(facts[k]) for k in ("double", "half", "int64_atomics", "is_cpu")} == {bool}
        monkeypatch.setenv("WEFT_DEVICE", name)
        config.reset()
        assert weft.get_default_device() == name
    for wrong in ("opencl:no_such", "opencl:99", "opencl/spirv"):
        with pytest.raises(DeviceError, match="one of opencl"):
            registry.lookup(wrong)


@pytest.mark.requires("opencl")
def test_it_is_no_default_unless_it_is_named():
    off = config.BackendConfig(enabled=False)
    config.reset(config.Config(backends={f: off for f in ("cpu", "disk", "null", "interpreter")}))
    registry.reset()
    with pytest.raises(DeviceError, match="opencl: only where WEFT_DEVICE names it"):
        registry.first()
    config.reset()
    registry.reset()
