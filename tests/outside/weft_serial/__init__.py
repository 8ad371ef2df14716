"""A device of another package: kernels as C of one thread, on memory that only it looks into.

What a backend takes, in one file: a target, a renderer, a compiler, a runtime, and the `Backend`
that the entry point ``weft.backends`` of the package names.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile

from weft.backends.registry import Backend
from weft.errors import CompileError, CopyError, HandleError, LaunchError
from weft.renderers.cstyle.base import CStyleRenderer, Writer
from weft.renderers.cstyle.split import split_vectors
from weft.runtimes.base import Event, Failure, consume
from weft.runtimes.load import InFlight
from weft.runtimes.memory.device_pool import DevicePool, part
from weft.target import Target, native_operations

# No vectors: one lane of any type fills a register.
TARGET = Target("serial", "c", vector_bytes=1, operations=native_operations())

# ---- the language ------------------------------------------------------------------------------

PRELUDE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef float f32; typedef double f64;
typedef u16 f16, bf16; typedef u8 f8e4m3, f8e5m2;
"""


class SerialWriter(Writer):
    """Writes ``int NAME(arrays, numbers, i64 *status)``."""

    WRAPS = True  # by -fwrapv

    def prelude(self):
        return PRELUDE

    def head(self):
        arrays = [self.parameter(m) for m in self.kernel.params]
        numbers = [f"i64 {name}" for name in self.sizes.values()]
        return f"int {self.name}({', '.join([*arrays, *numbers, 'i64 *status'])})"

    def source(self):
        text = super().source()
        return text[: text.rindex("}")] + "  return 0;\n}\n"

    def function_name(self, op, d):
        return self.FLOATS[op] + ("f" if d.bits == 32 else "")

    def check(self, inst):
        value, bound = (0 if v is None else self.arg(v) for v in (inst.value, inst.bound))
        self.open(f"if (!({self.arg(inst.condition)})) {{")
        self.emit(f"status[0] = {value}; status[1] = {bound};")
        self.emit(f"return {inst.message + 1};")
        self.close()


class SerialRenderer(CStyleRenderer):
    """Writes kernels for the device."""

    WRITER = SerialWriter

    def prepared(self, kernel):
        return split_vectors(kernel, TARGET.vector_bytes)


# ---- the compiler ------------------------------------------------------------------------------


class Compiler:
    """Makes a shared library by ``cc``."""

    flags = ("-shared", "-fPIC", "-O1", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing")

    def __init__(self):
        path = os.path.realpath(shutil.which("cc"))
        state = os.stat(path)
        self.cache_key = f"serial {path} {state.st_size} {state.st_mtime_ns} {self.flags}"

    def compile(self, source, pipeline="short"):
        with tempfile.TemporaryDirectory() as folder:
            text, made = os.path.join(folder, "k.c"), os.path.join(folder, "k.so")
            with open(text, "w") as file:
                file.write(source)
            done = subprocess.run(["cc", *self.flags, text, "-o", made, "-lm"],
                                  capture_output=True, text=True, check=False, timeout=120)
            if done.returncode:
                raise CompileError("cc", found=done.stderr.strip() or done.returncode)
            with open(made, "rb") as file:
                return file.read()


# ---- the runtime -------------------------------------------------------------------------------


class Memory:
    """Raw memory: handles are arrays of bytes that nobody else looks into."""

    def take(self, nbytes):
        return (ctypes.c_char * nbytes)()

    def give_back(self, handle, nbytes):
        del handle, nbytes

    def write(self, handle, offset, source):
        memoryview(handle).cast("B")[offset : offset + source.nbytes] = source

    def read(self, handle, offset, target):
        target[:] = memoryview(handle).cast("B")[offset : offset + target.nbytes]


class Program:
    """A kernel that was loaded."""

    def __init__(self, code):
        self.counts = code.nbuffers, len(code.variables)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(code.image)
            file.flush()
            self.library = ctypes.CDLL(file.name)
        self.call = self.library[code.name]
        self.call.argtypes = ([ctypes.c_void_p] * code.nbuffers
                              + [ctypes.c_int64] * len(code.variables) + [ctypes.c_void_p])


class Launched(Event):
    """A launch that is over, and what stopped it."""

    def __init__(self, device, failure):
        super().__init__(device)
        self.found = failure

    @property
    def failure(self):
        return self.found

    def share(self):
        return Launched(self.device, self.found)


class Queue:
    """Work that is done when a call returns."""

    def __init__(self, device):
        self.device, self.in_flight = device, InFlight()

    def copy(self, destination, source, nbytes=None, wait=()):
        to, of = part(destination), part(source)
        count = of.buffer.nbytes - of.offset if nbytes is None else nbytes
        if count > min(to.buffer.nbytes - to.offset, of.buffer.nbytes - of.offset):
            raise CopyError("copy", found=f"{count} bytes", expected="bytes that fit")
        consume(wait, self.device)
        ctypes.memmove(self.address(to), self.address(of), count)
        return Event(self.device)

    def fill(self, target, nbytes, byte=0, wait=()):
        consume(wait, self.device)
        ctypes.memset(self.address(part(target)), byte, nbytes)
        return Event(self.device)

    def launch(self, program, buffers, variables=(), wait=(), groups=(), threads=()):
        if (len(buffers), len(variables)) != program.counts:
            raise LaunchError("launch", found="another number of arguments")
        addresses = [self.address(part(b)) for b in buffers]
        status = (ctypes.c_int64 * 2)()
        with self.in_flight:
            consume(wait, self.device)
            code = program.call(*addresses, *variables, ctypes.addressof(status))
        return Launched(self.device, Failure(code, *status)) if code else Event(self.device)

    def synchronize(self):
        pass

    def address(self, view):
        if view.buffer.device != self.device:
            raise HandleError("launch", found=f"memory of {view.buffer.device}",
                              expected=f"memory of {self.device}")
        return ctypes.addressof(view.buffer.handle) + view.offset


class Device:
    """The device: a pool, a queue, and programs."""

    def __init__(self, name):
        self.name, self.info = name, {"name": "C of one thread"}
        self.pool = DevicePool(name, Memory(), 1 << 30)
        self.queue = Queue(name)

    def free_compute(self):
        return self.queue.in_flight.free_share()

    def load(self, code):
        return Program(code)


DEVICES = {}


def opened(ordinal, pair):
    return DEVICES.setdefault(ordinal, Device("serial" if not ordinal else f"serial:{ordinal}"))


BACKEND = Backend(
    "serial", ("cc",), lambda: "" if shutil.which("cc") else "no cc is on PATH", lambda: 1,
    lambda ordinal, pair: TARGET, lambda target, pair: SerialRenderer(target),
    lambda target, pair: Compiler(), opened, description="C of one thread, by cc",
)  # fmt: skip
