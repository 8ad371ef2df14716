"""``numba.cuda.random``: the generator xoroshiro128+ in kernels, bit for bit numba's numbers.

A state is a record of two 64-bit words; `create_xoroshiro128p_states` makes as many as there are
threads, each 2**64 numbers ahead of the one before it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from weft.compat.arrays import device_array
from weft.compat.numba_types import from_dtype
from weft.errors import LaunchError
from weft.lang.launch.device_function import func
from weft.lang.launch.launch import KernelFunction
from weft.lang.launch.options import Options

__all__ = [
    "create_xoroshiro128p_states", "init_xoroshiro128p_state", "init_xoroshiro128p_states",
    "uint64_to_unit_float32", "uint64_to_unit_float64", "xoroshiro128p_dtype", "xoroshiro128p_jump",
    "xoroshiro128p_next", "xoroshiro128p_normal_float32", "xoroshiro128p_normal_float64",
    "xoroshiro128p_type", "xoroshiro128p_uniform_float32", "xoroshiro128p_uniform_float64",
]  # fmt: skip

xoroshiro128p_dtype: Final = np.dtype([("s0", np.uint64), ("s1", np.uint64)], align=True)
xoroshiro128p_type: Final = from_dtype(xoroshiro128p_dtype)

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_JUMP: Final = (np.uint64(0xBEAC0467EBA5FACB), np.uint64(0xD86B048B86AA9922))
_UNIT: Final = 2.0**-53
_TURN32: Final = np.float32(2 * math.pi)
_TURN64: Final = 2 * math.pi


@func
def _rotated(x: Any, count: int) -> Any:
    """Return a word whose bits went round to the left."""
    return (x << np.uint64(count)) | (x >> np.uint64(64 - count))


@func
def init_xoroshiro128p_state(states: Any, index: Any, seed: Any) -> None:
    """Set a state from a seed, by one step of SplitMix64."""
    z = np.uint64(seed) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX[1]
    z = z ^ (z >> np.uint64(31))
    states[index]["s0"] = z
    states[index]["s1"] = z


@func
def xoroshiro128p_next(states: Any, index: Any) -> Any:
    """Return the next word of a generator."""
    a = states[index]["s0"]
    b = states[index]["s1"]
    total = a + b
    b = b ^ a
    states[index]["s0"] = _rotated(a, 55) ^ b ^ (b << np.uint64(14))
    states[index]["s1"] = _rotated(b, 36)
    return total


@func
def xoroshiro128p_jump(states: Any, index: Any) -> None:
    """Move a generator 2**64 numbers ahead."""
    a = np.uint64(0)
    b = np.uint64(0)
    for word in _JUMP:
        for bit in range(64):
            if (word >> np.uint64(bit)) & np.uint64(1):
                a = a ^ states[index]["s0"]
                b = b ^ states[index]["s1"]
            xoroshiro128p_next(states, index)
    states[index]["s0"] = a
    states[index]["s1"] = b


@func
def uint64_to_unit_float64(x: Any) -> Any:
    """Return a word as a number from 0 up to 1."""
    return (np.uint64(x) >> np.uint64(11)) * _UNIT


@func
def uint64_to_unit_float32(x: Any) -> Any:
    """Return a word as a float32 from 0 to 1."""
    return np.float32(uint64_to_unit_float64(x))


@func
def xoroshiro128p_uniform_float32(states: Any, index: Any) -> Any:
    """Return the next number, evenly distributed from 0 to 1, as a float32."""
    return uint64_to_unit_float32(xoroshiro128p_next(states, index))


@func
def xoroshiro128p_uniform_float64(states: Any, index: Any) -> Any:
    """Return the next number, evenly distributed from 0 up to 1."""
    return uint64_to_unit_float64(xoroshiro128p_next(states, index))


@func
def xoroshiro128p_normal_float32(states: Any, index: Any) -> Any:
    """Return a normally distributed float32: the first of a pair of Box and Muller."""
    u = xoroshiro128p_uniform_float32(states, index)
    v = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(np.float32(-2) * math.log(u)) * math.cos(_TURN32 * v)


@func
def xoroshiro128p_normal_float64(states: Any, index: Any) -> Any:
    """Return a normally distributed number; as with numba, of two float32."""
    u = xoroshiro128p_uniform_float32(states, index)
    v = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(_TURN64 * v)


def _prepare(states: Any, seed: Any, start: Any) -> None:
    """Set all states: a kernel of one thread, because each state follows from the one before it."""
    if states.size:
        init_xoroshiro128p_state(states, 0, seed)
        for _ in range(start):
            xoroshiro128p_jump(states, 0)
        for i in range(1, states.size):
            states[i] = states[i - 1]
            xoroshiro128p_jump(states, i)


_prepared: Final = KernelFunction(_prepare, Options())


def init_xoroshiro128p_states(states: Any, seed: int, subsequence_start: int = 0,
                              stream: Any = 0) -> None:  # fmt: skip
    """Set the states of generators, each 2**64 numbers ahead of the one before it."""
    del stream
    if states.dtype != xoroshiro128p_dtype or states.ndim != 1:
        raise LaunchError("init_xoroshiro128p_states",
                          found=f"{states.dtype} with {states.ndim} axes",
                          expected="an array of xoroshiro128p_dtype with one axis")
    _prepared[1, 1](states, np.uint64(int(seed) & ((1 << 64) - 1)), int(subsequence_start))


def create_xoroshiro128p_states(n: int, seed: int, subsequence_start: int = 0,
                                stream: Any = 0) -> Any:  # fmt: skip
    """Return the states of `n` generators, an array for kernels."""
    states = device_array(int(n), xoroshiro128p_dtype)
    init_xoroshiro128p_states(states, seed, subsequence_start, stream)
    return states
