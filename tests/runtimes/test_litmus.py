"""Litmus programs on devices: what threads of a block and of a device read, thousands of times.

Threads meet before each turn, but for a bounded time, because none has to run beside the others.
What they read has to be something that the interpreter allows, in each of these forms: atomic
operations with the weakest orders that forbid it, relaxed ones with fences between them, and plain
accesses with fences between them, as programs for CUDA have them.
"""

import linecache

import numpy as np
import pytest

import weft
from litmus import PROGRAMS, READ, allowed, numbered, reads
from weft import gpu
from weft.errors import UnsupportedError

DEVICES = {"cpu": "cpu", "cpu/c": "cpu/c", "opencl:pocl": "opencl:pocl",
           "opencl:pocl/threads": "opencl:pocl",
           "vulkan:lavapipe": "vulkan:lavapipe"}  # fmt: skip
TURNS, LAUNCHES = 400, 60
BLOCKS = 256  # so that threads which are far apart are those of several work-groups
WAITS = 20_000, 100  # turns of waiting before the first turn, and before each later one
FORMS = ("orders", "fences", "plain")


def access(program, form, place, word, value):
    """Return the statement of an access."""
    order = program.read if value is READ else program.write
    order = order if form == "orders" else "relaxed"
    if form == "plain":
        made = f"{word}[k]" if value is READ else f"{word}[k] = {value}"
    else:
        kind, given = ("add", 0) if value is READ else ("exch", value)
        made = f"gpu.atomic.{kind}({word}, k, {given}, SCOPE, '{order}')"
    return made if value is not READ else f"out[{place}, k] = {made}"


def kernel_of(name, form, scope):
    """Return a kernel that runs a program `TURNS` times, on words of their own each."""
    program = PROGRAMS[name]
    count = len(program.threads)
    who = "threadIdx" if scope == "block" else "blockIdx"
    apart = 1 if scope == "block" else BLOCKS // count
    lines = ["def litmus(x, y, out, meet):", f"    t = gpu.{who}.x // {apart}",
             f"    if gpu.{who}.x % {apart} == 0 and t < {count}:",
             f"        for k in range({TURNS}):"]  # fmt: skip
    if scope == "device":
        lines += ["            gpu.atomic.add(meet, 0, 1)",
                  f"            for _ in range({WAITS[0]} if k == 0 else {WAITS[1]}):",
                  f"                if gpu.atomic.add(meet, 0, 0) >= {count} * (k + 1):",
                  "                    break"]  # fmt: skip
    for t, thread in enumerate(numbered(program)):
        lines.append(f"            if t == {t}:")
        body = [access(program, form, *one) for one in thread]
        if form != "orders":
            body = [line for one in body for line in (one, f"gpu.{FENCES[scope]}()")][:-1]
        lines += [f"                {line}" for line in body]
    text = "\n".join(lines).replace("SCOPE", f"'{scope}'") + "\n"
    file = f"<litmus {name} {form} {scope}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"gpu": gpu}
    exec(compile(text, file, "exec"), names)
    return weft.kernel(names["litmus"])


FENCES = {"block": "threadfence_block", "device": "threadfence"}


@pytest.mark.parametrize("device", [pytest.param(name, marks=pytest.mark.requires(needed))
                                    for name, needed in DEVICES.items()])  # fmt: skip
@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_read_what_the_interpreter_allows(name, device):
    program, fine = PROGRAMS[name], allowed(PROGRAMS[name])
    for scope in FENCES:
        for form in FORMS:
            kernel, seen = kernel_of(name, form, scope), set()
            for _ in range(LAUNCHES):
                x, y, out, meet = (weft.tensor(np.zeros(shape, np.int32), device=device)
                                   for shape in (TURNS, TURNS, (reads(program), TURNS), 1))
                kernel[(1, 32) if scope == "block" else (BLOCKS, 1)](x, y, out, meet)
                seen |= set(map(tuple, out.numpy().T.tolist()))
            assert seen <= fine, (scope, form, seen - fine)


@pytest.mark.requires("webgpu")
@pytest.mark.parametrize("form", ["orders", "fences"])
def test_orders_that_a_device_lacks_are_refused_with_the_line(form):
    kernel = kernel_of("message passing", form, "device")
    arrays = [weft.tensor(np.zeros(shape, np.int32), device="webgpu")
              for shape in (TURNS, TURNS, (2, TURNS), 1)]  # fmt: skip
    told = {"orders": ("atomic exch of order release and scope device", 'exch(x, k, 1, '),
            "fences": ("a fence of order seq_cst and scope device", "gpu.threadfence()")}[form]
    with pytest.raises(UnsupportedError, match=rf"on webgpu.*: found {told[0]}") as caught:
        kernel[BLOCKS, 1](*arrays)
    assert told[1] in str(caught.value)
