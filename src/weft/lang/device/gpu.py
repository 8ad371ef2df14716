"""The operations of kernels, with the names of CUDA and numba.cuda: ``from weft import gpu``.

Inside a function under ``@weft.kernel`` these are operations of the device; Python itself cannot
call them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.lang.core.intrinsics import Everyone, Special, Triple, intrinsic

__all__ = [
    "ALL", "activemask", "all_sync", "any_sync", "atomic", "atomic_thread_fence",
    "ballot_sync", "blockDim", "blockIdx", "brev", "cbrt", "clock", "clock64", "clz",
    "commit_group", "const", "eq_sync", "ffs", "fma",
    "globaltimer", "grid", "gridDim", "grid_sync", "gridsize", "laneid", "lanemask_lt", "ldca",
    "ldcg", "ldcs", "ldcv", "ldlu", "load", "local", "match_all_sync", "match_any_sync",
    "memcpy_async", "nanosleep", "popc", "rsqrt", "selp", "shared", "shfl_down_sync", "shfl_sync",
    "shfl_up_sync", "shfl_xor_sync", "stcg", "stcs", "store", "stwb", "stwt", "syncthreads",
    "syncthreads_and", "syncthreads_count", "syncthreads_or", "syncwarp", "threadIdx",
    "threadfence", "threadfence_block", "threadfence_system", "wait_group", "warpsize", "wmma",
]  # fmt: skip

threadIdx: Final = Triple("thread")  # index of the thread in its block; int32
blockIdx: Final = Triple("block")  # index of the block in the grid; int32
blockDim: Final = Triple("blockDim")  # threads of a block; int32
gridDim: Final = Triple("gridDim")  # blocks of the grid; int32
warpsize: Final = Special("warpsize", 32)  # threads of a warp; int32
laneid: Final = Special("laneid")  # number of the thread in its warp; int32
ALL: Final = Everyone(0xFFFFFFFF)  # a mask of all threads of a warp


@intrinsic
def grid(ndim: int) -> Any:
    """Return the index of the thread in the whole grid: an int64, or a tuple of `ndim` of them."""


@intrinsic
def gridsize(ndim: int) -> Any:
    """Return the number of threads of the whole grid, along each of `ndim` axes."""


@intrinsic
def syncthreads() -> None:
    """Wait for all threads of the block; what they wrote is visible after it."""


@intrinsic
def syncthreads_count(predicate: Any) -> Any:
    """Wait for all threads of the block; return for how many `predicate` holds, an int64."""


@intrinsic
def syncthreads_and(predicate: Any) -> Any:
    """Wait for all threads of the block; return whether `predicate` holds for each of them."""


@intrinsic
def syncthreads_or(predicate: Any) -> Any:
    """Wait for all threads of the block; return whether `predicate` holds for any of them."""


@intrinsic
def syncwarp(mask: Any = ALL) -> None:
    """Wait for the threads of the warp in `mask`; what they wrote is visible after it."""


@intrinsic
def atomic_thread_fence(order: str = "seq_cst", scope: str = "device") -> None:
    """Order what this thread does before and after, for the threads of a scope.

    As in CUDA C++: `order` is ``"acquire"``, ``"release"``, ``"acq_rel"`` or ``"seq_cst"``, `scope`
    ``"thread"``, ``"warp"``, ``"block"``, ``"device"`` or ``"system"``.
    """


@intrinsic
def threadfence() -> None:
    """Let the device see what this thread wrote before what it writes from here on."""


@intrinsic
def threadfence_block() -> None:
    """Let the block see what this thread wrote before what it writes from here on."""


@intrinsic
def threadfence_system() -> None:
    """Let the host and other devices see what was written before what is written from here on."""


@intrinsic
def shfl_sync(mask: Any, value: Any, src_lane: Any, width: int = 32) -> Any:
    """Return the `value` of thread `src_lane` of the warp, counted within groups of `width`."""


@intrinsic
def shfl_up_sync(mask: Any, value: Any, delta: Any, width: int = 32) -> Any:
    """Return the `value` of the thread `delta` below; the lowest keep their own."""


@intrinsic
def shfl_down_sync(mask: Any, value: Any, delta: Any, width: int = 32) -> Any:
    """Return the `value` of the thread `delta` above; the highest keep their own."""


@intrinsic
def shfl_xor_sync(mask: Any, value: Any, lane_mask: Any, width: int = 32) -> Any:
    """Return the `value` of the thread whose number is this one's xor `lane_mask`."""


@intrinsic
def any_sync(mask: Any, predicate: Any) -> Any:
    """Return whether `predicate` holds for any thread of the warp in `mask`."""


@intrinsic
def all_sync(mask: Any, predicate: Any) -> Any:
    """Return whether `predicate` holds for all threads of the warp in `mask`."""


@intrinsic
def eq_sync(mask: Any, predicate: Any) -> Any:
    """Return whether `predicate` is the same for all threads of the warp in `mask`."""


@intrinsic
def ballot_sync(mask: Any, predicate: Any) -> Any:
    """Return the threads of the warp for which `predicate` holds, a bit each, as a uint32."""


@intrinsic
def match_any_sync(mask: Any, value: Any) -> Any:
    """Return the threads of the warp with the same `value`, a bit each, as a uint32."""


@intrinsic
def match_all_sync(mask: Any, value: Any) -> Any:
    """Return the threads and True if all have the same `value`, else 0 and False."""


@intrinsic
def activemask() -> Any:
    """Return the threads of the warp that are here together, a bit each, as a uint32."""


@intrinsic
def lanemask_lt() -> Any:
    """Return the threads of the warp below this one, a bit each, as a uint32."""


@intrinsic
def popc(x: Any) -> Any:
    """Return the number of bits of an integer that are set."""


@intrinsic
def clz(x: Any) -> Any:
    """Return the number of bits above the highest bit that is set; the width for 0."""


@intrinsic
def brev(x: Any) -> Any:
    """Return an integer of 32 or 64 bits with its bits in the opposite order."""


@intrinsic
def ffs(x: Any) -> Any:
    """Return the position of the lowest bit that is set, from 1; 0 for 0."""


@intrinsic
def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c`` rounded once."""


@intrinsic
def rsqrt(x: Any) -> Any:
    """Return ``1 / sqrt(x)``."""


@intrinsic
def cbrt(x: Any) -> Any:
    """Return the cube root of `x`."""


@intrinsic
def selp(condition: Any, a: Any, b: Any) -> Any:
    """Return `a` if `condition` holds, else `b`; both are evaluated."""


@intrinsic
def load(array: Any, index: Any, count: int) -> Any:
    """Return `count` elements that lie side by side, as a tuple, by one access.

    They have at most 16 bytes together and begin at a multiple of those.
    """


@intrinsic
def store(array: Any, index: Any, values: Any) -> None:
    """Set elements that lie side by side to the values of a tuple, by one access; see `load`."""


@intrinsic
def ldca(array: Any, index: Any) -> Any:
    """Return an element, kept in all caches."""


@intrinsic
def ldcg(array: Any, index: Any) -> Any:
    """Return an element, kept in the cache of the device only."""


@intrinsic
def ldcs(array: Any, index: Any) -> Any:
    """Return an element that is read once."""


@intrinsic
def ldlu(array: Any, index: Any) -> Any:
    """Return an element that is read for the last time."""


@intrinsic
def ldcv(array: Any, index: Any) -> Any:
    """Return an element, read from memory again."""


@intrinsic
def stwb(array: Any, index: Any, value: Any) -> None:
    """Set an element, kept in all caches."""


@intrinsic
def stcg(array: Any, index: Any, value: Any) -> None:
    """Set an element, kept in the cache of the device only."""


@intrinsic
def stcs(array: Any, index: Any, value: Any) -> None:
    """Set an element that nobody reads soon."""


@intrinsic
def stwt(array: Any, index: Any, value: Any) -> None:
    """Set an element, through all caches."""


@intrinsic
def memcpy_async(target: Any, source: Any, count: int = 1, cache: str = "default") -> None:
    """Ask for a copy of `count` elements on the side, from an argument to a shared array.

    It begins at the first element of both: ``gpu.memcpy_async(s[i:], x[j:], 4)``. Together they
    have a multiple of 4, 8 or 16 bytes and begin at one. It has taken place after `wait_group` in
    this thread, and for the other threads after a barrier behind that. `cache` is ``"default"``,
    ``"L1"``, ``"L2"`` or ``"streaming"``.
    """


@intrinsic
def commit_group() -> None:
    """Make a group of the copies that this thread has asked for since the last one."""


@intrinsic
def wait_group(pending: int = 0) -> None:
    """Wait until at most the last `pending` groups of copies of this thread are under way."""


@intrinsic
def grid_sync() -> None:
    """Wait for all threads of the grid; what they wrote is visible after it."""


@intrinsic
def clock() -> Any:
    """Return the low 32 bits of a counter of cycles, an int32."""


@intrinsic
def clock64() -> Any:
    """Return a counter of cycles, an int64."""


@intrinsic
def globaltimer() -> Any:
    """Return a clock in nanoseconds, an int64."""


@intrinsic
def nanosleep(nanoseconds: Any) -> None:
    """Let other threads go first for about so long, which may be no time at all."""


class _Memory:
    """Arrays of one kind of memory."""

    def __init__(self, kind: str, doc: str) -> None:
        def array(shape: Any, dtype: Any, alignment: Any = None) -> Any: ...

        array.__doc__ = doc
        self.array = intrinsic(array, f"{kind}.")


shared: Final = _Memory("shared", """Return an array that all threads of a block share.

    `shape` is an int or a tuple, known when the kernel is compiled. It is not initialised, and
    begins at a multiple of 16 bytes or of `alignment`. With the shape 0 it is the shared memory
    whose bytes the launch gives: all such arrays begin at its first byte, whatever their types, and
    are cut by slices.""")
local: Final = _Memory("local", """Return an array that belongs to one thread.

    `shape` is an int or a tuple, known when the kernel is compiled. It is not initialised.""")


class _Wmma:
    """Products of small matrices, which the threads of a warp hold together as fragments.

    All threads of the warp must reach each operation, with the same array and pitch. Shapes m, n, k
    are 16 16 16, 32 8 16 and 8 32 16 for float16, bfloat16, int8 and uint8; 16 16 8 for tf32;
    8 8 4 for float64. Sums are float32 (of float16 also float16), int32 of integers, float64.

    A fragment has `num_elements` elements in each thread, ``fragment[i]``; which those are of the
    matrix is not said.
    """

    matrix_a, matrix_b, accumulator = "matrix_a", "matrix_b", "accumulator"
    row_major = mem_row_major = "row_major"
    col_major = mem_col_major = "col_major"
    tf32 = "tf32"

    def __init__(self) -> None:
        def fragment(use: Any, m: Any, n: Any, k: Any, dtype: Any, layout: Any = None) -> Any:
            """Return a fragment; `layout` says how `matrix_a` or `matrix_b` lies in memory."""

        def fill_fragment(fragment: Any, value: Any) -> None:
            """Set all elements to a value."""

        def load_matrix_sync(fragment: Any, array: Any, ldm: Any = None,
                             layout: Any = None) -> None:  # fmt: skip
            """Take a matrix from the first element of `array` on, with `ldm` elements a row.

            An array of two axes, such as ``a[i:, j:]``, knows its pitch. In ``col_major`` the rows
            of the array are the columns of the matrix.
            """

        def store_matrix_sync(array: Any, fragment: Any, ldm: Any = None,
                              layout: Any = None) -> None:  # fmt: skip
            """Write an accumulator as a matrix."""

        def mma_sync(d: Any, a: Any, b: Any, c: Any) -> None:
            """Set `d` to ``a @ b + c``."""

        for function in (fragment, fill_fragment, load_matrix_sync, store_matrix_sync, mma_sync):
            setattr(self, function.__name__, intrinsic(function, "wmma."))


wmma: Final = _Wmma()


class _Const:
    """Arrays whose values are known when the kernel is compiled."""

    def __init__(self) -> None:
        def array_like(array: Any) -> Any:
            """Return the values that a NumPy array has when the kernel is compiled, read-only."""

        self.array_like = intrinsic(array_like, "const.")


const: Final = _Const()


_UPDATES: Final = {
    "add": "Add `value`.",
    "sub": "Subtract `value`.",
    "min": "Keep the smaller of the element and `value`; where either is NaN the element stays.",
    "max": "Keep the larger of the element and `value`; where either is NaN the element stays.",
    "and_": "Keep the bits that both have.",
    "or_": "Keep the bits that either has.",
    "xor": "Keep the bits that one of both has.",
    "exch": "Set the element to `value`.",
    "inc": "Add one; from `value` on, begin again at 0.",
    "dec": "Subtract one; from 0, or from more than `value`, begin again at `value`.",
    "nanmin": "Keep the smaller of the element and `value`; a NaN gives way.",
    "nanmax": "Keep the larger of the element and `value`; a NaN gives way.",
}


def _update(name: str) -> Callable[..., Any]:
    """Return the signature of an atomic operation on an element and a value."""

    def update(array: Any, index: Any, value: Any, scope: str = "device",
               order: str = "relaxed") -> Any:  # fmt: skip
        ...

    update.__name__ = update.__qualname__ = name
    update.__doc__ = _UPDATES[name]
    return update


class _Atomic:
    """Operations on one element that no other thread can come between.

    Each takes an array, an index (an int, or a tuple for several axes) and a value, and returns
    what the element held before. `scope` says for whom no other operation comes between: the
    ``"thread"`` alone, its ``"warp"``, its ``"block"``, the ``"device"`` or the whole ``"system"``;
    `order` what it says about other accesses: ``"relaxed"`` (nothing), ``"acquire"``,
    ``"release"``, ``"acq_rel"`` or ``"seq_cst"``. A CPU gives all of them the strongest order.
    """

    def __init__(self) -> None:
        def cas(array: Any, index: Any, old: Any, value: Any, scope: str = "device",
                order: str = "relaxed") -> Any:  # fmt: skip
            """Set the element to `value` if it equals `old`."""

        def compare_and_swap(array: Any, old: Any, value: Any, scope: str = "device",
                             order: str = "relaxed") -> Any:  # fmt: skip
            """Set the first element to `value` if it equals `old`."""

        functions: list[Callable[..., Any]] = [*map(_update, _UPDATES), cas, compare_and_swap]
        for function in functions:
            setattr(self, function.__name__, intrinsic(function, "atomic."))


atomic: Final = _Atomic()


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)
