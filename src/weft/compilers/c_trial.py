"""What a C compiler has to show before it is trusted: a version, and an object that is one.

A program called clang may be anything: a stub, a wrapper of something else, a compiler for another
machine. So it has to say its version, and to translate a small file with the very arguments that
kernels are translated with; the object has to be one of this machine, and to hold what the
compiler's own macros say of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.compilers.c_process import Finished, environment, output, private_folder, run
from weft.errors import CompileError
from weft.store import DiskCache, fingerprint

__all__ = ["Trial", "check_object", "identity", "ran", "try_compiler"]

_VERSION_SECONDS: Final = 10.0
_TRIAL_SECONDS: Final = 30.0
_LEAST: Final = {"clang": (11, 0), "gcc": (9, 1)}  # the first versions with all that is needed
_MOST: Final = 4 << 20  # bytes of the trial's object
_KIND: Final = "compiler"

# Vectors of every kind that kernels use; the string says who compiled it, for what.
_SOURCE: Final = """\
#define TEXT(x) #x
#define WORD(x) TEXT(x)
typedef float f32x4 __attribute__((vector_size(16)));
typedef int i32x4 __attribute__((vector_size(16)));
typedef f32x4 f32x4u __attribute__((aligned(4), may_alias));
#if defined(__clang__)
#define WHO "clang " WORD(__clang_major__) "." WORD(__clang_minor__)
#elif defined(__GNUC__)
#define WHO "gcc " WORD(__GNUC__) "." WORD(__GNUC_MINOR__)
#else
#define WHO "another 0.0"
#endif
__attribute__((visibility("default"), used))
const char weft_trial[] = "weft trial: " WHO " " WORD(__SIZEOF_POINTER__) " bytes;";
__attribute__((visibility("default"))) void weft_tried(float *restrict p, const int *q) {
  const i32x4 mask = *(const f32x4u *)p < 0.5f;
  const f32x4 x = __builtin_convertvector(mask, f32x4);
  *(f32x4u *)p = x * x - 2.0f;
  if (__atomic_load_n(q, __ATOMIC_ACQUIRE)) p[0] = __builtin_fabsf(x[1]);
}
"""
_SAID: Final = re.compile(rb"weft trial: (\w+) (\d+)\.(\d+) (\d+) bytes;")


class Trial(NamedTuple):
    """What a compiler turned out to be.

    Attributes
    ----------
    family : str
        ``clang`` or ``gcc``, by its own macros.
    version : tuple of int
        Major and minor.
    """

    family: str
    version: tuple[int, int]


def ran(finished: Finished, seconds: float) -> str:
    """Return why a run was no success, an empty string if it was one."""
    if finished.code is None:
        return f"it did not end within {seconds:g} s"
    said = " ".join((finished.err.strip() or finished.out.strip()).split())
    if finished.code:
        how = f"signal {-finished.code}" if finished.code < 0 else f"exit status {finished.code}"
        return f"{how}{f': {said[:400]}' if said else ''}"
    return ""


def identity(path: str) -> str:
    """Return what changes when the file of a program is replaced.

    Raises
    ------
    OSError
        If it is not there.
    """
    real = os.path.realpath(path)
    status = os.stat(real)
    return f"{real} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def version_text(path: str) -> str:
    """Return what a compiler says of its version.

    Raises
    ------
    CompileError
        If it says nothing of the kind.
    """
    with private_folder() as folder:
        done = run([path, "--version"], folder, _VERSION_SECONDS)
    reason = ran(done, _VERSION_SECONDS)
    text = done.out.strip()
    if not reason and not re.search(r"\d+\.\d+", text):
        reason = f"it names no version: {text[:100]!r}" if text else "it says nothing"
    if reason:
        raise CompileError(f"{path} --version", found=reason, expected="a version")
    return text


def try_compiler(path: str, arguments: Sequence[str], arch: str, known: str,
                 cache: DiskCache | None = None) -> Trial:  # fmt: skip
    """Compile a small file and return what the compiler turned out to be.

    Parameters
    ----------
    path : str
        The program.
    arguments : sequence of str
        Those that kernels are compiled with.
    arch : str
        The machine that objects have to be for.
    known : str
        Identity and version of the program, by which `cache` remembers a good trial.
    cache : DiskCache, optional
        Where that is.

    Raises
    ------
    CompileError
        If it is no compiler that can be used, with the reason.
    """
    key = fingerprint(_KIND, known, _SOURCE, arch, *arguments)
    found = _remembered(cache.get(_KIND, key)) if cache is not None else None
    if found is not None:
        return found
    with private_folder() as folder:
        source, made = os.path.join(folder, "trial.c"), os.path.join(folder, "trial.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write(_SOURCE)
        command = [path, *arguments, "-O1", "-x", "c", "-c", source, "-o", made]
        done = run(command, folder, _TRIAL_SECONDS, environment(folder))
        reason = ran(done, _TRIAL_SECONDS)
        data = reason or output(made, _MOST)
    trial = _judged(data, arch)
    if isinstance(trial, str):
        raise CompileError(f"try {path}", found=trial, expected="a C compiler for this machine")
    if cache is not None:
        cache.put(_KIND, key, json.dumps(trial).encode())
    return trial


def _judged(data: bytes | str, arch: str) -> Trial | str:
    """Return what an object shows, or why it is none."""
    if isinstance(data, str):
        return data
    wrong = check_object(data, arch)
    if wrong:
        return wrong
    said = _SAID.search(data)
    if said is None:
        return "its object does not hold what was compiled"
    family, version = said[1].decode(), (int(said[2]), int(said[3]))
    if family not in _LEAST:
        return "it is neither gcc nor clang"
    if version < _LEAST[family]:
        least = ".".join(map(str, _LEAST[family]))
        return f"{family} {version[0]}.{version[1]}, and {least} is the first that serves"
    return Trial(family, version)


def _remembered(data: bytes | None) -> Trial | None:
    try:
        family, (major, minor) = json.loads(data or b"")
        return Trial(str(family), (int(major), int(minor))) if family in _LEAST else None
    except (ValueError, TypeError, RecursionError):
        return None


# Numbers of machines in headers of ELF and of Mach-O.
_ELF: Final = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
_MACH: Final = {"x86_64": 0x01000007, "aarch64": 0x0100000C}


def check_object(data: bytes, arch: str) -> str:
    """Return what is wrong with an object file for a machine, an empty string if nothing is."""
    if data[:4] == b"\x7fELF" and len(data) >= 64:
        if data[4:6] != b"\x02\x01":
            return "an object of another size of words, or order of bytes"
        machine = int.from_bytes(data[18:20], "little")
        known = _ELF.get(arch)
    elif data[:4] == b"\xcf\xfa\xed\xfe" and len(data) >= 32:
        machine, known = int.from_bytes(data[4:8], "little"), _MACH.get(arch)
    elif data[:2] == b"\x64\x86" and len(data) >= 20:  # COFF has no mark but its machine
        machine, known = 0x8664, 0x8664 if arch == "x86_64" else 0
    else:
        return f"what it wrote is no object file ({len(data)} bytes)"
    if known is not None and machine != known:
        return f"an object for another machine (number {machine}) than {arch}"
    return ""
