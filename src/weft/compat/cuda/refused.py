"""What only another device, or another process, can do: names that programs mention, and errors.

Programs name these where they are never reached on a CPU, so the names are there; what is asked of
them is refused with what to do instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from weft.compat.cuda.device import Context, MemoryInfo
from weft.errors import KernelError, LaunchError, outermost

__all__ = ["LTOIR", "Archive", "BaseCUDAMemoryManager", "CUSource", "Cubin", "Fatbin",
           "GetIpcHandleMixin", "HostOnlyCUDAMemoryManager", "IpcHandle", "LinkableCode",
           "Object", "PTXSource", "compile", "compile_all", "compile_for_current_device",
           "compile_ptx", "compile_ptx_for_current_device", "open_ipc_array",
           "set_memory_manager"]  # fmt: skip


@outermost
def compile(pyfunc: Any, *signature: Any, **options: Any) -> NoReturn:
    """Refuse: there is no PTX where kernels run on a CPU."""
    del signature, options
    raise KernelError("compile", found=f"{getattr(pyfunc, '__name__', pyfunc)} for PTX",
                      expected="a launch, and then kernel.inspect_asm() or inspect_llvm()",
                      hint="functions run on this machine's CPU, which has no PTX")


compile_all = compile_for_current_device = compile_ptx = compile_ptx_for_current_device = compile


class BaseCUDAMemoryManager:
    """Where arrays of a device lie; here in the memory of the process, with nothing to manage."""

    def __init__(self, *args: Any, context: Any = None, **kwargs: Any) -> None:
        del args, kwargs
        self.context = Context() if context is None else context

    def initialize(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""

    def get_memory_info(self) -> MemoryInfo:
        """Return the memory that is free, and all of it."""
        return Context().get_memory_info()


class HostOnlyCUDAMemoryManager(BaseCUDAMemoryManager):
    """A manager that leaves the memory of the host to its caller."""


class GetIpcHandleMixin:
    """What gives managers handles for other processes."""

    def get_ipc_handle(self, memory: Any) -> NoReturn:
        """Refuse: arrays lie in the memory of one process."""
        refuse_handle(memory)


class LinkableCode:
    """Code of another language; the kinds of it have this class, too."""

    @outermost
    def __init__(self, *args: Any, **options: Any) -> None:
        raise KernelError("linked code", found="code of another language",
                          expected="a Python function under @cuda.jit(device=True)")


Archive = CUSource = Cubin = Fatbin = LTOIR = Object = PTXSource = LinkableCode


class IpcHandle:
    """A handle of memory for other processes; there are none here."""


@outermost
def set_memory_manager(manager: Any) -> NoReturn:
    """Refuse: kernels run on arrays where they lie, and no manager would be asked."""
    raise LaunchError("set_memory_manager", found=repr(manager), expected="no manager",
                      hint="arrays of other libraries are passed as they are")


@outermost
def open_ipc_array(*handle: Any, **options: Any) -> NoReturn:
    """Refuse: arrays lie in the memory of one process."""
    del options
    refuse_handle(handle)


def refuse_handle(memory: Any) -> NoReturn:
    """Raise that there is no handle of memory for other processes."""
    raise LaunchError("IPC handle", found=f"{type(memory).__name__} in the memory of this process",
                      expected="multiprocessing.shared_memory, and an array on its buffer",
                      hint="kernels take such arrays as they are")
