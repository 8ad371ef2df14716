"""Probing of Vulkan drivers, and the names of their devices."""

import json
import os
import subprocess
import sys

import pytest

import weft
from weft import config
from weft.backends import registry, vulkan
from weft.driver.context import context
from weft.errors import DeviceError
from weft.runtimes.vulkan import binding, driver

MANIFEST = {"file_format_version": "1.0.0"}


@pytest.fixture(autouse=True)
def _fresh():
    yield
    weft.set_default_device(None)
    config.reset()


def test_without_its_package_the_way_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "vulkan._vulkan", None)
    monkeypatch.setattr(binding, "_binding", None)
    assert driver.probe() == "the package vulkan is not installed (pip install weft[vulkan])"
    with pytest.raises(DeviceError, match=r"pip install weft\[vulkan\]"):
        driver.devices()


def probed(**environment):
    """Return what another process finds with other variables."""
    code = ("from weft.backends import registry; found = registry.probe('vulkan'); "
            "print(found.devices, found.reason)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment})  # fmt: skip
    return done.stdout


@pytest.mark.requires("vulkan")
def test_without_a_driver_the_way_to_install_one_is_told(tmp_path):
    """Loaders without any driver, and with one whose library is not there."""
    absent = tmp_path / "absent.json"
    absent.write_text(json.dumps(MANIFEST | {"ICD": {"library_path": "/nowhere/lib.so",
                                                     "api_version": "1.3.0"}}))  # fmt: skip
    for place in (str(tmp_path / "nothing.json"), str(absent)):
        said = probed(VK_ICD_FILENAMES=place, VK_DRIVER_FILES=place, VK_ADD_DRIVER_FILES="")
        assert said.startswith("() no Vulkan driver is installed"), said
        assert "apt-get install mesa-vulkan-drivers" in said


@pytest.mark.requires("vulkan")
def test_a_driver_that_ends_the_process_is_told(tmp_path):
    """It ends the child that asks, and nothing else."""
    library = tmp_path / "lib.so"
    source = tmp_path / "lib.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) void f(void) {abort();}")
    done = subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=False)
    if done.returncode:
        pytest.fail("cc makes no library")
    place = tmp_path / "driver.json"
    place.write_text(json.dumps(MANIFEST | {"ICD": {"library_path": str(library),
                                                    "api_version": "1.3.0"}}))  # fmt: skip
    said = probed(VK_ICD_FILENAMES=str(place), VK_DRIVER_FILES=str(place), VK_ADD_DRIVER_FILES="")
    assert said.startswith("() its driver ended the probe by SIGABRT"), said


@pytest.mark.parametrize(("number", "words", "name"), [
    (13, "llvmpipe", "lavapipe"), (10, "SwiftShader driver", "swiftshader"),
    (4, "NVIDIA 580.1", "nvidia"), (3, "radv Mesa", "radv"), (6, "Intel open-source", "intel"),
    (999, "Honeykrisp Mesa 25", "honeykrisp"), (999, "3D", "other"), (0, "", "other"),
])  # fmt: skip
def test_devices_are_called_after_their_driver(number, words, name):
    assert driver.short_name(number, words) == name


def test_names_are_unique():
    facts = [{"driver_id": n, "driver": ""} for n in (4, 4, 13, 4)]
    assert driver.named(facts) == ["nvidia", "nvidia_1", "lavapipe", "nvidia_2"]


def test_what_a_device_lacks_is_told(monkeypatch):
    sound = {"version": [1, 2], "family": 0, "bufferDeviceAddress": True, "timelineSemaphore": True}
    assert driver.lacking(sound) == ""
    for change, told in (({"bufferDeviceAddress": False}, "bufferDeviceAddress"),
                         ({"timelineSemaphore": False}, "timelineSemaphore"),
                         ({"family": -1}, "a queue for compute"),
                         ({"version": [1, 1]}, "Vulkan 1.2")):  # fmt: skip
        facts = {**sound, **change, "name": "Old card"}
        assert driver.lacking(facts) == told
        monkeypatch.setattr(driver, "vulkan", lambda: None)
        monkeypatch.setattr(driver, "_present", lambda vk, facts=facts: [(facts, None)])
        assert driver.probe() == f"Old card lacks {told}"


@pytest.mark.requires("vulkan")
def test_a_device_has_one_name_and_facts(monkeypatch):
    found = registry.probe("vulkan")
    for number, name in enumerate(found.devices):
        spellings = [name, f"vulkan:{number}", f"{name}/spirv"] + ["vulkan"] * (not number)
        assert {context(spelling).name for spelling in spellings} == {name}
        facts = vulkan.facts_of(number)
        assert facts["units"] >= 1
        assert facts["maxMemoryAllocationSize"] > 0
        assert {type(facts[k]) for k in ("shaderFloat64", "shaderInt64", "is_cpu")} == {bool}
        monkeypatch.setenv("WEFT_DEVICE", name)
        config.reset()
        assert weft.get_default_device() == name
    for wrong in ("vulkan:no_such", "vulkan:99", "vulkan/glsl"):
        with pytest.raises(DeviceError, match="one of vulkan"):
            registry.lookup(wrong)


@pytest.mark.requires("vulkan:lavapipe")
def test_from_numbers_to_numbers():
    x = weft.tensor([1.0, 2.0], device="vulkan:lavapipe")
    assert x.device == "vulkan:lavapipe"
    assert (x + 1).tolist() == [2.0, 3.0]
