"""Kernels at kernel level for the devices of drivers, and arrays in their memory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from weft.driver.context import context
from weft.ir.text.text_parse_linear import parse_linear
from weft.runtimes.base import Image
from weft.runtimes.vulkan.device import VulkanDevice

# One buffer of int32 and two variables; each iteration adds the second to an element.
ADD = """linear add kind=custom
param x: i32[4096]
variable @n[0..4096]
variable @k[-2147483648..2147483647]
{
  %0 = variable 0 @n[0..4096]
  %1 = variable 1 @k[-2147483648..2147483647]
  %2: i32 = cast %1
  for %i.3 in %0 parallel {
    %4: i32 = load x[%i.3]
    %5: i32 = add %4, %2
    store x[%i.3] = %5
  }
}
"""
# Fails at an element that is not below a bound.
CHECK = """linear check kind=custom
param x: i32[4096]
variable @n[0..4096]
variable @bound[0..4096]
message "too large" "x[i] < bound" 3 0
{
  %0 = variable 0 @n[0..4096]
  %1 = variable 1 @bound[0..4096]
  for %i.2 in %0 parallel {
    %3: i32 = load x[%i.2]
    %4 = cast %3
    %5: bool = lt %4, %1
    assert %5 0 value %4 bound %1
  }
}
"""
# Goes on for minutes if many groups do it; drivers may end the loops of an item after 65,535 turns.
SPIN = """linear spin kind=custom
param x: i32[8]
{
  %0 = const 1099511627776
  %1 = const 60000
  %2 = const 0
  %3: i32 = const 1
  for %a.4 in %0 parallel {
    for %b.5 in %1 serial {
      %6: i32 = load x[%2]
      %7: i32 = add %6, %3
      store x[%2] = %7
    }
  }
}
"""
# Never ends: compilers of C would see the end of the other.
SPIN_IN_C = """// weft {"entries": [{"name": "spin", "groups": 1}], "shared": 0, "own": 0, \
"fails": false}
__kernel void spin(__global uchar *a, long oa, __global int *status, __global uchar *scratch) {
    volatile __global long *x = (volatile __global long *)(a + oa);
    for (long i = 0; i < (1L << 50); ++i) x[0] = x[0] + 1;
}
"""
# Two entries: squares into shared scratch memory, through private memory, and their sum.
SUM = """linear total kind=custom
param x: i32[4096]
param y: i32[64]
variable @n[0..4096]
{
  %0 = variable 0 @n[0..4096]
  %1 = const 0
  storage parts: i32[4096] local size 4096
  for %i.2 in %0 parallel {
    storage own: i32[32768] local size 32768
    %3: i32 = load x[%i.2]
    %4 = const 32767
    store own[%4] = %3
    %5: i32 = load own[%4]
    %6: i32 = mul %5, %5
    store parts[%i.2] = %6
  }
  %7: i32 = const 0
  store y[%1] = %7
  for %i.8 in %0 serial {
    %9: i32 = load parts[%i.8]
    %10: i32 = load y[%1]
    %11: i32 = add %9, %10
    store y[%1] = %11
  }
}
"""
_START = """
import os, signal, sys, threading, time
import numpy as np
sys.path.insert(0, {tests!r})
import driver_images as images
from weft.errors import SyncError, WeftError
device = images.opened({name!r})
held = images.put(device, images.numbers(8))
program = device.load(images.add(device))
device.queue.launch(program, [held], [8, 1]).wait()
"""
_staged = {}


def opened(name):
    """Return a device by its name; ``NAME staged`` is one of Vulkan that copies by stages."""
    name, _, staged = name.partition(" ")
    if not staged:
        return context(name).runtime
    if name not in _staged:
        _staged[name] = VulkanDevice(name, name.partition(":")[2], staged=True)
    return _staged[name]


def image(device, text):
    """Return the image of a kernel for a device."""
    linear, found = parse_linear(text), context(device.name)
    source = found.renderer().render(linear)
    return Image(linear.name, found.compiler.compile(source.text),
                 re.findall(r"^variable @(\w+)", text, re.M), len(linear.params))


def add(device):
    return image(device, ADD)


def check(device):
    return image(device, CHECK)


def total(device):
    return image(device, SUM)


def spin(device):
    """Return a program that never ends, as far as a test is concerned."""
    if device.name.startswith("opencl"):
        return device.load(Image("spin", SPIN_IN_C.encode(), (), 1))
    program = device.load(image(device, SPIN))
    program.launches = tuple([(pipeline, 65_535) for pipeline, _ in program.launches])
    return program


def put(device, array):
    """Return a buffer with the bytes of an array."""
    buffer = device.pool.allocate(array.nbytes)
    device.pool.host_to_pool(np.ascontiguousarray(array).view(np.uint8), buffer)
    return buffer


def get(device, buffer, dtype=np.int32):
    """Return what is in a buffer."""
    out = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    device.pool.pool_to_host(buffer, out.view(np.uint8))
    return out


def numbers(n, start=0):
    return np.arange(start, start + n, dtype=np.int32)


def run(device, code):
    """Return what a process prints that has used the device."""
    name = device.name + " staged" * getattr(device, "_staged", False)
    start = _START.format(tests=str(Path(__file__).parent), name=name)
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True,
                          timeout=240, env=dict(os.environ))  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout.split()
