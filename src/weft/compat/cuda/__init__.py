"""numba.cuda's host interface: ``from weft.compat import cuda``.

Kernels run where Weft runs them, today on the CPU, in the memory of the host; what numba keeps on a
device is an array of the host here, and every launch is finished when it returns. Negative indices
count from the end, as in numba.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.compat import arrays, config, core, errors, extending, misc, np, types, typing
from weft.compat.arrays import (
    DeviceArray,
    In,
    InOut,
    Out,
    as_cuda_array,
    device_array,
    device_array_like,
    from_cuda_array_interface,
    is_cuda_array,
    managed_array,
    mapped_array,
    mapped_array_like,
    pinned_array,
    pinned_array_like,
    to_device,
)
from weft.compat.cuda import bf16, cudadrv, fp16, libdevice, random, reduction
from weft.compat.cuda.cudadrv import devicearray, devices, driver, runtime
from weft.compat.cuda.device import (
    MemoryInfo,
    close,
    current_context,
    detect,
    get_current_device,
    gpus,
    list_devices,
    require_context,
    select_device,
    synchronize,
)
from weft.compat.cuda.inspected import Inspected
from weft.compat.cuda.memory import ManagedMemory, MappedMemory, MemoryPointer, PinnedMemory
from weft.compat.cuda.reduction import Reduce, reduce
from weft.compat.cuda.refused import (
    LTOIR,
    Archive,
    BaseCUDAMemoryManager,
    Cubin,
    CUSource,
    Fatbin,
    GetIpcHandleMixin,
    HostOnlyCUDAMemoryManager,
    IpcHandle,
    LinkableCode,
    Object,
    PTXSource,
    compile,
    compile_all,
    compile_for_current_device,
    compile_ptx,
    compile_ptx_for_current_device,
    open_ipc_array,
    set_memory_manager,
)
from weft.compat.cuda.signed import SignedFunction, array_union_of
from weft.compat.cuda.vectors import VECTORS
from weft.compat.errors import CudaSupportError
from weft.compat.numba_types import (
    ALIASES,
    ArrayOf,
    NumbaType,
    Signature,
    from_dtype,
    is_of_numba,
)
from weft.compat.signatures import parse_of_kernel, parse_signature
from weft.compat.vectorize import guvectorize, vectorize
from weft.errors import KernelError, LaunchError, outermost, outermost_methods, raised
from weft.imports import importing
from weft.lang.device import cooperative_groups as cg
from weft.lang.device.gpu import (
    activemask,
    all_sync,
    any_sync,
    atomic,
    ballot_sync,
    blockDim,
    blockIdx,
    brev,
    cbrt,
    clz,
    const,
    eq_sync,
    ffs,
    fma,
    grid,
    gridDim,
    gridsize,
    laneid,
    lanemask_lt,
    ldca,
    ldcg,
    ldcs,
    ldcv,
    ldlu,
    local,
    match_all_sync,
    match_any_sync,
    popc,
    selp,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    stcg,
    stcs,
    stwb,
    stwt,
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
    threadfence,
    threadfence_block,
    threadfence_system,
    threadIdx,
    warpsize,
)
from weft.lang.launch.device_function import DeviceFunction
from weft.lang.launch.launch import Configured
from weft.lang.launch.options import Options, cdiv
from weft.lang.launch.resources import resources
from weft.lang.launch.streams import Event, Stream, event, stream
from weft.lang.source.source_audit import listen

if TYPE_CHECKING:
    from weft.lang.values.types import KernelType

__all__ = [
    "LTOIR", "Archive", "BaseCUDAMemoryManager", "CUSource", "Cubin", "CudaSupportError",
    "DeviceArray", "Fatbin", "GetIpcHandleMixin", "HostOnlyCUDAMemoryManager", "In", "InOut",
    "IpcHandle", "LinkableCode", "ManagedMemory", "MappedMemory", "MemoryInfo", "MemoryPointer",
    "Object", "Out", "PTXSource", "PinnedMemory", "Reduce", "activemask", "all_sync", "any_sync",
    "as_cuda_array", "atomic", "ballot_sync", "bf16", "blockDim", "blockIdx", "brev", "cbrt", "cg",
    "close", "clz", "compile", "compile_all", "compile_for_current_device", "compile_ptx",
    "compile_ptx_for_current_device", "const", "cuda_error", "cudadrv", "current_context",
    "declare_device", "default_stream", "defer_cleanup", "detect", "device_array",
    "device_array_like", "devicearray", "devices", "driver", "eq_sync", "errors", "event",
    "event_elapsed_time", "external_stream", "ffs", "fma", "fp16", "from_cuda_array_interface",
    "from_dtype", "get_current_device", "gpus", "grid", "gridDim", "gridsize", "guvectorize",
    "is_available", "is_bfloat16_supported", "is_cuda_array", "is_float16_supported",
    "is_supported_version", "jit", "laneid", "lanemask_lt", "ldca", "ldcg", "ldcs", "ldcv", "ldlu",
    "legacy_default_stream", "libdevice", "list_devices", "local", "managed_array", "mapped",
    "mapped_array", "mapped_array_like", "match_all_sync", "match_any_sync", "nanosleep",
    "open_ipc_array", "per_thread_default_stream", "pinned", "pinned_array", "pinned_array_like",
    "popc", "profile_start", "profile_stop", "profiling", "random", "reduce", "require_context",
    "runtime", "select_device", "selp", "set_memory_manager", "shared", "shfl_down_sync",
    "shfl_sync", "shfl_up_sync", "shfl_xor_sync", "stcg", "stcs", "stream", "stwb", "stwt",
    "synchronize", "syncthreads", "syncthreads_and", "syncthreads_count", "syncthreads_or",
    "syncwarp", "threadIdx", "threadfence", "threadfence_block", "threadfence_system", "to_device",
    "types", "vectorize", "warpsize",
]  # fmt: skip

globals().update({name: kind for name, kind in ALIASES.items() if name not in globals()})
HAS_NUMBA = True  # what stands beside numba.cuda in numba is there, too
sys.modules.update({f"{__name__}.{place}": module for place, module in (
    ("config", config), ("core", core), ("core.config", config), ("core.errors", errors),
    ("core.typing", typing), ("core.types", types), ("errors", errors), ("extending", extending),
    ("misc", misc), ("misc.special", misc.special), ("np", np),
    ("np.numpy_support", np.numpy_support), ("types", types), ("typing", typing),
    ("typing.templates", typing.templates), ("typing.typeof", typing.typeof), ("utils", config),
    ("args", arrays), ("kernels.reduction", reduction),
    *((same, sys.modules[__name__]) for same in ("api", "compiler", "decorators", "stubs")))})


@outermost_methods
class Kernel(Inspected):
    """A kernel under ``@cuda.jit``."""

    def __init__(self, function: Callable[..., Any], options: Options,
                 signatures: tuple[Signature, ...] = ()) -> None:  # fmt: skip
        one = signatures[0] if len(signatures) == 1 else None
        super().__init__(function, options, _wanted(function, one))
        self._signatures, self.specialized = signatures, one is not None
        self._forms = tuple(Kernel(function, options, (s,)) for s in signatures) if (
            len(signatures) > 1) else ()
        if one is not None:
            self.check_types()

    def __getitem__(self, configuration: Any) -> Any:
        """Return the kernel with the shape of a launch: ``grid, block[, stream[, shared]]``."""
        if not self._forms:
            return super().__getitem__(configuration)
        return Chosen(self, [form[configuration] for form in self._forms])

    def forms(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return the keys of the forms by the types of their arguments."""
        found = super().forms()
        for form in self._forms:
            found.update(form.forms())
        return found

    @property
    def py_func(self) -> Callable[..., Any]:
        """The Python function."""
        return self.__weft_function__

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0,
                  sharedmem: int = 0) -> Any:  # fmt: skip
        """Return the kernel with the shape of a launch, as ``kernel[griddim, blockdim]``."""
        return self[griddim, blockdim, stream, sharedmem]

    def compile(self, *args: Any, **kwargs: Any) -> Kernel:
        """Compile as `weft.kernel`'s; for a signature, which has no block, for some block."""
        if len(args) == 1 and not kwargs and not hasattr(args[0], "__index__"):
            found = parse_of_kernel(args[0])
            self.compile_types(_wanted(self.__weft_function__, found))
            return self
        super().compile(*args, **kwargs)
        return self

    def specialize(self, *args: Any) -> Kernel:
        """Return the kernel as one for arguments of some types: it is compiled for those anyway."""
        del args
        if self.specialized or self._signatures:  # numba: also where a signature says it all
            raise LaunchError(f"{self.__name__}.specialize", found="Dispatcher already specialized",
                              expected="a kernel without a signature")
        made = Kernel(self.__weft_function__, self.options)
        made.specialized = True
        return made

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
        """Return the kernel for so many tasks, one a thread."""
        threads = tpb or 256
        if not all(hasattr(n, "__index__") for n in (ntasks, threads)) or threads < 1:
            raise LaunchError(f"{self.__name__}.forall", found=f"{ntasks!r} tasks, {tpb!r} threads "
                              "of a block", expected="numbers of tasks and threads")
        if ntasks < 0:
            raise raised("ValueError")(f"{self.__name__}.forall", found=f"{ntasks} tasks",
                                       expected="a number of tasks that is not negative")
        return self[max(cdiv(ntasks, threads), 1), threads, stream, sharedmem]


class Chosen:
    """A kernel of several signatures with the shape of a launch: arguments say which is meant."""

    def __init__(self, kernel: Kernel, launches: list[Configured]) -> None:
        self.kernel, self._launches = kernel, launches

    @outermost
    def __call__(self, *args: Any) -> None:
        """Run the kernel in the form of the signature that fits best."""
        self._launches[array_union_of(self.kernel.__name__, args, self.kernel._signatures)](*args)


listen()  # libraries decorate functions of texts that are gone, which numba does not mind


def _wanted(function: Callable[..., Any], signature: Signature | None) -> dict[str, Any]:
    """Return the types of the parameters that a signature gives; numba knows no annotations."""
    if signature is None:
        return {}
    from weft.lang.values.types import GroupType

    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    if len(signature.args) != len(names) and (not rest or len(signature.args) < len(names)):
        raise KernelError(f"kernel {function.__name__}",
                          found=f"a signature of {len(signature.args)} types",
                          expected=f"{len(names)}{' or more' if rest else ''}")
    kinds = tuple(map(_kernel_type, signature.args))
    found = {name: kind for name, kind in zip(names, kinds, strict=False) if kind is not None}
    return {**found, **{name: GroupType(kinds[len(names):]) for name in rest}}


def _kernel_type(kind: Any) -> KernelType | None:
    """Return a type of a signature as kernels know it, None for complex numbers and records."""
    from weft.lang.core.element_types import as_dtype
    from weft.lang.values.types import ArrayType, ScalarType

    kind = getattr(kind, "type", kind)  # of what may be None
    found = getattr(kind, "kind", None)
    d = None if found is None or found.fields is not None else as_dtype(found)
    if d is None:
        return None
    return ArrayType(d, kind.ndim, kind.order) if isinstance(kind, ArrayOf) else ScalarType(d)


@outermost
def jit(signature: Any = None, device: bool = False, inline: Any = "never", link: Any = (),
        debug: bool | None = None, opt: bool | None = None, lineinfo: bool = False,
        cache: bool = False, fastmath: bool = False, max_registers: int | None = None,
        launch_bounds: Any = None, fma: bool = True, shared_memory_carveout: Any = None,
        **ignored: Any) -> Any:  # fmt: skip
    """Make a kernel of a function, or with `device` a function for kernels to call.

    `signature`, which may also be given as `func_or_sig`, is a function, a string such as
    ``"void(float32[:])"``, a call of types or a list of one of these. With `debug` a division by
    zero raises, but not with `fastmath`. Options about caching and about GPUs' code change nothing
    here.

    Raises
    ------
    KernelError
        If other code is to be linked.
    LaunchError
        As a ValueError, if an option cannot have such a value.
    """
    signature = ignored.pop("func_or_sig", signature)
    if link:
        raise KernelError("jit(link=...)", found=repr(link), expected="kernels of Python alone",
                          hint="a function of the other code goes into Python under "
                          "@cuda.jit(device=True)")
    asked = {"device": device, "debug": bool(debug), "opt": opt is not False, "inline": inline,
             "fastmath": fastmath, "lineinfo": lineinfo, "link": link,
             "max_registers": max_registers, "launch_bounds": launch_bounds}  # fmt: skip
    del cache, ignored
    bounds = launch_bounds if isinstance(launch_bounds, tuple | list) else (launch_bounds,)
    most = 1024 if not bounds or bounds[0] is None else bounds[0]
    if shared_memory_carveout is not None and (
        str(shared_memory_carveout).lower() not in ("default", "maxl1", "maxshared")
        and not (isinstance(shared_memory_carveout, int) and -1 <= shared_memory_carveout <= 100)
    ):
        raise raised("ValueError")("shared_memory_carveout", found=repr(shared_memory_carveout),
                                   expected="-1 to 100, 'default', 'MaxL1' or 'MaxShared'")
    if not 1 <= len(bounds) <= 3:
        raise raised("ValueError")("launch_bounds", found=f"Got {len(bounds)} launch bounds: "
                                   f"{bounds!r}", expected="threads of a block, blocks of a "
                                   "multiprocessor, blocks of a cluster")
    given = {"max_threads": bounds[0], **resources(
        max_registers, bounds[1] if len(bounds) > 1 else None),
        "max_cluster": bounds[2] if len(bounds) > 2 else None}
    hints = tuple((name, value) for name, value in given.items() if value is not None)
    options = Options(True, True, fastmath, most, hints, fma, strict=bool(debug) and not fastmath)

    @outermost
    def make(function: Callable[..., Any]) -> Any:
        function = getattr(function, "__weft_function__", getattr(function, "py_func", function))
        given = () if signature is None or callable_(signature) else tuple(map(
            parse_signature if device else parse_of_kernel,
            signature if isinstance(signature, list) else [signature]))
        made = Kernel(function, options, given) if not device else (
            SignedFunction(function, given) if given else DeviceFunction(function))
        made.targetoptions = asked  # by which programs tell kernels from device functions
        return made

    def callable_(value: Any) -> bool:
        if is_of_numba(value):  # a signature or a type of numba itself, or a function it compiles
            return hasattr(value, "py_func")
        return callable(value) and not isinstance(value, NumbaType | Signature)

    return make(signature) if callable_(signature) else make


# --- arrays


@contextmanager
def pinned(*arrays: Any) -> Iterator[None]:
    """Do nothing: memory of the host needs no pinning here."""
    del arrays
    yield


@contextmanager
def mapped(*arrays: Any, **options: Any) -> Iterator[Any]:
    """Return the arrays as kernels see them: themselves."""
    del options
    found = [as_cuda_array(a) for a in arrays]
    yield found[0] if len(found) == 1 else found


# --- streams, events, devices


def default_stream() -> Stream:
    """Return the stream of launches that name none."""
    return Stream()


legacy_default_stream = per_thread_default_stream = default_stream


def external_stream(pointer: int) -> Stream:
    """Return a stream for one of another library; work is finished when it has been asked for."""
    found: Stream = current_context().create_external_stream(pointer)
    return found


def event_elapsed_time(start: Event, end: Event) -> float:
    """Return the milliseconds between two events."""
    return start.elapsed_time(end)


def is_available() -> bool:
    """Return True: kernels run on the CPU if nowhere else."""
    return True


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """Do nothing."""
    yield


def cuda_error() -> None:
    """Return None: there was no error."""


def is_supported_version() -> bool:
    """Return True."""
    return True


def is_float16_supported() -> bool:
    """Return True: kernels have 16-bit floats."""
    return True


def is_bfloat16_supported() -> bool:
    """Return True: kernels have 16-bit floats of this kind, too."""
    return True


@outermost
def declare_device(name: str, sig: Any, link: Any = None, **options: Any) -> Any:
    """Refuse: code of other languages cannot be linked."""
    del link, options
    raise KernelError("declare_device", found=f"{name}, {sig}",
                      expected="a Python function under @cuda.jit(device=True)")


def profile_start() -> None:
    """Do nothing."""


def profile_stop() -> None:
    """Do nothing."""


@contextmanager
def profiling() -> Iterator[None]:
    """Do nothing."""
    yield


def _pause(nanoseconds: Any) -> None:
    """Go on at once: a pause only gives others time, which they do not need here."""


nanosleep = DeviceFunction(_pause)


globals().update(VECTORS | extending.places("cuda"))

_PLACES = frozenset(("api", "args", "compiler", "decorators", "dispatcher", "kernels", "stubs",
                     "testing", "utils", "vector_types"))  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what few programs name: modules, and the class of kernels by all its names."""
    if name in _PLACES:
        with importing:
            return import_module(f"{__name__}.{name}")
    if name.endswith(("Dispatcher", "Template", "CUDAKernel")):  # of ``compiler``
        with importing:
            return getattr(import_module(f"{__name__}.dispatcher"), name)
    raise AttributeError(f"numba.cuda has no {name} here")
