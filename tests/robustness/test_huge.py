"""Shapes past what can be counted or held: a typed error, and nothing lost."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import AllocationError, ShapeError
from weft.driver.context import host_context
from weft.errors import RangeError, WeftError

pytestmark = pytest.mark.grid

a = weft.ones(3, 4)
F = weft.nn.functional

# 2**63 elements or more: refused when the shape is written
UNCOUNTABLE = {
    "zeros": lambda: weft.zeros(2**63),
    "zeros product": lambda: weft.zeros(2**32, 2**31),
    "zeros 1e30": lambda: weft.zeros(10**30),
    "ones": lambda: weft.ones(2**40, 2**40),
    "full": lambda: weft.full((2**62, 2), 1.0),
    "empty": lambda: weft.empty(2**64),
    "rand": lambda: weft.rand(2**63),
    "randn": lambda: weft.randn(2**62, 4),
    "randint": lambda: weft.randint(0, 9, (2**63,)),
    "randperm": lambda: weft.randperm(2**64),
    "arange": lambda: weft.arange(2**63),
    "arange floats": lambda: weft.arange(0.0, 1e30),
    "linspace": lambda: weft.linspace(0, 1, 2**63),
    "eye": lambda: weft.eye(2**32),
    "eye sides": lambda: weft.eye(2**62, 2**62),
    "expand": lambda: weft.ones(1, 1).expand(2**32, 2**32),
    "repeat": lambda: a.repeat(2**31, 2**31),
    "repeat_interleave": lambda: a.repeat_interleave(2**62, 0),
    "tile": lambda: a.tile(2**62),
    "pad": lambda: a.pad((2**62, 2**62)),
    "outer": lambda: weft.ones(2**40).outer(weft.ones(2**40)),
    "broadcast": lambda: weft.ones(2**40, 1) + weft.ones(1, 2**40),
    "matmul": lambda: weft.ones(2**40, 1) @ weft.ones(1, 2**40),
    "cat": lambda: weft.cat([weft.ones(2**62), weft.ones(2**62)]),
    "stack": lambda: weft.stack([weft.ones(2**62), weft.ones(2**62)]),
    "one_hot": lambda: F.one_hot(weft.zeros(2**32, dtype=weft.int64), 2**32),
    "diag": lambda: weft.ones(2**32).diag(),
    "reshape": lambda: a.reshape(2**63, 4),
    "meshgrid": lambda: weft.meshgrid(weft.ones(2**32), weft.ones(2**32)),
    "tril_indices": lambda: weft.tril_indices(2**32, 2**32),
    "conv padding": lambda: F.conv1d(weft.ones(1, 1, 4), weft.ones(1, 1, 3), padding=2**62),
    "interpolate": lambda: F.interpolate(weft.ones(1, 1, 4, 4), scale_factor=2**31),
}


@pytest.mark.parametrize("name", UNCOUNTABLE)
def test_more_elements_than_can_be_counted(name):
    with pytest.raises((ShapeError, RangeError, AllocationError)) as caught:
        UNCOUNTABLE[name]()
    error = caught.value
    assert error.found
    assert error.expected
    assert error.where.file == __file__
    assert error.where.line == UNCOUNTABLE[name].__code__.co_firstlineno


# countable, but more than any memory: refused when the values are wanted
TOO_MUCH = {
    "zeros": lambda: weft.zeros(2**62),
    "zeros bytes": lambda: weft.zeros(2**60, dtype=weft.float64),
    "just past": lambda: weft.zeros(2**61 + 1, dtype=weft.int8) + 1,
    "arange": lambda: weft.arange(10**15),
    "eye": lambda: weft.eye(2**24),
    "rand": lambda: weft.rand(2**48),
    "randn": lambda: weft.randn(2**48),
    "randperm": lambda: weft.randperm(2**45),
    "sum of an outer product": lambda: (weft.arange(2**24).reshape(-1, 1)
                                        + weft.arange(2**24)).sort(0).values.sum(),
    "expand": lambda: weft.ones(1).expand(2**50) + 1,
    "matmul": lambda: weft.ones(2**24, 1) @ weft.ones(1, 2**24),
    "softmax": lambda: weft.ones(2**45, 8).softmax(-1),
    "cumsum": lambda: weft.ones(2**50).cumsum(0),
    "cat": lambda: weft.cat([weft.ones(2**50), a.ravel()]),
    "pad": lambda: a.pad((2**50, 0)),
    "one_hot": lambda: F.one_hot(weft.arange(4), 2**50),
    "reshape": lambda: weft.ones(2**50).reshape(2**25, -1) * 2,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_more_than_memory(name):
    before = a.mul(2).numpy().copy()
    pool = host_context().native.pool
    in_use = pool.bytes_in_use
    tensor = TOO_MUCH[name]()
    with pytest.raises(AllocationError) as caught:
        tensor.numpy()
    error = caught.value
    assert isinstance(error, MemoryError)
    assert "bytes" in str(error)
    assert error.where.file == __file__
    assert pool.bytes_in_use < in_use + 4096
    np.testing.assert_array_equal(a.mul(2).numpy(), before)


def test_a_huge_value_that_is_never_stored_is_fine():
    # lazy: neither of these is ever held in memory
    assert weft.ones(2**40)[5].item() == 1
    assert weft.arange(10**15)[-1].item() == 10**15 - 1
    assert weft.zeros(2**62).shape == (2**62,)
    assert weft.eye(2**30)[7, 5:9].tolist() == [0, 0, 1, 0]
    assert weft.ones(2**50)[:: 2**48].sum().item() == 4


def test_repr_of_a_tensor_that_does_not_fit():
    with pytest.raises((AllocationError, WeftError)):
        repr(weft.zeros(2**50) + 1)
    assert repr(weft.zeros(2))


def test_failures_leak_nothing():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    x = weft.rand(1 << 20).realize()
    for size in (2**45, 2**50):
        with pytest.raises(AllocationError):
            (x.sum() * weft.ones(size)).numpy()
    start = resident()
    for _ in range(20):
        with pytest.raises(AllocationError):
            (x.mul(3).reshape(-1, 1).add(x).sort(0).values.reshape(-1, 1, 1) + weft.ones(2**11)
             ).numpy()  # fmt: skip
    assert resident() - start < 64 << 20


def test_huge_in_a_captured_function():
    @weft.jit
    def f(x):
        return x + weft.zeros(2**50)

    for _ in range(2):
        with pytest.raises(AllocationError):
            f(weft.ones(1)).numpy()
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_memory_limit_of_the_process(tmp_path):
    """Where the system says no, the process gets an error and lives on."""
    script = tmp_path / "limited.py"
    script.write_text(
        "import resource, weft\n"
        "x = weft.rand(1000, 1000)\n"
        "want = x.sum().item()\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), now + (256 << 20)))\n"
        "for _ in range(3):\n"
        "    try:\n"
        "        y = (weft.rand(30000, 10000) + 1).numpy()\n"
        "    except weft.AllocationError as error:\n"
        "        print('refused', 'limited.py:8' in str(error))\n"
        "assert x.sum().item() == want\n"
        "print((x.mean() * 0 + 7).item())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          timeout=60, env=os.environ, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == ["refused True"] * 3 + ["7.0"]
