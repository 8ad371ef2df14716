"""The host CPU: its target as LLVM, the operating system and cpuid describe it.

The pair ``llvm`` is the host itself. The pair ``c``, whose kernels the C compiler of the system
makes, is a device with memory of its own (`weft.backends.cpu_c`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

from weft.backends.registry import Backend
from weft.background import Task
from weft.errors import LibraryNotFoundError, WeftError
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.op import MATRICES, Op
from weft.locks import in_child, mutex
from weft.target import ASSUMED, REPORTED, Target, native_operations

if TYPE_CHECKING:
    from weft.compilers.llvm import LLVMCompiler
    from weft.renderers.llvm.llvm import LLVMRenderer
    from weft.runtimes.cpu.runtime import CpuRuntime

__all__ = ["BACKEND", "LADDER", "host_target", "prepare", "probe", "renderer", "runtime",
           "target_from", "tiles_state"]

_lock = mutex()


def _load_anew() -> None:
    global _loads
    _loads = False  # the thread that loads is not in this child


in_child(_load_anew)

_runtime: CpuRuntime | None = None
_loads = False  # whether a thread loads LLVM, or did

_SYSFS: Final = "/sys/devices/system/cpu/cpu0/cache"
_ARCH: Final = {"AMD64": "x86_64", "arm64": "aarch64", "amd64": "x86_64"}

# feature, bytes of a vector register, number of them: the first that is present counts
LADDER: Final = {
    "x86_64": (("avx512f", 64, 32), ("avx", 32, 16), ("sse2", 16, 16)),
    "aarch64": (("neon", 16, 32),),
    "riscv64": (("v", 16, 32),),
}
# features whose instructions convert between float16 and float32
_F16: Final = ("f16c", "avx512f", "avx512fp16", "fullfp16", "neon", "zvfhmin")


# features with which, beside avx512f, processors have units as wide as their vectors
_WHOLE: Final = {"avx512fp16", "amx-tile", "avxvnni"}
# dot products of packed words, by the features any of which has the instruction
_DOTS: Final = (
    (Op.DOT2, {"avx512bf16"}), (Op.DOT4, {"avx512vnni", "avxvnni"}),
    (Op.MATRIX2, {"amx-bf16"}), (Op.MATRIX4, {"amx-int8"}), (Op.MATRIX4S, {"amx-int8"}),
)  # fmt: skip


def probe() -> str:
    """Return why the device is absent, or an empty string: the host is always there."""
    with importing:
        import importlib.util

    return "" if importlib.util.find_spec("llvmlite") else (
        "no package llvmlite (python -m pip install llvmlite)")


@lru_cache(maxsize=1)
def host_target() -> Target:
    """Return the target of this machine; the first call loads LLVM."""
    from weft.compilers.llvm import host_cpu
    from weft.config import config

    host = host_cpu()
    arch = host.triple.partition("-")[0]
    caches, cache_source = _caches()
    target = target_from(_ARCH.get(arch, arch), host.cpu,
                         tuple(sorted(host.features.split(","))), caches, cache_source, _cores(),
                         _memory())
    if tiles_state():
        target = target.without(MATRICES, dt.uint32)
    if tiles_state() or not config().split_float32:
        target = target.without((Op.MATRIX2,), dt.float32)
    return target


@lru_cache(maxsize=1)
def tiles_state() -> str:
    """Return why tile registers (AMX) are not used, an empty string if they are.

    A processor may have them and the process not, or a hypervisor may get them wrong. So the
    kernel is asked for them, and a trial must have gone well on this machine. Every key of the
    disk cache holds the target, so a process that loads compiled code has asked before.
    """
    from weft.compilers.llvm import host_cpu
    from weft.config import config

    host = host_cpu()
    if "+amx-tile" not in host.features.split(","):
        return "absent"
    with importing:
        from weft.runtimes.cpu import amx

    if not config().amx:
        return "switched off by WEFT_AMX"
    reason = amx.request()
    return reason or amx.verdict()


def target_from(
    arch: str, cpu: str, features: tuple[str, ...], caches: dict[str, int],
    cache_source: str = REPORTED, cores: int = 1, memory: int = 0,
) -> Target:  # fmt: skip
    """Return the target of a described CPU.

    Parameters
    ----------
    arch, cpu, features
        Instruction set, LLVM's name of the processor, and LLVM features with their sign.
    caches
        Bytes by field of `Target`: line_bytes, l1_bytes, l2_bytes, l3_bytes.
    """
    present = {f[1:] for f in features if f.startswith("+")}
    width, registers = next(
        ((w, n) for f, w, n in LADDER.get(arch, ()) if f in present), (16, 16)
    )
    packs = [d for d in dt.ALL if d.kind in "uif" and d.itemsize in (4, 8)
             and "avx512f" in present]
    dots = [op for op, names in _DOTS if present & names]
    native = frozenset({dt.float16.text}) if present & set(_F16) else frozenset()
    sources = [("vector_bytes", REPORTED), ("vector_registers", REPORTED), ("cores", REPORTED)]
    sources += [(name, cache_source) for name in caches]
    sources.append(("memory_bytes", REPORTED if memory else ASSUMED))
    operations = native_operations(dots=dots, scales="avx512vl" in present, packs=packs,
                                   numbers={"avx512dq", "avx512vl"} <= present,
                                   tables="avx512vl" in present)
    if Op.MATRIX2 in dots:  # of float32, as sums of their parts
        operations |= {(Op.MATRIX2.name, dt.float32.text)}
    return Target("cpu", arch, cpu, features, width, registers, cores=cores, memory_bytes=memory,
                  whole_vectors=width > 32 and bool(present & _WHOLE), operations=operations,
                  native_conversions=native, ieee_extremes=arch == "aarch64",
                  sources=tuple(sources)).replace(**caches)


def renderer(target: Target | None = None) -> LLVMRenderer:
    """Return the LLVM renderer for a target, by default this machine."""
    with importing:
        from weft.renderers.llvm.llvm import LLVMRenderer

    return LLVMRenderer(target or host_target())


def runtime() -> CpuRuntime:
    """Return the one runtime of the host: its pool and its threads are shared by all callers."""
    if _runtime is None:
        _import()
        return _started()
    return _runtime


def prepare() -> None:
    """Have LLVM loaded, and the code of the thread pool made, while the caller goes on.

    Who is about to compile or to load for the first time calls this, and then imports and runs
    what comes before its own code: LLVM needs no Python.
    """
    global _loads
    if _loads or _runtime is not None:
        return
    with contextlib.suppress(LibraryNotFoundError):  # whoever needs it finds out
        _import()
        from weft.store import cache

        cache().folder()  # what is wrong with it is told to the caller, not to a thread
        with _lock:
            begins, _loads = not _loads, True
        if begins:
            _begin_trial()
            Task(_load).start()  # without a thread, who needs it does it


def _begin_trial() -> None:
    """Have tile registers tried, if that is still to be done, while LLVM is loaded."""
    from weft.config import config

    if config().amx and sys.platform == "linux":
        with importing:
            from weft.runtimes.cpu import amx

        amx.begin()


def _import() -> None:
    """Import what a runtime needs, so that a thread can make it without an import."""
    with importing:
        from weft.compilers import llvm  # noqa: F401
        from weft.compilers.llvm_library import package
        from weft.runtimes.cpu import runtime as cpu  # noqa: F401
        from weft.store import cache  # noqa: F401

        package()


def _load() -> None:
    from weft.compilers import llvm

    with contextlib.suppress(WeftError, OSError, RuntimeError):
        compiler = llvm.compiler()
        if _cores() > 1:
            compiler.warm_up()  # no more than it saves where it keeps others waiting
        _started().prepare(here=True)


def _started() -> CpuRuntime:
    global _runtime
    from weft.compilers import llvm
    from weft.runtimes.cpu.runtime import CpuRuntime
    from weft.store import cache

    compiler, session = llvm.compiler(), llvm.session()  # which take a lock of their own
    with _lock:
        if _runtime is None:
            _runtime = CpuRuntime(compiler, session, cache())
    return _runtime


def _cores() -> int:
    """Return the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    """Return the bytes of physical memory, 0 if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _caches() -> tuple[dict[str, int], str]:
    """Return cache sizes and who says so: sysfs on Linux, sysctl on macOS, else assumptions."""
    found = _caches_of_sysfs(_SYSFS)
    if not found and platform.system() == "Darwin":
        found = _caches_of_sysctl()
    if found:
        return {"l2_bytes": 256 << 10, "l3_bytes": 0, **found}, REPORTED
    sizes = {"line_bytes": 64, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 8 << 20}
    return sizes, ASSUMED


def _caches_of_sysfs(folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        entries = sorted(name for name in os.listdir(folder) if name.startswith("index"))
    except OSError:
        return found
    for name in entries:
        fields = ("type", "level", "size", "coherency_line_size")
        kind, level, size, line = (_read(f"{folder}/{name}/{field}") for field in fields)
        if kind == "Instruction" or level not in ("1", "2", "3"):
            continue
        found[f"l{level}_bytes"] = _bytes(size)
        if line.isdigit():
            found["line_bytes"] = int(line)
    return {field: value for field, value in found.items() if value}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    digits = text[:-1] if unit else text
    return int(digits) * (unit or 1) if digits.isdigit() else 0


def _caches_of_sysctl() -> dict[str, int]:
    import ctypes
    import ctypes.util

    library = ctypes.CDLL(ctypes.util.find_library("c"))
    found: dict[str, int] = {}
    names = {"line_bytes": "hw.cachelinesize", "l1_bytes": "hw.l1dcachesize",
             "l2_bytes": "hw.l2cachesize", "l3_bytes": "hw.l3cachesize"}  # fmt: skip
    for field, name in names.items():
        value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
        failed = library.sysctlbyname(
            name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0
        )
        if not failed and value.value > 0:
            found[field] = value.value
    return found


def _compiler() -> LLVMCompiler:
    from weft.compilers import llvm

    return llvm.compiler()


def _of_c() -> ModuleType:
    """Return the module of the pair ``c``, which most processes never need."""
    with importing:
        from weft.backends import cpu_c

    return cpu_c


def _is_c(pair: str) -> bool:
    return pair == "c"


BACKEND: Final = Backend(
    "cpu", ("llvm", "c"), probe, lambda: 1,
    lambda ordinal, pair: _of_c().target(host_target()) if _is_c(pair) else host_target(),
    lambda target, pair: _of_c().renderer(target) if _is_c(pair) else renderer(target),
    lambda target, pair: _of_c().compiler(target) if _is_c(pair) else _compiler(),
    lambda ordinal, pair: _of_c().runtime(runtime()) if _is_c(pair) else runtime(),
    is_native=True, prepare=prepare, is_tunable=True,
    missing=lambda pair: _of_c().missing(_of_c().target(host_target())),
)  # fmt: skip
