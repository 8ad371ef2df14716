"""A driver that computes graphs by their meaning in NumPy (`weft.driver.check.graph`).

`OracleDriver` has the face of ``weft.driver``, so that the front end can be tested apart from the
compiler.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import weft.driver
from weft.driver.check import graph
from weft.driver.check.graph import array_of
from weft.ir import node as nd
from weft.ir import size
from weft.ir.op import Op
from weft.tensors.core import pending


def evaluate(nodes, env=None, variables=None):
    """Return the value of each node; `env` gives arrays for storages that have no buffer."""
    found = graph.evaluate(nodes, graph.Environment(env or {}, variables or {}))
    return [found[n] for n in nodes]


# the driver


class HostBuffer:
    """Memory with the face of the runtime's buffers."""

    device, in_process, on_host = "cpu", True, True

    def __init__(self, nbytes, owner=None, address=None, readonly=False):
        self.nbytes, self.readonly = nbytes, readonly
        self.exposed, self.version = False, 0
        self.owner = np.zeros(max(nbytes, 1), np.uint8) if owner is None else owner
        self.address = self.owner.ctypes.data if address is None else address


def _leaf(value, dtype, shape):
    buffer = _store(value, dtype)
    size = math.prod(shape)
    flat = nd.buffer(nd.Storage(dtype, size, buffer))
    return flat if tuple(shape) == (size,) else nd.make(Op.RESHAPE, dtype, tuple(shape), (flat,))


def _store(value, dtype):
    flat = np.array(value, dtype.numpy, order="C").reshape(-1)
    buffer = HostBuffer(flat.nbytes)
    buffer.owner[: flat.nbytes] = flat.view(np.uint8)
    return buffer


class OracleCompiled:
    """What `OracleDriver.compile` gives: the graph itself."""

    takes_over = True

    def __init__(self, outputs, inputs):
        self.outputs, self.inputs = list(outputs), list(inputs)
        leaves = {n.attr: None for n in nd.toposort(self.outputs) if n.op is Op.BUFFER}
        self.captured = [s for s in leaves if s not in set(self.inputs)]
        self.panels = ()
        self.values = {}
        self.plan = SimpleNamespace(variables=())  # no call is counted by its sizes

    def at(self, values):
        """Return the graph for values of its variables."""
        found = OracleCompiled(self.outputs, self.inputs)
        found.values = dict(values)
        return found

    def call(self, inputs, captured, variables=None, panels=()):
        env = {
            s: array_of(b, s.dtype, (size.evaluate(s.size, self.values),)).copy()
            for s, b in zip([*self.inputs, *self.captured], [*inputs, *captured], strict=True)
        }
        values = evaluate(self.outputs, env, dict(variables or self.values))
        return [_store(v, n.dtype) for v, n in zip(values, self.outputs, strict=True)]

    def forget(self):
        """Keep the arrays: the graph is evaluated at every call."""


class OracleDriver:
    """``weft.driver``, by way of `evaluate`."""

    @staticmethod
    def realize(nodes, also=None):
        nodes = [*nodes, *(also(nd.toposort(nodes)) if also else ())]
        return [_leaf(v, n.dtype, n.shape) for v, n in zip(evaluate(nodes), nodes, strict=True)]

    @staticmethod
    def compute(node, known):
        return None  # knows no short way

    @staticmethod
    def compile(outputs, inputs, updates=None, resident=()):
        return OracleCompiled(outputs, inputs)

    @staticmethod
    def allocate(nbytes):
        return HostBuffer(nbytes)

    @staticmethod
    def from_host(address, nbytes, owner, readonly):
        return HostBuffer(nbytes, owner, address, readonly)


# fixtures, which a folder of tests imports in its conftest.py


@pytest.fixture(autouse=True)
def oracle(request, monkeypatch):
    """Run every graph on plain NumPy, but in tests that ask for ``compiled``."""
    if "compiled" in request.fixturenames:
        yield
        return
    pending._realized.clear()
    for name in ("realize", "compute", "compile", "allocate", "from_host"):
        monkeypatch.setattr(weft.driver, name, getattr(OracleDriver, name))
    yield
    pending._realized.clear()  # interned nodes may outlive the test, and with them its memory


@pytest.fixture
def compiled():
    """Ask for the real compiler."""
