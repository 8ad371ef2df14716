"""Two devices that are no CPU as far as Weft can see, and compute as one: for tests.

``far`` has memory of its own, which no address leads to. ``late`` has that, too, two devices of one
architecture, and queues whose work happens on another thread, some time after it was handed over:
what does not wait for an event reads what was there before.
"""

import random
import threading
import time
from queue import SimpleQueue

from weft.backends import cpu, registry
from weft.backends.registry import Backend
from weft.errors import CopyError, HandleError, LaunchError
from weft.runtimes.base import Event, Failure, consume, inside
from weft.runtimes.load import InFlight
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.device_pool import DevicePool, part

LIMIT = 4 << 30


class Handle:
    """A block of the memory of one device; what it hides, only the device's own code looks at."""

    def __init__(self, device, address):
        self.device, self.hidden = device, address


class Memory:
    """Raw memory, which is lent out with garbage in it."""

    def __init__(self, device):
        self.device, self.taken = device, 0

    def take(self, nbytes):
        address = host_memory.acquire(nbytes)
        if not address:
            return None
        self.taken += nbytes
        host_memory.as_bytes(self.view(address, nbytes))[:] = b"\xa5" * nbytes
        return Handle(self.device, address)

    def give_back(self, handle, nbytes):
        self.taken -= nbytes
        host_memory.give_back(handle.hidden, nbytes)

    def write(self, handle, offset, source):
        self.view(handle.hidden + offset, source.nbytes)[:] = source

    def read(self, handle, offset, target):
        target[:] = self.view(handle.hidden + offset, target.nbytes)

    @staticmethod
    def view(address, nbytes):
        return memoryview((host_memory.ctypes.c_char * nbytes).from_address(address)).cast("B")


class Program:
    """A kernel that was loaded."""

    def __init__(self, device, code):
        self.device, self.name = device, code.name
        self.counts = code.nbuffers, len(code.variables)
        self.native = cpu.runtime().load(code)


class Queue:
    """Work that is done when a call returns."""

    def __init__(self, device):
        self.device, self.in_flight = device, InFlight()

    def copy(self, destination, source, nbytes=None, wait=()):
        to, of = part(destination), part(source)
        a, b = self.address(to), self.address(of)
        count = of.buffer.nbytes - of.offset if nbytes is None else nbytes
        self.fits(to, count)
        self.fits(of, count)
        return self.do(wait, lambda: host_memory.ctypes.memmove(a, b, count))

    def fill(self, target, nbytes, byte=0, wait=()):
        address = self.address(part(target))
        self.fits(part(target), nbytes)
        return self.do(wait, lambda: host_memory.ctypes.memset(address, byte, nbytes))

    def launch(self, program, buffers, variables=(), wait=(), groups=(), threads=()):
        if not isinstance(program, Program) or program.device.family != self.device.family:
            raise HandleError("launch", found=repr(program), expected="a program of this device")
        if (len(buffers), len(variables)) != program.counts:
            raise LaunchError(program.name, found="another number of arguments")
        addresses = [self.address(part(b)) for b in buffers]
        call = program.native.plan.call
        return self.do(wait, lambda: call(*addresses, 0, *variables))

    def address(self, view):
        handle = getattr(view.buffer, "handle", None)
        if getattr(handle, "device", None) is not self.device:
            raise HandleError("launch", found="memory of another device",
                              expected=f"memory of {self.device.name}")
        return handle.hidden + inside(view).offset

    def fits(self, view, nbytes):
        if not 0 <= nbytes <= view.buffer.nbytes - view.offset:
            raise CopyError("copy", found=f"{nbytes} bytes", expected="bytes that are there")

    def do(self, wait, work):
        with self.in_flight:
            consume(wait, self.device.name)
            return Done(self.device.name, failure_of(work()))

    def synchronize(self):
        pass


def failure_of(found):
    return Failure(found[0], found[3], found[4]) if isinstance(found, tuple) else None


class Done(Event):
    """Something that has happened, or will: `over` is set then."""

    def __init__(self, device, failure=None, over=None):
        super().__init__(device)
        self.state = [failure]
        self.over = over

    @property
    def done(self):
        return self.over is None or self.over.is_set()

    def wait(self):
        if self.over is not None:
            self.over.wait()

    tells = False  # when work was done: profiles have to watch its events otherwise

    @property
    def failure(self):
        return self.state[0]

    @property
    def interval(self):
        return tuple(self.state[1:]) if self.tells and len(self.state) == 3 else None

    def share(self):
        made = Done(self.device, None, self.over)
        made.state = self.state
        return made


class LateQueue(Queue):
    """Work that a thread does some time later, in order; it copies between devices of its kind."""

    before = None  # what is called as any work begins, with the queue

    def __init__(self, device):
        super().__init__(device)
        self.tasks = SimpleQueue()
        self.last = None
        threading.Thread(target=self.run, daemon=True).start()

    def copy_across(self, destination, source, nbytes, wait=()):
        places = part(destination), part(source)
        if not all(isinstance(getattr(p.buffer, "pool", None), DevicePool)
                   and isinstance(p.buffer.handle, Handle) for p in places):
            return None
        a, b = (p.buffer.handle.hidden + p.offset for p in places)
        return self.do(wait, lambda: host_memory.ctypes.memmove(a, b, nbytes))

    def do(self, wait, work):
        events = list(wait)
        for event in events:
            event.consume(self.device.name)
        self.last = Done(self.device.name, None, threading.Event())
        self.in_flight.__enter__()
        self.tasks.put((events, work, self.last))
        return self.last

    def run(self):
        pick = random.Random(1)
        while True:
            events, work, done = self.tasks.get()
            for event in events:
                event.wait()
            time.sleep(pick.choice([0, 0, 0, 0.0005]))
            begun = time.monotonic_ns()
            if LateQueue.before is not None:
                LateQueue.before(self)
            done.state[0] = failure_of(work())
            done.state += [begun, time.monotonic_ns()]
            self.in_flight.__exit__(None, None, None)
            done.over.set()

    def synchronize(self):
        if self.last is not None:
            self.last.wait()


class Device:
    """A device with its pool and queues."""

    def __init__(self, family, ordinal, kind, limit=LIMIT):
        self.family = family
        self.name = f"{family}:{ordinal}" if ordinal else family
        self.info = {"name": family}
        self.memory = Memory(self)
        self.pool = DevicePool(self.name, self.memory, limit)
        self.queue, self.copy_queue = kind(self), kind(self)

    def free_compute(self):
        return self.queue.in_flight.free_share() * self.copy_queue.in_flight.free_share()

    def load(self, code):
        return Program(self, code)


DEVICES = {}


def opened(family, kind):
    def open_(ordinal, pair):
        key = family, ordinal
        if key not in DEVICES:
            DEVICES[key] = Device(family, ordinal, kind)
        return DEVICES[key]

    return open_


def register():
    """Register both families, as a package would by its entry point; ``auto`` leaves them out."""
    for family, count, kind in (("far", 1, Queue), ("late", 2, LateQueue)):
        registry.register(Backend(
            family, ("llvm",), lambda: "", lambda count=count: count,
            lambda ordinal, pair: cpu.host_target().replace(name="far"),
            lambda target, pair: cpu.renderer(target), cpu.BACKEND.compiler,
            opened(family, kind), is_asked_for=True))  # fmt: skip
