"""Which adapters of WebGPU there are, what they say, and what the errors of wgpu mean.

wgpu is imported when somebody asks for a device, never before. The device ``poor`` is the first
adapter with no more than the limits that every device of WebGPU has, as pages on phones find them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from weft.errors import EnumerationError, LibraryNotFoundError
from weft.imports import importing
from weft.runtimes.launches.naming import absence, device_called, distinct, first_word

__all__ = ["INSTALL", "LEAST", "POOR", "adapters", "describe", "limits", "probe", "tried",
           "wgpu"]  # fmt: skip

INSTALL: Final = "pip install weft[webgpu]"
POOR: Final = "poor"
_LAYER: Final = "NODEVICE_SELECT"  # what leaves it out
_NO_ADAPTER: Final = ("no adapter was found (drivers of Vulkan, Metal or Direct3D 12; on Debian: "
                      "apt-get install mesa-vulkan-drivers)")  # fmt: skip
_BACKENDS: Final = ("Vulkan", "Metal", "DX12")
_KINDS: Final = ("DiscreteGPU", "IntegratedGPU", "CPU", "Unknown")

_TURNS: Final = 1 << 20  # of a loop that tells whether drivers end long ones
_COUNT: Final = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn count() {
  var bits = 1u;
  var turns = 0u;
  for (var k = 0u; k < x[0]; k += 1u) {
    bits = (bits ^ (bits << 13u)) ^ (k >> 3u);
    turns += 1u;
  }
  x[1] = turns;
  x[2] = bits;
}
"""

# Facts of a device, by the limits that they are of, and what every device of WebGPU has.
LEAST: Final[Mapping[str, tuple[str, int]]] = {
    "max_buffer": ("max-buffer-size", 256 << 20),
    "max_binding": ("max-storage-buffer-binding-size", 128 << 20),
    "max_storage_buffers": ("max-storage-buffers-per-shader-stage", 8),
    "max_threads": ("max-compute-invocations-per-workgroup", 256),
    "shared_bytes": ("max-compute-workgroup-storage-size", 16 << 10),
    "max_groups": ("max-compute-workgroups-per-dimension", 65_535),
    "alignment": ("min-storage-buffer-offset-alignment", 256),
}


@cache
def wgpu() -> Any:
    """Return the module wgpu.

    Raises
    ------
    LibraryNotFoundError
        If it is not installed, or does not load.
    """
    try:
        with importing:
            import wgpu as module
            from wgpu.backends.wgpu_native import extras

            # Libraries of OpenGL write to the user's screen.
            with _without_layer():
                extras.set_instance_extras(backends=list(_BACKENDS))
    except Exception as error:
        raise LibraryNotFoundError("webgpu", found=f"{type(error).__name__}: {error}",
                                   expected="the package wgpu", hint=INSTALL) from error
    return module


def adapters() -> list[tuple[str, Any]]:
    """Return name and adapter of all devices that can be used, GPUs first, ``poor`` last.

    Raises
    ------
    LibraryNotFoundError
        If wgpu is not there.
    EnumerationError
        If it fails.
    """
    module = wgpu()
    try:
        found = list(module.gpu.enumerate_adapters_sync())
    except Exception as error:
        raise EnumerationError("webgpu", found=error, expected="a list of adapters") from error
    found.sort(key=lambda a: _rank(str(a.info["adapter_type"])))
    names = distinct((first_word(str(a.info["device"])) for a in found), [POOR])
    named = list(zip(names, found, strict=True))
    return named + [(POOR, adapter) for _, adapter in named[:1]]


@contextmanager
def _without_layer() -> Iterator[None]:
    """Leave out Mesa's layer that asks a display for the device, where there is no display.

    It would write to the user's screen that there is none.
    """
    leaves = not {_LAYER, "XDG_RUNTIME_DIR"} & os.environ.keys()
    if leaves:
        os.environ[_LAYER] = "1"
    try:
        yield
    finally:
        if leaves:
            del os.environ[_LAYER]


def _rank(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def limits(adapter: Any, poor: bool) -> dict[str, int]:
    """Return the limits that a device is asked for: what the adapter has, or the least of all."""
    found = {}
    for name, least in LEAST.values():
        has = int(adapter.limits[name])
        found[name] = least if poor else has
    return found


def describe(name: str, adapter: Any) -> dict[str, object]:
    """Return what is known of a device, as plain data: bytes, counts and yes or no."""
    info, asked = adapter.info, limits(adapter, name == POOR)
    is_cpu = info["adapter_type"] == "CPU"
    return {
        "name": str(info["device"]), "backend": str(info["backend_type"]),
        "driver": str(info["description"]), "kind": str(info["adapter_type"]), "is_cpu": is_cpu,
        "is_gpu": not is_cpu, "units": (os.cpu_count() or 1) if is_cpu else 1, "memory": 0,
        "poor": name == POOR, **{fact: asked[limit] for fact, (limit, _) in LEAST.items()},
    }  # fmt: skip


def max_turns(adapter: Any) -> int:
    """Return how many turns loops of a work-item may make in all, 0 for any number.

    Some drivers end a loop after so many, and say nothing; it is tried.
    """
    device = adapter.request_device_sync(label="weft probe")
    given = _TURNS.to_bytes(4, "little") + bytes(12)
    found = int.from_bytes(tried(device, _COUNT, "count", given)[4:8], "little")
    return found if found < _TURNS else 0


def tried(device: Any, text: str, entry: str, given: bytes) -> bytes:
    """Return what a kernel of one work-item makes of the bytes of its only array."""
    module = wgpu()
    usage, stage = module.BufferUsage, module.ShaderStage.COMPUTE
    block = device.create_buffer(size=len(given),
                                 usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
    device.queue.write_buffer(block, 0, given)
    layout = device.create_bind_group_layout(entries=[
        {"binding": 0, "visibility": stage, "buffer": {"type": "storage"}}])
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={"module": device.create_shader_module(code=text), "entry_point": entry})
    group = device.create_bind_group(layout=layout, entries=[
        {"binding": 0, "resource": {"buffer": block, "offset": 0, "size": len(given)}}])
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_bind_group(0, group)
    run.set_pipeline(pipeline)
    run.dispatch_workgroups(1)
    run.end()
    device.queue.submit([encoder.finish()])
    return bytes(device.queue.read_buffer(block))


def probe() -> str | list[dict[str, object]]:
    """Return the devices, or why there is none; a child process calls it.

    Each has a ``name``, a ``description`` for people, and ``facts``.
    """
    try:
        found = adapters()
    except LibraryNotFoundError as error:
        return absence(error, "wgpu", INSTALL)
    if not found:
        return _NO_ADAPTER
    answers: list[dict[str, object]] = []
    for name, adapter in found:
        facts = {**describe(name, adapter), "max_turns": max_turns(adapter)}
        words = f"{facts['name']}, {facts['backend']} {facts['driver']}"
        if name == POOR:
            words += ", with the least limits of WebGPU"
        answers.append({"name": name, "description": words, "facts": facts})
    return answers


def adapter_of(called: str) -> Any:
    """Return the adapter of what the probe has called so.

    Raises
    ------
    InitializationError
        If there is none in this process.
    """
    (adapter,) = device_called("webgpu", called, adapters())
    return adapter
