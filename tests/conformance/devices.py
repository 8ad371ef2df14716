"""The devices that the conformance suite runs on, and the little it needs of each."""

import ctypes

import device_coverage
import numpy as np
import pytest

import oracle
from weft import driver
from weft.config import config
from weft.driver.context import context
from weft.errors import LaunchError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op

# A new backend runs the whole suite by its name here, and the capability that it needs.
DEVICES = {"cpu": "cpu", "interpreter": "interpreter", "cpu/c": "cpu/c", "far": "cpu",
           "late:1": "cpu", "opencl:pocl": "opencl:pocl",
           "opencl:pocl/threads": "opencl:pocl",
           "vulkan:lavapipe": "vulkan:lavapipe", "webgpu": "webgpu"}  # fmt: skip


class Device:
    """Arrays to leaves, and nodes to arrays, on one device."""

    def __init__(self, name):
        self.name = name

    def leaf(self, array, shift=0):
        """Return an array as a leaf; its memory starts `shift` elements after an aligned place.

        Under ``WEFT_GUARD`` it is memory of the pool, which has guards.
        """
        flat = np.ascontiguousarray(array).reshape(-1)
        if self.name != "cpu":
            pool = context(self.name).runtime.pool
            held = pool.allocate(flat.nbytes)
            pool.host_to_pool(flat.view(np.uint8), held)
            storage = nd.Storage(dt.as_dtype(flat.dtype), flat.size, held)
            return infer.reshape(nd.buffer(storage), np.shape(array))
        if config().guard:
            held = driver.allocate(flat.nbytes)
            ctypes.memmove(held.address, flat.ctypes.data, flat.nbytes)
            storage = nd.Storage(dt.as_dtype(flat.dtype), flat.size, held, self.name)
            return infer.reshape(nd.buffer(storage), np.shape(array))
        room = np.empty(flat.nbytes + 128 + shift * flat.itemsize, np.uint8)
        start = -room.ctypes.data % 64 + shift * flat.itemsize
        place = room[start : start + flat.nbytes]
        place[:] = flat.view(np.uint8)
        held = driver.from_host(room.ctypes.data + start, place.nbytes, place)
        dtype = dt.as_dtype(flat.dtype)
        storage = nd.Storage(dtype, flat.size, held, self.name)
        return infer.reshape(nd.buffer(storage), np.shape(array))

    def compute(self, *nodes, variables=None):
        """Realize nodes; return arrays of their own."""
        try:
            found = [self.value(n) for n in driver.realize(nodes, variables)]
        except LaunchError as error:
            if "that the driver ended before" in str(error):  # which is told, not computed with
                pytest.xfail(str(error))
            raise
        device_coverage.note(self.name, nodes)
        return found

    @staticmethod
    def value(node):
        base = node
        while base.op is Op.RESHAPE:
            base = base.args[0]
        return oracle.array_of(base.attr.buffer, node.dtype, node.shape).copy()

    def keeps_payloads(self, dtype):
        """Whether a bitcast to a type keeps the bits of NaN: Python has floats of 64 bits."""
        return self.name != "interpreter" or dtype.itemsize == 8

    @staticmethod
    def place(leaf):
        """Return what tells the memory of a leaf from other memory."""
        held = leaf.attr.buffer
        return held.address if held.in_process else held.handle

    def __repr__(self):
        return self.name
