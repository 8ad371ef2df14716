"""`weft.jit`: a function captured once for each signature and replayed as one native call.

The signature is the structure of the arguments, the shape, dtype, strides and device of every
array, and the value of everything else. What a capture finds becomes the replay: tensors from
outside are read anew each time; tensors that were written (parameters, gradients, optimiser state,
running statistics) get their new values; random streams advance.

Besides the arguments a capture depends on the gradient mode, on which tensors are learned, on the
modes of modules (`train`, `eval`) and on which gradients are there, and is made anew for others. It
does not see other Python values change: numbers, lists and attributes that the function looks at
without being given them are those of the capture.

A call that fails, or is interrupted, changes no tensor from outside, with one exception: where a
function replaces large tensors and does not read their old gradients (as a training step, after
`zero_grad`), the new ones take the memory of the old ones, which are None if the call fails, as
`zero_grad` leaves them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from weft.errors import outermost, trim
from weft.frontend import panels
from weft.frontend.core import TensorCore, realize_all
from weft.frontend.entry import (
    Entry,
    Out,
    Overlap,
    Packs,
    Place,
    argument_of,
    base_of,
)
from weft.frontend.pytree import flatten
from weft.frontend.state import state
from weft.frontend.tensor import Tensor
from weft.imports import importing
from weft.ir.dtype import DType

__all__ = ["MOST_TRIES", "Jitted", "capturing"]

P = ParamSpec("P")
R = TypeVar("R")
MOST_TRIES: Final = 8  # calls of a signature in Python that may give it a native dispatch
capturing = threading.RLock()  # a capture changes the tensors it watches, until it ends


class Jitted(Generic[P, R]):
    """A function that is captured once for each signature of its arguments.

    A signature that comes again gets a native dispatch (`weft.frontend.replay`): from then on the
    class of the function has a native call slot, and what is here is only reached where no
    dispatch fits.
    """

    __slots__ = ("__dict__", "__weakref__", "_dispatch")

    def __init__(self, function: Callable[P, R], packs: Packs = False) -> None:
        self._dispatch: Any = None
        self._function, self._packs = function, packs
        self._entries: dict[Hashable, list[Entry]] = {}
        # Tensors that the function knows both as arguments and by itself, and changes.
        self._joined: dict[int, weakref.ref[TensorCore]] = {}
        # What the first check of a call compares: (shape, dtype) of each argument, gradient mode.
        self._fast: tuple[tuple[tuple[tuple[int, ...], DType], ...], Entry, bool] | None = None
        functools.update_wrapper(self, function)
        self.captures = 0  # how many signatures were captured

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay the captured function, capturing it first for a new signature."""
        try:
            return self._missed(args, kwargs)
        except Exception as error:
            trim(error)
            raise

    @outermost  # native code calls it
    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> R:
        return self._missed(args, kwargs)

    def _missed(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> R:
        """Call the function where no native dispatch fits."""
        fast = self._fast
        if fast is not None and not kwargs:
            specs, entry, grad = fast
            if len(args) == len(specs) and state.capture is None and state.grad is grad:
                inputs: list[Any] = []
                for arg in args:
                    if type(arg) is not Tensor or arg._requires_grad or arg._base is not None:
                        break
                    shape, dtype = specs[len(inputs)]
                    buffer = arg._buffer
                    if buffer is None or arg.dtype is not dtype or arg.shape != shape:
                        break
                    inputs.append(buffer)
                else:
                    if entry.tries < MOST_TRIES:
                        self._prepare(entry, args, {}, args)
                    if entry.is_plain:
                        return entry.run_plain(inputs)  # type: ignore[no-any-return]
                    tensors = cast("Sequence[TensorCore]", args)
                    if entry.fits(tensors) and (not entry.changes or (
                        len({*map(id, tensors)}) == len(tensors)
                        and not entry.has_twins(inputs, tensors)
                    )):
                        return cast(R, entry.run(inputs, tensors))
        return self._general(args, kwargs or {})

    def _prepare(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any],
                 arrays: Sequence[Any]) -> None:  # fmt: skip
        """Make a native dispatch for a signature that comes again."""
        entry.tries += 1
        kinds = tuple(map(type, arrays))
        if entry.tries > 1 and kinds not in entry.attached:
            entry.attached.add(kinds)
            with importing:
                from weft.frontend import replay  # of no use to what is called once

            replay.attach(Jitted, Out, self, entry, args, kwargs)

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if state.capture is not None:  # a captured function within another one
            return self._function(*args, **kwargs)
        arrays: list[Any] = []
        structure = flatten((args, kwargs), arrays)
        realize_all([a for a in arrays if isinstance(a, TensorCore)])
        while True:
            sources, places = self._places(arrays)
            arguments = [argument_of(a) for a in sources]
            tensors = [a.tensor for a in arguments]
            key = (structure, places, tuple([a.key for a in arguments]), state.grad)
            entry = next((e for e in self._entries.get(key, ()) if e.fits(tensors)), None)
            if entry is None:
                try:
                    with capturing:
                        entry = Entry(self._function, args, kwargs, arguments, places,
                                      self._packs)
                except Overlap as found:
                    self._joined.update((id(t), weakref.ref(t)) for t in found.tensors)
                    continue
                self._keep(key, entry)
            break
        inputs = [a.buffer for a in arguments]
        if entry.changes and entry.has_twins(inputs, tensors):
            return self._function(*args, **kwargs)
        if entry.tries < MOST_TRIES:
            self._prepare(entry, args, kwargs, arrays)
        self._fast = None
        if places is None and not kwargs and len(args) == len(arguments) and all(
            type(a) is Tensor and a._base is None and not a._requires_grad for a in args
        ):
            self._fast = tuple((a.shape, a.dtype) for a in arguments), entry, state.grad
        return cast(R, entry.run(inputs, tensors))

    def _places(self, arrays: list[Any]) -> tuple[list[Any], tuple[Place, ...] | None]:
        """Return the distinct sources of the arguments, and where each argument lies in them.

        Arguments that are one tensor, or views of one, must see each other's changes; so must
        those that the function knows by itself as well. None: every argument is a source.
        """
        bases = [base_of(a) if isinstance(a, TensorCore) else None for a in arrays]
        keys = [id(b) for b in bases if b is not None]
        if len({*keys}) == len(keys) and not (self._joined and any(map(self._is_joined, bases))):
            return arrays, None
        sources: list[Any] = []
        found: list[Place] = []
        first: dict[int, int] = {}
        for array, base in zip(arrays, bases, strict=True):
            joined = self._is_joined(base)
            if base is None or (keys.count(id(base)) == 1 and not joined):
                found.append(Place(len(sources)))
                sources.append(array)
                continue
            if id(base) not in first:
                first[id(base)] = len(sources)
                sources.append(base)
            path = array._path if array is not base else ()
            found.append(Place(first[id(base)], path, id(base) if joined else None))
        return sources, tuple(found)

    def _is_joined(self, tensor: TensorCore | None) -> bool:
        ref = self._joined.get(id(tensor))
        return ref is not None and ref() is tensor

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self._entries.setdefault(key, []).append(entry)
        self.captures += 1

    @property
    def packed_bytes(self) -> int:
        """How many bytes the panels of weights take that are kept between calls."""
        return panels.held(k for entries in self._entries.values() for e in entries
                           for k in e.kept)
