"""``@weft.kernel``: a function that runs once for each thread of a grid of blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from weft.errors import DeviceError, KernelError, outermost
from weft.lang.core.intrinsics import MOST_SHARED, MOST_THREADS
from weft.lang.launch.launch import KernelFunction
from weft.lang.launch.options import Options, Size, sizes_of
from weft.lang.launch.promises import promises
from weft.lang.launch.resources import KINDS, LEVELS, resources
from weft.tensors.core.devices import devices, is_available

__all__ = ["kernel"]

Maker = Callable[[Callable[..., Any]], KernelFunction]


@overload
def kernel(function: Callable[..., Any]) -> KernelFunction: ...
@overload
def kernel(*, fastmath: bool = ..., unchecked: bool = ..., max_threads: int = ...,
           max_registers: int | None = ..., min_blocks: int | None = ...,
           cluster: Size | None = ..., arch: str | tuple[str, ...] = ...,
           hints: Mapping[str, Any] | None = ..., check: bool = ...,
           workgroup: Size | None = ..., shared: int = ...,
           device: str = ..., opt: str = ..., kind: str = ...,
           vectorizable: bool = ..., critical_path: bool = ..., no_allocation: bool = ...,
           inline_always: bool = ..., gpu_compute: bool = ...,
           fma: bool | None = ...) -> Maker: ...  # fmt: skip
@outermost
def kernel(function: Callable[..., Any] | None = None, *, fastmath: bool = False,
           unchecked: bool = False, max_threads: int = MOST_THREADS,
           max_registers: int | None = None, min_blocks: int | None = None,
           cluster: Size | None = None, arch: str | tuple[str, ...] = (),
           hints: Mapping[str, Any] | None = None, check: bool = False,
           workgroup: Size | None = None, shared: int = 0,
           device: str = "auto", opt: str = "", kind: str = "custom",
           vectorizable: bool = True, critical_path: bool = False,
           no_allocation: bool = False, inline_always: bool = True, gpu_compute: bool = False,
           fma: bool | None = None) -> Any:  # fmt: skip
    """Make a kernel of a function: it runs once for each thread of a launch.

    ::

        @weft.kernel
        def saxpy(a, x, y):
            i = gpu.grid(1)
            if i < x.size:
                y[i] += a * x[i]

        saxpy[weft.cdiv(n, 256), 256](2.0, x, y)

    Inside, `weft.gpu` has the operations of the device. Arguments are NumPy arrays, tensors, or
    anything with the buffer protocol or DLPack, and numbers. Arithmetic follows numba's types.

    Annotations are a contract: ``x: weft.float32[:, ::1]`` (an array), ``n: weft.int32`` (a number
    that is converted), ``t: weft.constexpr`` (a value that the kernel is compiled for).

    Parameters
    ----------
    fastmath
        Let products and sums be fused, and sums be added in another order.
    unchecked
        Do not check indices: an index that is out of bounds may do anything.
    max_threads
        Most threads of a block that the kernel is launched with, at most 1024.
    max_registers
        Most registers of a thread, for devices where that can be chosen.
    check
        Compile the cheap checks of the sanitiser in, see `weft.sanitize` with ``native=True``, and
        raise what they find. ``WEFT_SANITIZE=native`` does so for all kernels.
    min_blocks
        How many blocks shall be resident on a multiprocessor at least.
    cluster
        Blocks of a cluster; those of a launch must make whole ones.
    arch
        The architecture, or several, that it is compiled for: ``sm_90``, ``gfx90a``, ``ptx80``.
    hints
        ``vector_width``: threads that run side by side as the lanes of a vector; ``unroll``: turns
        of loops up to which they are written out; ``coalesced``: False for lanes that are always
        neighbours along x, True for the axis along which most accesses are consecutive, by default
        if it is clearly better; ``async_copy``: False for loops over the grid that ask memory for
        nothing ahead of the turn that needs it; ``tensor_cores`` for devices that have some.
    fma
        Whether a product and the sum it goes into become one operation, rounded once. By default
        that is so where a name or an element is added to (``total += a * b``, ``y = y - a * b``),
        as in every contraction, and all else follows IEEE 754 operation by operation; True does
        it wherever a product is written as an operand of a sum (`fastmath` does, too), False
        nowhere. All devices give the same bits.
    workgroup
        The only block that the kernel is launched with: ``k[grid](...)`` is enough then.
    shared
        Bytes of dynamic shared memory of launches that do not say how many.
    device
        Where it runs, whatever the default device is: ``cpu`` or ``interpreter``.
    opt
        How far it is optimised: ``O0`` to ``O3``, ``Os``, ``Olatency``. By default what compiles
        fast and runs fast.
    kind
        What it computes, for those who read its metadata: ``elementwise``, ``reduce``, ``matmul``,
        ``conv2d``, ``attention``, ``flash_attention``, ``scan``, ``sort`` or ``custom``.
    vectorizable
        Whether threads may run side by side as the lanes of a vector.
    no_allocation
        Promise that the kernel allocates no memory: a print in it is an error then.
    critical_path
        Promise that, and optimise for latency (``Olatency``) if `opt` says nothing else. For a
        contract on machine code, see `weft.critical`.
    inline_always
        That device functions are inlined, as they are always.
    gpu_compute
        Refuse the kernel where there is no GPU to run it.
    """
    if type(max_threads) is not int or not 1 <= max_threads <= MOST_THREADS:
        raise KernelError("kernel", found=f"max_threads={max_threads!r}",
                          expected=f"1 to {MOST_THREADS}")
    for name, flag in (("fastmath", fastmath), ("unchecked", unchecked), ("check", check),
                       ("vectorizable", vectorizable)):
        if type(flag) is not bool:
            raise KernelError("kernel", found=f"{name}={flag!r}", expected="True or False")
    if fma is None and fastmath:
        fma = True
    for name, value, allowed in (("opt", opt, ("", *LEVELS)), ("kind", kind, KINDS)):
        if value not in allowed:
            raise KernelError("kernel", found=f"{name}={value!r}",
                              expected="one of " + ", ".join(filter(None, allowed)))
    if not isinstance(shared, int) or not 0 <= shared <= MOST_SHARED:
        raise KernelError("kernel", found=f"shared={shared!r}", expected=f"0 to {MOST_SHARED}")
    block = None if workgroup is None else sizes_of(workgroup, "workgroup", "kernel",
                                                  (MOST_THREADS,) * 3)  # fmt: skip
    if block is not None and block[0] * block[1] * block[2] > max_threads:
        raise KernelError("kernel", found=f"a workgroup of {block}",
                          expected=f"at most {max_threads} threads")
    given = {"max_threads": None if max_threads == MOST_THREADS else max_threads,
             **resources(max_registers, min_blocks, cluster, arch, hints),
             "workgroup": block, "opt": opt or None,
             "kind": None if kind == "custom" else kind, "device": _device(device),
             "vectorizable": None if vectorizable else False,
             **promises(critical_path, no_allocation, inline_always, gpu_compute)}  # fmt: skip
    if critical_path and not opt:
        given["opt"] = "Olatency"
    kept = tuple((name, value) for name, value in given.items() if value is not None)
    options = Options(False, not unchecked, fastmath, max_threads, kept, fma, block,
                      shared, device, check)

    @outermost
    def make(given: Callable[..., Any]) -> KernelFunction:
        if not inspect.isfunction(given):
            raise KernelError("kernel", found=repr(given), expected="a function")
        return KernelFunction(given, options)

    return make if function is None else make(function)


def _device(name: Any) -> str | None:
    """Return the device that a kernel is for, None for the default one.

    Raises
    ------
    DeviceError
        If it is unknown, absent, or does not run kernels.
    """
    if name == "auto":
        return None
    if not is_available(name):
        raise DeviceError("kernel", found=f"device {name!r}", expected="one of "
                          + ", ".join(("auto", *devices())))
    return str(name)
