"""What a test may need beyond Weft's core, and what happens where it is absent.

A test names its needs with ``@pytest.mark.requires("torch")``, or calls ``require("torch")`` where
only part of it has them. Where the capability is missing the test is deselected (or skipped, with
the reason), unless the environment names it in WEFT_REQUIRE: there its absence is a failure. No
other reason to skip is accepted.
"""

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from weft.config import config


def _module(name: str) -> Callable[[], str]:
    """Return a probe: the reason why a module cannot be used, empty if it can."""
    return lambda: "" if importlib.util.find_spec(name) else f"the module {name} is not installed"


def _fork() -> str:
    return "" if hasattr(os, "fork") else "this system has no fork"


def _seccomp() -> str:
    return "" if sys.platform == "linux" else "only Linux has seccomp"


def _tiles() -> str:
    from weft.backends import cpu

    if absent := _module("llvmlite")():
        return absent
    if not config().split_float32:
        return "float32 products leave them alone (WEFT_SPLIT_FLOAT32)"
    return cpu.tiles_state()


def _compiles(*names: str) -> Callable[[], str]:
    """Return a probe: why none of some C compilers serves, empty if one does."""
    def reason() -> str:
        if absent := _module("llvmlite")():
            return absent
        from weft.backends import cpu
        from weft.compilers.c import missing
        from weft.renderers.cstyle.c.target import c_target

        return missing(c_target(cpu.host_target()), names)

    return reason


def _driver(name: str) -> Callable[[], str]:
    """Return a probe: why a family has no device, or no device of a driver."""
    def reason() -> str:
        from weft.backends import registry

        family = name.partition(":")[0]
        found = registry.probe(family)
        if found.reason or name == family or name in found.devices:
            return found.reason
        return f"of {family} there is {', '.join(found.devices)}"

    return reason


def browser():
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


# capability -> probe
CAPABILITIES: dict[str, Callable[[], str]] = {
    "cpu": _module("llvmlite"),
    "cpu/c": _compiles(),
    "interpreter": lambda: "",
    "disk": lambda: "",
    "oclgrind": lambda: "" if shutil.which("oclgrind") else "no oclgrind is on PATH",
    "opencl": _driver("opencl"),
    "opencl:intel": _driver("opencl:intel"),
    "opencl:pocl": _driver("opencl:pocl"),
    "opencl:pocl/threads": _driver("opencl:pocl"),
    "vulkan": _driver("vulkan"),
    "vulkan:lavapipe": _driver("vulkan:lavapipe"),
    "vulkan:swiftshader": _driver("vulkan:swiftshader"),
    "webgpu": _driver("webgpu"),
    "null": lambda: "",
    "spirv-tools": lambda: "" if shutil.which("spirv-val") and shutil.which("spirv-dis") else
    "no spirv-val and spirv-dis are on PATH",
    "clang": _compiles("clang-11", "clang"),
    "gcc": _compiles("gcc"),
    "torch": _module("torch"),
    "sklearn": _module("sklearn"),
    "matplotlib": _module("matplotlib"),
    "lark": _module("lark"),
    "pillow": _module("PIL"),
    "chromium": lambda: "" if browser() else "no chromium is on PATH",
    "fork": _fork,
    "seccomp": _seccomp,
    "tiles": _tiles,
}


def missing(capability: str) -> str:
    """Return why a capability is missing here, or an empty string.

    An unknown name is an error: a misspelt need must not skip a test.
    """
    if capability not in CAPABILITIES:
        raise KeyError(f"{capability!r} is not one of {sorted(CAPABILITIES)}")
    return CAPABILITIES[capability]()


def is_demanded(capability: str) -> bool:
    """Tell whether the environment says that a capability must be here."""
    return capability in config().require


def require(*capabilities: str) -> None:
    """Skip the running test, or the file, where a capability is missing.

    Where WEFT_REQUIRE names it that is a failure.
    """
    for capability in capabilities:
        reason = missing(capability)
        if reason and is_demanded(capability):
            pytest.fail(f"WEFT_REQUIRE names {capability}, but {reason}", pytrace=False)
        if reason:
            pytest.skip(f"needs {capability}: {reason}", allow_module_level=True)


def module(name: str) -> ModuleType:
    """Return a module that a capability is named for, as `require` does: for whole test files."""
    require(name)
    return importlib.import_module(name)
