"""What programs ask of a compiled kernel: its forms, their texts, and what a launch of one needs.

A form is the code for arguments of some types. Here a kernel is also compiled for each size of a
block, so a form stands for the one that was compiled first; a kernel with a signature that was not
launched yet is compiled for blocks of 128 threads when it is asked.

Texts are those of the device that runs kernels: LLVM IR, and assembly of the CPU where a program
expects PTX or SASS. There are no registers of a thread: its values are lanes of vectors. What is
asked about them is answered with what a launch may count on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from weft.compat.numba_types import ArrayOf, Signature, from_dtype, void
from weft.compat.signatures import parse_signature
from weft.errors import KernelError
from weft.ir.stmt import MOST_WAITING
from weft.lang.launch.launch import KernelFunction
from weft.lang.values.types import dense

__all__ = ["CacheStats", "Inspected", "Overload", "Overloads"]

_BLOCK: Final = 128  # threads, where no launch has said how many
_WARP: Final = 32
_DYNAMIC: Final = 16 << 10  # bytes of dynamic shared memory, where a launch may give some
_REGISTERS: Final = 32  # what a program may count on: any block fits, as on a GPU with this many
_CONSTANTS: Final = 64 << 10


class CacheStats(NamedTuple):
    """Where compiled kernels are kept, and how often they were found there."""

    cache_path: str
    cache_hits: dict[Any, int]
    cache_misses: dict[Any, int]


class Overload:
    """A form of a kernel: for arguments of some types."""

    def __init__(self, kernel: Inspected, key: tuple[Any, ...] | None) -> None:
        self._kernel, self._key = kernel, key

    @property
    def signature(self) -> Signature:
        """The types of its arguments."""
        key = self._key
        return Signature(void, () if key is None else self._kernel.types_of_form(key))

    argument_types = property(lambda self: self.signature.args)

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """Return how many blocks may wait for each other at a barrier of the grid."""
        del dynsmemsize
        threads = 1
        for n in blockdim if isinstance(blockdim, tuple | list) else (blockdim,):
            threads *= n
        return max(MOST_WAITING // max(threads, 1), 0)

    @property
    def cooperative(self) -> bool:
        """Whether its blocks wait for the whole grid."""
        return bool(self._kernel.waits)

    @property
    def regs_per_thread(self) -> int:
        """A number of registers with which every block fits."""
        return _REGISTERS

    @property
    def const_mem_size(self) -> int:
        """Bytes of the arrays that the kernel knows from outside."""
        return int(self._module().constant_bytes)

    @property
    def shared_mem_per_block(self) -> int:
        """Bytes of shared arrays whose sizes the kernel says."""
        return int(self._module().entries[0].shared)

    @property
    def local_mem_per_thread(self) -> int:
        """Bytes of local arrays."""
        from weft.ir.stmt import Alloc
        from weft.ir.traverse import walk
        from weft.schedule.analysis.space import constant

        nest, _ = self._kernel.nest_of_form(self._key)
        arrays = [s.memory for s in walk(nest.body) if isinstance(s, Alloc)]
        return sum((constant(m.size) or 0) * m.dtype.itemsize
                   for m in arrays if m.scope == "local")

    @property
    def max_threads_per_block(self) -> int:
        """Most threads of a block."""
        return int(self._kernel.options.max_threads)

    def inspect_llvm(self) -> str:
        """Return the LLVM IR."""
        return self._kernel.texts_of_form(self._key)[0]

    def inspect_asm(self, cc: Any = None) -> str:
        """Return the assembly of the CPU."""
        del cc
        return self._kernel.texts_of_form(self._key)[1]

    inspect_sass = inspect_asm

    def inspect_sass_cfg(self) -> str:
        """Refuse: a graph of control flow is drawn by a tool for GPUs."""
        raise KernelError("inspect_sass_cfg", found="a kernel for the CPU",
                          expected="inspect_asm(), or inspect_llvm() for LLVM's own tools")

    def _module(self) -> Any:
        return self._kernel.module_of_form(self._key)


class Overloads(Mapping[Any, Overload]):
    """The forms of a kernel by the types of their arguments, in the order of their compilation."""

    def __init__(self, kernel: Inspected) -> None:
        self._kernel = kernel

    def __getitem__(self, signature: Any) -> Overload:
        """Return the form for arguments of some types; for others, one that is as good."""
        forms = self._kernel.forms()
        found = forms.get(_asked(signature))
        return Overload(self._kernel, next(iter(forms.values()), None) if found is None else found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._kernel.forms())

    def __len__(self) -> int:
        return len(self._kernel.forms())


class Inspected(KernelFunction):
    """A kernel that answers what `numba.cuda`'s dispatchers are asked."""

    specialized = False
    extensions: tuple[Any, ...] = ()
    targetoptions: dict[str, Any]  # what `jit` was given

    def forms(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return the keys of the forms by the types of their arguments."""
        if not self._loaded and self._signature.is_complete and self._signature.names:
            super().compile(min(_BLOCK, self.options.max_threads))
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for key in self._loaded:
            found.setdefault(self.types_of_form(key), key)
        return found

    def types_of_form(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return numba's types of the arguments of a form."""
        return tuple(map(_numbas, self._signature.unfolded(key[0])))

    def check_types(self) -> None:
        """Read the kernel for the types that its signature gives, as numba does at once.

        Raises
        ------
        KernelError
            What is wrong in it whatever the launch. It is read for one warp, of which nothing is
            known to be wrong that would be right for more threads.
        """
        from weft.lang.launch.variants import translated

        if self._signature.is_complete:
            types: Any = dict(self._signature.wanted)
            launch = self._made(1, min(_WARP, self.options.max_threads), None, _DYNAMIC)
            translated(self, types, launch)

    def compile_types(self, types: dict[str, Any]) -> None:
        """Compile for the types of a signature, where it names those of all parameters."""
        from weft.lang.launch.signature import Signature

        if Signature(self.__weft_function__, types, takes_rest=True).is_complete:
            block = min(_BLOCK, self.options.max_threads)
            held = {name: dense(kind) for name, kind in types.items()}  # as most arrays are
            self._made(1, block, None, 0)._variant(held)

    def nest_of_form(self, key: tuple[Any, ...] | None) -> tuple[Any, Any]:
        """Return the loop-level kernel of a form and its constants."""
        from weft.lang.launch.variants import translated

        if key is None:
            raise KernelError(f"kernel {self.__name__}", found="no form that is compiled",
                              expected="a launch first, or a signature in @cuda.jit")
        types, block, ndim, shared, grid = key
        configured = self._made(grid or (2,) * ndim, block, None, shared)
        return translated(self, dict(zip(self._signature.names, types, strict=True)), configured)

    def module_of_form(self, key: tuple[Any, ...] | None) -> Any:
        """Return what the module of a form tells of itself."""
        from weft.ir.module import described

        nest, constants = self.nest_of_form(key)
        return described(nest, self.functions, len(constants))

    def texts_of_form(self, key: tuple[Any, ...] | None) -> tuple[str, str]:
        """Return the LLVM IR and the assembly of a form."""
        from weft.driver.context import host_context
        from weft.driver.launch import texts

        nest, constants = self.nest_of_form(key)
        return texts(nest, host_context(), constants)

    @property
    def overloads(self) -> Overloads:
        """The compiled forms of the kernel by the types of its arguments."""
        return Overloads(self)

    @property
    def definitions(self) -> Overloads:
        """The compiled forms of the kernel, by an older name."""
        return Overloads(self)

    @property
    def definition(self) -> Overload:
        """The only form of a kernel that has one, by an older name."""
        return self.overloads[()]

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """The types of arguments of the forms that are compiled so far."""
        return list(self.forms())

    nopython_signatures = signatures

    @property
    def stats(self) -> CacheStats:
        """Where compiled kernels are kept."""
        from weft.driver.context import disk

        return CacheStats(str(disk().path), {}, {})

    def get_regs_per_thread(self, signature: Any = None) -> Any:
        """Return a number of registers with which every block fits, for one form or by form."""
        return self._asked(signature, "regs_per_thread")

    def get_const_mem_size(self, signature: Any = None) -> Any:
        """Return the bytes of arrays that the kernel knows from outside, for a form or by form."""
        return self._asked(signature, "const_mem_size")

    def get_shared_mem_per_block(self, signature: Any = None) -> Any:
        """Return the bytes of shared arrays with known sizes, for one form or by form."""
        return self._asked(signature, "shared_mem_per_block")

    def get_local_mem_per_thread(self, signature: Any = None) -> Any:
        """Return the bytes of local arrays, for one form or by form."""
        return self._asked(signature, "local_mem_per_thread")

    def get_max_threads_per_block(self, signature: Any = None) -> Any:
        """Return the most threads of a block, for one form or by form."""
        return self._asked(signature, "max_threads_per_block")

    def inspect_llvm(self, signature: Any = None) -> Any:
        """Return the LLVM IR, of one form or by form."""
        return self._asked(signature, "inspect_llvm")

    def inspect_asm(self, signature: Any = None) -> Any:
        """Return the assembly of the CPU, of one form or by form."""
        return self._asked(signature, "inspect_asm")

    def inspect_sass(self, signature: Any = None) -> Any:
        """Return the assembly of the CPU, of one form or by form."""
        return self._asked(signature, "inspect_asm")

    ptx = asm = property(inspect_asm)

    def inspect_sass_cfg(self, signature: Any = None) -> Any:
        """Refuse: a graph of control flow is drawn by a tool for GPUs."""
        return self._asked(signature, "inspect_sass_cfg")

    def inspect_types(self, file: Any = None) -> None:
        """Print the kernel as it was understood, with the types of all its values."""
        from weft.ir.text.text import print_kernel

        file = sys.stdout if file is None else file
        for types, key in self.forms().items():
            nest, _ = self.nest_of_form(key)
            print(f"{self.__name__} {types}", "-" * 80, print_kernel(nest), "=" * 80, sep="\n",
                  file=file)

    def _asked(self, signature: Any, what: str) -> Any:
        """Return a fact of the form with a signature, without one those of all forms."""
        def fact(form: Overload) -> Any:
            found = getattr(form, what)
            return found() if callable(found) else found

        if signature is not None:
            return fact(self.overloads[signature])
        if self.specialized and not what.startswith("inspect"):
            return fact(self.overloads[()])
        return {types: fact(form) for types, form in self.overloads.items()}


def _asked(signature: Any) -> tuple[Any, ...]:
    """Return the types of arguments that a program asks for."""
    return () if signature == () else parse_signature(signature).args


def _numbas(kind: Any) -> Any:
    """Return numba's type of an argument; where it has none of these names, Weft's."""
    d = getattr(kind, "dtype", None)
    numpy = getattr(d, "numpy", None)
    if numpy is None:
        return kind
    scalar = from_dtype(numpy)
    ndim = getattr(kind, "ndim", None)
    return scalar if ndim is None else ArrayOf(scalar, ndim, kind.order)
