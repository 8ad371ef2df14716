"""``numba.vectorize`` and ``numba.guvectorize``: functions of numbers applied to whole arrays."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft.compat.arrays import DeviceArray, as_cuda_array, is_cuda_array
from weft.compat.numba_types import (
    ArrayOf,
    NumbaType,
    Signature,
    is_of_numba,
    void,
)
from weft.compat.signatures import parse_signature
from weft.errors import (
    DTypeError,
    KernelError,
    LaunchError,
    ShapeError,
    outermost,
    outermost_methods,
    raised,
)
from weft.lang.device import gpu as _operations
from weft.lang.launch.device_function import DeviceFunction
from weft.lang.launch.launch import KernelFunction
from weft.lang.launch.options import Options, cdiv

__all__ = ["GUFunc", "UFunc", "guvectorize", "vectorize"]

gpu: Any = _operations
_THREADS: Final = 256
_SAMPLES: Final = (1, 2, 3)  # numbers to find the type of a result with


def _known(value: Any) -> Any:
    """Return an array of another library as one of ours, anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(_known, value))
    return as_cuda_array(value) if is_cuda_array(value) else value


def _applied(f: Any, arrays: int, counts: bool) -> Callable[..., None]:
    """Return a kernel that gives a function one element, or row, of each of its arrays.

    With `counts` the function sets rows of its last arrays and the kernel is told how many there
    are; else the first array takes what the function returns.
    """
    names = [f"x{k}" for k in range(arrays)]
    call = f"f({', '.join(f'{n}[i]' for n in names)})"
    first, size, body = ("n", "n", call) if counts else ("out", "out.size", f"out[i] = {call}")
    text = (f"def kernel({', '.join([first, *names])}):\n    i = gpu.grid(1)\n"
            f"    if i < {size}:\n        {body}\n")
    place = f"<weft.compat.vectorize of {arrays} {'rows' if counts else 'numbers'}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    made: dict[str, Any] = {"f": f, "gpu": gpu, "__name__": __name__}
    exec(compile(text, place, "exec"), made)
    kernel: Callable[..., None] = made["kernel"]
    kernel.__name__ = kernel.__qualname__ = f.__name__
    return kernel


@outermost_methods
class UFunc:
    """A function of numbers that takes arrays, as NumPy's ufuncs do."""

    __name__: str

    def __init__(self, function: Callable[..., Any], signatures: list[Signature]) -> None:
        self.__weft_function__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.nin = function.__code__.co_argcount
        self.nout = 1
        if not self.nin:
            raise KernelError(f"vectorize of {self.__name__}", found="no arguments",
                              expected="one at least")
        self._signatures = signatures
        for s in signatures:
            if len(s.args) != self.nin or not all(isinstance(t, NumbaType) for t in s.args):
                raise DTypeError(f"vectorize of {self.__name__}", found=str(s),
                                 expected=f"{self.nin} types of numbers")
        kernel = _applied(DeviceFunction(function), self.nin, False)
        self._kernel = KernelFunction(kernel, Options(True))

    @property
    def types(self) -> list[str]:
        """The signatures, in NumPy's letters."""
        return ["".join(t.kind.char for t in s.args) + "->" + self._result(s).char
                for s in self._signatures]

    def _result(self, signature: Signature) -> Any:
        """Return what a signature gives, which need not name it."""
        given = signature.result.kind
        return self._found([t.kind for t in signature.args]) if given is None else given

    def _found(self, kinds: list[Any]) -> Any:
        """Return what the function gives for numbers of some types."""
        samples = [np.asarray(_SAMPLES[j % 3]).astype(k)[()] for j, k in enumerate(kinds)]
        return np.asarray(self.__weft_function__(*samples)).dtype

    def _choose(self, arrays: list[Any]) -> tuple[list[Any], Any]:
        """Return the types to compute with: those of the first signature that holds the values."""
        kinds = [a.dtype for a in arrays]
        for rule in ("equiv", "safe", "same_kind"):
            for s in self._signatures:
                if all(np.can_cast(k, t.kind, rule) for k, t in zip(kinds, s.args, strict=True)):
                    return [t.kind for t in s.args], self._result(s)
        if self._signatures:
            raise DTypeError(self.__name__, found=", ".join(map(str, kinds)),
                             expected=" or ".join(self.types))
        return kinds, self._found(kinds)

    def __call__(self, *args: Any, out: Any = None, stream: Any = 0) -> Any:
        """Return the results for arrays that NumPy can broadcast, in `out` if it is given."""
        del stream
        if len(args) == self.nin + 1 and out is None:
            *args, out = args  # type: ignore[assignment]
        if len(args) != self.nin:
            raise LaunchError(self.__name__, found=f"{len(args)} arguments", expected=str(self.nin))
        args, out = [*map(_known, args)], _known(out)  # type: ignore[assignment]
        arrays = [np.asarray(a) for a in args]
        kinds, result = self._choose(arrays)
        try:
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        except ValueError as error:
            raise ShapeError(self.__name__, found=" and ".join(str(a.shape) for a in arrays),
                             expected="shapes that can be broadcast") from error
        flat = [np.ascontiguousarray(np.broadcast_to(a.astype(k, copy=False), shape)).reshape(-1)
                for a, k in zip(arrays, kinds, strict=True)]
        found = np.empty(shape, result)
        if found.size:
            self._kernel[cdiv(found.size, _THREADS), _THREADS](found.reshape(-1), *flat)
        if out is not None:
            if out.shape != shape:
                raise ShapeError(self.__name__, found=f"out of {out.shape}", expected=str(shape))
            np.copyto(np.asarray(out), found, casting="same_kind")
            return out
        if any(isinstance(a, DeviceArray) for a in args):
            return found.view(DeviceArray)
        return found if shape else found[()]

    def reduce(self, array: Any, stream: Any = 0) -> Any:
        """Return what is left of an array of one axis after combining pairs of its halves."""
        del stream
        if self.nin != 2:
            raise KernelError(f"{self.__name__}.reduce", found=f"{self.nin} arguments",
                              expected="a function of two")
        rest = np.asarray(array)
        if rest.ndim != 1 or not rest.size:
            raise ShapeError(f"{self.__name__}.reduce", found=f"an array of {rest.shape}",
                             expected="one axis, not empty")
        while rest.size > 1:
            half = rest.size // 2
            done = np.asarray(self(rest[:half], rest[half:2 * half]))
            rest = np.concatenate((done, rest[2 * half:])).astype(done.dtype, copy=False)
        return rest[0]


@outermost_methods
class GUFunc:
    """A function of arrays that takes arrays with more axes, as NumPy's generalised ufuncs do."""

    __name__: str

    def __init__(self, function: Callable[..., Any], signatures: list[Signature],
                 layout: str) -> None:  # fmt: skip
        self.__weft_function__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._signatures = signatures
        self.signature = layout
        self._inputs, self._outputs = _parse_layout(layout)
        self._count = len(self._inputs) + len(self._outputs)
        if self._count != function.__code__.co_argcount:
            raise KernelError(f"guvectorize of {self.__name__}", found=layout,
                              expected="an entry for each argument")
        for s in signatures:
            if s.result is not void:
                raise DTypeError(f"guvectorize of {self.__name__}", found=f"a result of {s.result}",
                                 expected="void: results are written to the last arguments")
            if len(s.args) != self._count:
                raise DTypeError(f"guvectorize of {self.__name__}", found=str(s),
                                 expected=f"{self._count} types")
        kernel = _applied(DeviceFunction(function), self._count, True)
        self._kernel = KernelFunction(kernel, Options(True))

    def _choose(self, arrays: list[Any]) -> list[Any]:
        for rule in ("equiv", "safe", "same_kind"):
            for s in self._signatures:
                kinds = [t.kind for t in s.args]
                if all(np.can_cast(a.dtype, k, rule) for a, k in zip(arrays, kinds, strict=False)):
                    return kinds
        if self._signatures:
            raise DTypeError(self.__name__, found=", ".join(str(a.dtype) for a in arrays),
                             expected=" or ".join(map(str, self._signatures)))
        result = np.result_type(*arrays)
        return [a.dtype for a in arrays] + [result] * len(self._outputs)

    def __call__(self, *args: Any, out: Any = None, stream: Any = 0) -> Any:
        """Return the results, in `out` if it is given."""
        del stream
        count = len(self._inputs)
        given, out = list(map(_known, args)), _known(out)
        outs = list(given[count:]) or ([] if out is None else
                                       list(out) if isinstance(out, tuple) else [out])
        if len(given) > count and out is not None:
            raise raised("ValueError")(self.__name__, found="results by place and by name",
                                       expected="one of both")
        if len(given) < count or len(outs) not in (0, len(self._outputs)):
            raise raised("TypeError")(self.__name__, found=f"{len(args)} arguments",
                                      expected=f"{count} and perhaps {len(self._outputs)} results")
        arrays = [np.asarray(a) for a in given[:count]]
        kinds = self._choose(arrays)
        sizes: dict[str, int] = {}
        for array, names in zip(arrays, self._inputs, strict=True):
            self._measure(array, names, sizes)
        for array, names in zip(outs, self._outputs, strict=bool(outs)):
            self._measure(np.asarray(array), names, sizes)
        loops = [a.shape[:a.ndim - len(n)] for a, n in zip(arrays, self._inputs, strict=True)]
        try:
            shape = np.broadcast_shapes(*loops)
        except ValueError as error:
            raise ShapeError(self.__name__, found=" and ".join(map(str, loops)),
                             expected="shapes that can be broadcast") from error
        rows = []
        types = self._signatures[0].args if self._signatures else ()
        shaped = [isinstance(t, ArrayOf) for t in types]
        for position, (array, names) in enumerate(zip(arrays, self._inputs, strict=True)):
            inner, kind = tuple(sizes[n] for n in names), kinds[position]
            if not inner and shaped and shaped[position]:  # a number as an array of one
                array, inner = array[..., None], (1,)
            whole = np.broadcast_to(array.astype(kind, copy=False), shape + inner)
            rows.append(_own(np.ascontiguousarray(whole), array).reshape(-1, *inner))
        results = []
        for position, names in enumerate(self._outputs):
            if any(n not in sizes for n in names):
                raise ShapeError(self.__name__, found=f"no size for {', '.join(names)}",
                                 expected="an array for the result")
            inner = tuple(sizes[n] for n in names) or (1,)
            made = np.zeros((int(np.prod(shape, dtype=np.int64)), *inner), kinds[count + position])
            if outs:
                made[...] = np.asarray(outs[position]).reshape(made.shape)
            results.append(made)
        total = int(np.prod(shape, dtype=np.int64))
        if total:
            self._kernel[cdiv(total, _THREADS), _THREADS](total, *rows, *results)
        found = [r.reshape(shape + tuple(sizes[n] for n in names))
                 for r, names in zip(results, self._outputs, strict=True)]
        if outs:
            for array, result in zip(outs, found, strict=True):
                np.copyto(np.asarray(array), result)
            found = outs
        elif any(isinstance(a, DeviceArray) for a in given):
            found = [f.view(DeviceArray) for f in found]
        return found[0] if len(found) == 1 else tuple(found)

    def _measure(self, array: Any, names: tuple[str, ...], sizes: dict[str, int]) -> None:
        if array.ndim < len(names):
            raise ShapeError(self.__name__, found=f"an array of {array.ndim} axes",
                             expected=f"at least {len(names)}")
        for name, n in zip(names, array.shape[array.ndim - len(names):], strict=True):
            if sizes.setdefault(name, n) != n:
                raise ShapeError(self.__name__, found=f"{name} = {sizes[name]} and {n}",
                                 expected="one size")


def _own(array: Any, given: Any) -> Any:
    """Return an array that a function may write to: its input is not changed by that."""
    return array.copy() if not array.flags.writeable or np.may_share_memory(array, given) else array


def _parse_layout(layout: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the names of the axes of each input and output: ``(m,n),(n)->(m)``."""
    sides = layout.replace(" ", "").split("->")
    if len(sides) != 2:
        raise KernelError("guvectorize", found=layout, expected="a layout such as (n),()->(n)")
    found = []
    for side in sides:
        inner = side.removeprefix("(").removesuffix(")").split("),(") if side else []
        found.append([tuple(n for n in part.split(",") if n) for part in inner])
    return found[0], found[1]


def _signatures(given: Any) -> list[Signature]:
    if given is None:
        return []
    return [parse_signature(g) for g in (given if isinstance(given, list) else [given])]


@outermost
def vectorize(signatures: Any = None, **options: Any) -> Any:
    """Make a function of numbers take arrays; `signatures` are types such as float32(float32)."""
    del options  # of compilation
    if callable(signatures) and not (
        isinstance(signatures, NumbaType | Signature) or is_of_numba(signatures)
    ):
        return UFunc(getattr(signatures, "__weft_function__", signatures), [])

    @outermost
    def make(function: Callable[..., Any]) -> UFunc:
        return UFunc(getattr(function, "__weft_function__", function), _signatures(signatures))

    return make


@outermost
def guvectorize(signatures: Any, layout: str | None = None, **options: Any) -> Any:
    """Make a function of arrays take arrays with more axes; `layout` is ``(n),()->(n)``."""
    if not options.pop("nopython", True):
        raise DTypeError("guvectorize", found="nopython=False", expected="nopython=True")
    del options
    types, text = (None, signatures) if layout is None else (signatures, layout)

    @outermost
    def make(function: Callable[..., Any]) -> GUFunc:
        return GUFunc(getattr(function, "__weft_function__", function), _signatures(types), text)

    return make
