"""`weft.jit` with symbolic sizes: one capture serves every size of an axis.

The axes that the caller names are VARIABLEs in the captured graph, which is compiled once for their
whole range. A call reads their values from the shapes of its arguments, checks them, and replays
the capture *at* these values: shapes of results, buffers and arena have the actual sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast, overload

import numpy as np

from weft.capture import recapture
from weft.capture.captured_graph import Entry, Packs, capturing
from weft.capture.captured_values import Argument, Overlap, argument_of
from weft.capture.jit import MOST_TRIES, Jitted, key_of
from weft.capture.pytree import flatten, is_array, numbers_of
from weft.capture.runtime_sizes import Pattern, Resized
from weft.capture.symbolic import DynamicEntry
from weft.config import config
from weft.errors import CaptureError, DTypeError, VariableError
from weft.exchange import host
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.runtime_scalars import Scalars
from weft.tensors.core.tensor_value import realize_all
from weft.tensors.core.thread_state import state

__all__ = ["DynamicJitted", "jit"]

P = ParamSpec("P")
R = TypeVar("R")
Dynamic = Mapping[str | int, Mapping[int, Any]]
Names = Iterable[str | int] | str | int
_MOST: Final = 256  # families of signatures that are kept
_ALL: Final = range(1 << 62)  # positions of numbers


class _Spec(NamedTuple):
    """The symbolic axes of one argument."""

    label: str
    position: int | None
    name: str | None
    axes: tuple[tuple[int, Expr], ...]


class DynamicJitted(Jitted[P, R]):
    """A function that is captured once for a range of sizes."""

    def __init__(self, function: Callable[P, R], dynamic: Any, packs: Packs = False,
                 static: Collection[int | str] = ()) -> None:  # fmt: skip
        super().__init__(function, packs, static)
        self._specs = _parse(function, dynamic)

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if state.capture is not None:  # a captured function within another one
            return self._function(*args, **kwargs)
        simple = not kwargs and all(
            type(a) is Tensor and a._base is None and not a._requires_grad for a in args)
        if simple:
            realize_all(args)
            if self._recall(args):
                return self._called(args, {})
        arrays: list[Any] = []
        first: dict[int | str, int] = {}  # of each argument: the number of its first array
        every: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for place, value in every:
            first[place] = len(arrays)
            flatten(value, arrays)
        realize_all([a for a in arrays if isinstance(a, TensorCore)])
        chosen = [(s, first[p], v) for s in self._specs
                  for p, v in [_find(s, args, kwargs)] if v is not None]  # fmt: skip
        for _, i, value in chosen:
            if not isinstance(value, TensorCore):
                array = host.as_array(value, "jit")
                arrays[i] = np.ascontiguousarray(array) if array.ndim else array
        given = [argument_of(a) for a in arrays]
        symbolic, values = list(given), dict[str, int]()
        origin: dict[str, str] = {}
        for spec, i, _ in chosen:
            symbolic[i] = _symbolic(spec, symbolic[i], values, origin)
        tensors = [a.tensor for a in given]
        try:
            entry, scalars = self._found(args, kwargs, symbolic, tensors)
            if entry.changes and self._places(arrays)[1] is not None:
                raise Overlap(())
        except Overlap:
            raise CaptureError(
                "jit", found="an argument that the function changes and knows by another name",
                expected="no common memory where sizes are dynamic", hint="clone() it first",
            ) from None
        inputs = [a.buffer for a in given]
        if entry.changes and entry.is_by_hand(inputs, tensors):
            entry.take_turn()
            return self._function(*args, **kwargs)
        base = cast(DynamicEntry, entry)
        ready = base.at(values)
        if ready.tries < MOST_TRIES:
            self._prepare(ready, args, kwargs, arrays)
        if simple and all(b.on_host for b in inputs):
            dtypes = tuple([a.dtype for a in args])
            self._remember(key_of(args, inputs), ready)
            if len(given) == len(args):
                shapes: tuple[tuple[Any, ...], ...] = tuple([a.shape for a in symbolic])
                bounds = {d.attr.name: (d.attr.min, d.attr.max)
                          for shape in shapes for d in shape if isinstance(d, Expr)}
                pattern = Pattern(shapes, bounds)
                self._last_sized = Resized(None, pattern, base, dtypes, state.grad)
        return cast(R, ready.run(inputs, tensors, scalars))

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any], symbolic: Sequence[Argument],
               tensors: Sequence[TensorCore | None]) -> tuple[Entry, list[Any]]:  # fmt: skip
        """Return the capture for a call, and memory that holds the numbers that it reads."""
        numbers: list[int | float] = []
        rest = (tuple([a.key for a in symbolic]), state.grad)
        signature = (numbers_of((args, kwargs), numbers, _ALL), rest)
        family = self._families.get(signature)
        if family is None:
            if len(self._families) >= _MOST:
                self._families.pop(next(iter(self._families)))
            family = self._families[signature] = recapture.family_of(
                self._function, self._static, args, kwargs)
        make = functools.partial(DynamicEntry, self._function, args, kwargs, symbolic, self._packs)
        is_static = False
        while True:
            positions = () if is_static else family.open(numbers)
            entry = self._fitting((numbers_of((args, kwargs), [], positions), rest), tensors)
            if entry is None:
                with capturing:
                    entry = (recapture.opened(family, make, Scalars(numbers, positions))
                             if positions else make())
                if entry is None:
                    continue
                still = () if entry.scalars is None else entry.scalars.positions
                self._keep((numbers_of((args, kwargs), [], still), rest), entry)
            read = [] if entry.scalars is None else entry.scalars.buffers(numbers)
            if read is not None:
                return entry, read
            is_static = True  # derived numbers of other types than at the capture


def _find(spec: _Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | str, Any]:
    """Return where an argument stands in a call, and its value (None if it is left out)."""
    place: int | str = -1
    value: Any = None
    if spec.name is not None and spec.name in kwargs:
        place, value = spec.name, kwargs[spec.name]
    elif spec.position is not None and spec.position < len(args):
        place, value = spec.position, args[spec.position]
    if value is None or isinstance(value, TensorCore) or is_array(value):
        return place, value
    raise DTypeError("jit", found=f"{spec.label}, {describe(value)}",
                     expected="a tensor or an array: axes of it are dynamic")


def _symbolic(spec: _Spec, argument: Argument, values: dict[str, int], origin: dict[str, str]
              ) -> Argument:  # fmt: skip
    """Return an argument with symbolic sizes; note the values of the variables."""
    shape: list[Any] = list(argument.shape)
    for given, variable in spec.axes:
        axis = infer.check_axis(given, len(shape), f"jit, {spec.label}")
        name, low, high = variable.attr.name, variable.attr.min, variable.attr.max
        size = argument.shape[axis]
        if not low <= size <= high:
            raise VariableError("jit", found=f"the size {size} on axis {axis} of {spec.label}",
                                expected=f"{name} from {low} to {high}")
        if values.setdefault(name, size) != size:
            raise VariableError(
                "jit", found=f"the size {size} on axis {axis} of {spec.label}",
                expected=f"{name} = {values[name]}, as {origin[name]} has it",
            )
        origin.setdefault(name, f"axis {axis} of {spec.label}")
        shape[axis] = variable
    sizes = cast("tuple[int, ...]", infer.check_shape(shape, "jit"))
    return argument._replace(shape=sizes, span=cast(int, nd.size(sizes)))


def _parse(function: Callable[..., Any], dynamic: Any) -> list[_Spec]:
    """Return the symbolic axes of each argument.

    Raises
    ------
    DTypeError, CaptureError, VariableError
        If `dynamic` is no such table, names no argument, or its variables do not serve as sizes.
    """
    if not isinstance(dynamic, Mapping):
        raise DTypeError("jit", found=f"dynamic={describe(dynamic)}", expected=_EXPECTED)
    import inspect  # slow to import, and few functions have dynamic axes

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = not parameters or any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {*names, *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)}
    variables: dict[str, Expr] = {}
    specs = []
    for key, axes in dynamic.items():
        if isinstance(key, str) and (key in known or is_open):
            position: int | None = names.index(key) if key in names else None
            name: str | None = key
        elif isinstance(key, int) and not isinstance(key, bool) and key >= 0:
            position, name = key, names[key] if key < len(names) else None
        else:
            raise CaptureError("jit", found=f"dynamic axes of the argument {describe(key)}",
                               expected="one of " + (", ".join(sorted(known)) or "no arguments"))
        if not isinstance(axes, Mapping):
            raise DTypeError("jit", found=f"{describe(axes)} for the argument {key!r}",
                             expected=_EXPECTED)
        label = f"the argument {name or position!r}"
        for axis, variable in axes.items():
            infer.as_int(axis, f"jit, axes of {label}")
            if not isinstance(variable, Expr) or variable.op is not Op.VARIABLE:
                raise DTypeError("jit", found=f"{describe(variable)} for axis {axis} of {label}",
                                 expected="a weft.Variable")
            bounds = variable.attr
            if bounds.min < 1:
                raise VariableError("jit", found=f"{bounds.name} from {bounds.min}",
                                    expected="sizes of at least 1",
                                    hint="empty arrays are a capture of their own")
            if variables.setdefault(bounds.name, variable) is not variable:
                raise VariableError("jit", found=f"two variables {bounds.name}",
                                    expected="other names, or equal bounds")
        specs.append(_Spec(label, position, name, tuple(axes.items())))
    return specs


def _names(given: Any, parameter: str) -> tuple[int | str, ...]:
    """Return arguments by name and position."""
    found = (given,) if isinstance(given, int | str) else given
    if isinstance(found, Iterable) and not isinstance(found, bytes):
        found = tuple(found)
        if all(isinstance(v, str) or (isinstance(v, int) and v >= 0) for v in found):
            return found
    raise DTypeError("jit", found=f"{parameter}={describe(given)}",
                     expected="names and positions of arguments, such as ('n', 2)")


_EXPECTED: Final = "a table such as {'x': {0: weft.Variable('n', 1, 1024)}}"


@overload
def jit(function: Callable[P, R], *, dynamic: Dynamic | Names | None = None,
        static: Names = (), pack_weights: bool | int | None = None
        ) -> Jitted[P, R]: ...  # fmt: skip
@overload
def jit(function: None = None, *, dynamic: Dynamic | Names | None = None,
        static: Names = (), pack_weights: bool | int | None = None
        ) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...  # fmt: skip
def jit(function: Callable[..., Any] | None = None, *,
        dynamic: Dynamic | Names | None = None,
        static: Names = (), pack_weights: bool | int | None = None) -> Any:  # fmt: skip
    """Return a function that is captured at its first call and replayed afterwards.

    Arguments may be tensors, NumPy arrays, PyTorch tensors, containers of them, and hashable
    values, which are part of the signature. The function must not read values of tensors.

    A change of what is learned, of a module's mode or of which gradients are there leads to another
    capture; other Python values that are no arguments are those of the capture.

    Parameters
    ----------
    function
        What to capture; without it a decorator is returned.
    dynamic
        Arguments, by name or position, whose numbers and sizes must be no constants: a function
        that needs to know one raises an error that names the line. Or a table of axes whose size
        may differ from call to call: of each argument, by name or position, its axes with
        the `weft.Variable` that stands for the size. The function is captured and compiled
        once for the whole range; axes with one variable must agree in size::

            n = weft.Variable("n", 1, 1024)

            @weft.jit(dynamic={"tokens": {1: n}, "mask": {0: n, 1: n}})
            def forward(tokens, mask): ...

        Inside, such a size is symbolic: it computes (``x.reshape(n * 8, -1)``, ``x[:n - 1]``,
        ``total / n``), and a comparison answers what holds for the whole range, or raises. What
        must know a size (``range(n)``, windows, steps of slices) raises an UnsupportedError.
    static
        Arguments, by name or position, whose numbers and sizes are always constants of a capture:
        there is one capture for each. Without it a number that changes from one call to another is
        read at each call from the second value on, and an axis that changes has any size from the
        second on, unless the function needs to know it (``fn.explain_captures()`` tells why), or
        keeps what it computes from it.
    pack_weights
        Whether weights keep the layout in which products read them: tensors that the function
        knows by itself and only reads are copied into panels once, and again after they were
        written, instead of at each call. Results are the same bits. It takes as much memory again
        as these weights (``packed_bytes`` of the function tells); a number of bytes limits it.
        The default is the setting ``WEFT_PACK_WEIGHTS``, off.

    Raises
    ------
    CaptureError
        At the first call, if the function reads a value: ``item()``, ``if tensor:``, ``print``. At
        a later one, if it needs to know a number or a size that ``dynamic=`` names.
    VariableError
        At a call, if a dynamic size is out of bounds, or two sizes of one variable differ.

    Examples
    --------
    >>> @weft.jit
    ... def scaled(x):
    ...     return x * 2.0 + 1.0
    >>> scaled(weft.tensor([1.0, 2.0])).tolist()
    [3.0, 5.0]
    """
    if function is None:
        return functools.partial(jit, dynamic=dynamic, static=static, pack_weights=pack_weights)
    packs = config().pack_weights if pack_weights is None else pack_weights
    if not isinstance(packs, int) or packs < 0:
        raise DTypeError("jit", found=f"pack_weights={describe(packs)}",
                         expected="True, False or a number of bytes")
    constant = _names(static, "static")
    if isinstance(dynamic, str | list | tuple | set | frozenset):
        return Jitted(function, packs, constant, _names(dynamic, "dynamic"))
    if dynamic is None:
        return Jitted(function, packs, constant)
    return DynamicJitted(function, dynamic, packs, constant)
