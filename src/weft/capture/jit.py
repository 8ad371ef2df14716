"""`weft.jit`: capture a function once for each signature, replay it as one native call.

The signature is the structure of the arguments, the shape, dtype, strides and device of every
array, and the value of everything else. An int or float that changes is read at each call instead,
unless the function needs to know its value (`weft.capture.recapture`), and a size that changes is
a variable in a capture for many sizes, unless it needs to know that (`weft.capture.runtime_sizes`).
What a capture finds becomes the replay: tensors from outside are read anew each time; tensors that
were written (parameters, gradients, optimiser state, running statistics) get their new values;
random streams advance.

Besides the arguments a capture depends on the gradient mode, on which tensors are learned, on the
modes of modules (`train`, `eval`), on options and groups of optimisers that it steps and on which
gradients are there, and is made anew for others. It does not see other Python values change:
numbers, lists and attributes that the function looks at without being given them are those of the
capture. The function runs once for a capture, and so do its side effects in Python; what it keeps
of its sizes and numbers are plain numbers afterwards.

A call that fails, or is interrupted, changes no tensor from outside, with one exception: where a
function replaces large tensors and does not read their old gradients (as a training step, after
`zero_grad`), the new ones take the memory of the old ones, which are None if the call fails, as
`zero_grad` leaves them.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast

from weft import driver
from weft.capture import packed_weights
from weft.capture.captured_graph import Entry, Packs, capturing
from weft.capture.captured_values import Argument, Out, Overlap, Place, argument_of, base_of
from weft.capture.pytree import flatten, numbers_of
from weft.driver.lru_table import LruTable
from weft.errors import outermost, trim
from weft.imports import importing
from weft.ir.dtype import DType
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import views
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.runtime_scalars import Scalars
from weft.tensors.core.tensor_value import realize_all
from weft.tensors.core.thread_state import state
from weft.tensors.core.write_lock import OutOfTurn, changing

if TYPE_CHECKING:
    from weft.capture.recapture import Family
    from weft.capture.runtime_sizes import Pattern, Resized, SizeFamily
    from weft.capture.symbolic import DynamicEntry

__all__ = ["MOST_TRIES", "Jitted", "key_of"]

P = ParamSpec("P")
R = TypeVar("R")
Spec = tuple[tuple[int, ...], DType, str | None]  # of an argument, as in `key_of`
MOST_TRIES: Final = 8  # calls of a signature in Python that may give it a native dispatch
_ALL: Final = range(1 << 62)  # positions of numbers
_MOST_SIGNATURES: Final = 256  # captures of a function that are kept: those used lately


def _is_tracked(path: Sequence[views.Step]) -> bool:
    """Whether a view has a place of its own in the autograd graph, and gradients there."""
    return any(isinstance(step, views.Detach) and step.is_tracked for step in path)


def key_of(tensors: Sequence[Any], buffers: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a call with tensors is known by: shapes, types, devices if not the host's."""
    return (tuple([t.shape for t in tensors]), tuple([t.dtype for t in tensors]),
            tuple([None if b.on_host else b.device for b in buffers]), state.grad)


def _counted(entry: Entry, inputs: list[Any], tensors: Sequence[TensorCore]) -> Any:
    """Replay, and note how long that took."""
    begin = time.perf_counter()
    result = entry.run(inputs, tensors)
    if entry.usage is not None:
        entry.usage.add(time.perf_counter() - begin)
    return result


def _uses(entries: list[Entry]) -> int:
    return sum(e.compiled.plan.calls for e in entries if isinstance(e.compiled, driver.Compiled))


def _with_numbers(entry: Entry, numbers: Sequence[int | float]) -> tuple[Entry, list[Any]] | None:
    """Return a capture with memory that holds its run-time scalars; None if they are others."""
    found = [] if entry.scalars is None else entry.scalars.buffers(numbers)
    return None if found is None else (entry, found)


class Jitted(Generic[P, R]):
    """A function that is captured once for each signature of its arguments.

    A signature that comes again gets a native dispatch (`weft.capture.native_dispatch`): from then
    on the class of the function has a native call slot, and what is here is only reached where no
    dispatch fits.
    """

    __slots__ = ("__dict__", "__weakref__", "_dispatch")

    def __init__(self, function: Callable[P, R], packs: Packs = False,
                 static: Collection[int | str] = (),
                 dynamic: Collection[int | str] = ()) -> None:  # fmt: skip
        self._dispatch: Any = None
        self._function, self._packs = function, packs
        self._entries: LruTable[Hashable, list[Entry]] = LruTable(_MOST_SIGNATURES, 1, len, _uses)
        self._families: dict[Hashable, Family] = {}  # by all but the numbers of a signature
        self._sizes: dict[Hashable, SizeFamily] = {}  # by all but sizes and numbers
        # Arguments, by position and name, that are constants of captures always, or never.
        self._static, self._dynamic = static, dynamic
        # Tensors that the function knows both as arguments and by itself, and changes.
        self._joined: dict[int, weakref.ref[TensorCore]] = {}
        # What the first check of a call compares: of each argument, and the gradient mode.
        self._fast: tuple[tuple[Spec, ...], Entry, bool] | None = None
        self._ready: dict[Hashable, Entry] = {}  # what was in `_fast` once, by its key
        self._last_sized: Resized | None = None
        functools.update_wrapper(self, function)
        self.captures = 0  # how many signatures were captured
        self._changes = False  # whether one of them changes something

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
        """Call the function where no native dispatch fits; alone, if it changes something."""
        if not self._changes:
            try:
                return self._called(args, kwargs)
            except OutOfTurn:  # what was captured does
                self._changes = True
        return self._called_alone(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> R:
        fast = self._fast
        if fast is not None and not kwargs:
            specs, entry, grad = fast
            if len(args) == len(specs) and state.capture is None and state.grad is grad:
                inputs: list[Any] = []
                for arg in args:
                    if type(arg) is not Tensor or arg._requires_grad or arg._base is not None:
                        break
                    shape, dtype, home = specs[len(inputs)]
                    buffer = arg._buffer
                    if (buffer is None or arg.dtype is not dtype or arg.shape != shape
                            or not (buffer.on_host if home is None else buffer.device == home)):
                        break
                    inputs.append(buffer)
                else:
                    if entry.tries < MOST_TRIES:
                        self._prepare(entry, args, {}, args)
                    if entry.is_plain and entry.usage is None:
                        return entry.run_plain(inputs)  # type: ignore[no-any-return]
                    tensors = cast("Sequence[TensorCore]", args)
                    if entry.fits(tensors) and (not entry.changes or (
                        len({*map(id, tensors)}) == len(tensors)
                        and not entry.is_by_hand(inputs, tensors)
                    )):
                        if entry.usage is None:
                            return cast(R, entry.run(inputs, tensors))
                        if not (entry.usage.is_due or (entry.base and entry.base.is_native)):
                            return cast(R, _counted(entry, inputs, tensors))
                    return self._general(args, {})
            if self._recall(args):
                return self._called(args, {})
        return self._general(args, kwargs or {})

    _called_alone = changing(_called)

    def _recall(self, args: tuple[Any, ...]) -> bool:
        """Put what serves a call with tensors in the first place; whether it is known."""
        if state.capture is not None or not all(
                type(a) is Tensor and a._buffer is not None and a._base is None
                and not a._requires_grad for a in args):
            return False
        key = key_of(args, [a._buffer for a in args])
        entry = self._ready.get(key)
        if entry is None and self._last_sized is not None and not any(key[2]):
            entry = self._last_sized.at(key[0], key[1], state.grad)
        if entry is None or (self._fast is not None and entry is self._fast[1]):
            return False
        self._remember(key, entry)
        return True

    def _remember(self, key: tuple[Any, ...], entry: Entry) -> None:
        """Have the next call of these shapes and types found at once."""
        *specs, grad = key
        if len(self._ready) >= _MOST_SIGNATURES:
            self._ready.clear()
        self._ready[key] = entry
        self._fast = tuple(zip(*specs, strict=True)), entry, grad

    def _prepare(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any],
                 arrays: Sequence[Any]) -> None:  # fmt: skip
        """Make a native dispatch for a signature that comes again."""
        entry.take_turn()
        entry.tries += 1
        kinds = tuple(map(type, arrays))
        if entry.base is not None and self._prepare_sized(entry.base, args, kwargs, arrays):
            return
        if entry.tries > 1 and kinds not in entry.attached and entry.usage is None:
            entry.attached.add(kinds)
            with importing:
                from weft.capture import native_dispatch  # of no use to what is called once

            native_dispatch.attach(Jitted, Out, self, entry, args, kwargs)

    def _prepare_sized(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any],
                       arrays: Sequence[Any]) -> bool:  # fmt: skip
        """Make a native dispatch for all sizes of a capture; whether there is one."""
        entry.tries += 1
        kinds = tuple(map(type, arrays))
        if entry.tries > 1 and kinds not in entry.attached:
            entry.attached.add(kinds)
            with importing:
                from weft.capture import native_dispatch_sizes

            if native_dispatch_sizes.attach(Jitted, Out, self, entry, args, kwargs, entry.tally):
                entry.is_native = True
        return entry.is_native

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if state.capture is not None:  # a captured function within another one
            return self._function(*args, **kwargs)
        arrays: list[Any] = []
        structure = flatten((args, kwargs), arrays)
        realize_all([a for a in arrays if isinstance(a, TensorCore)])
        while True:
            sources, places = self._places(arrays)
            if places is not None and any(p.path and _is_tracked(p.path) for p in places):
                return self._function(*args, **kwargs)  # for gradients, these are not one tensor
            arguments = [argument_of(a) for a in sources]
            tensors = [a.tensor for a in arguments]
            rest = (places, tuple([a.key for a in arguments]), state.grad)
            key = (structure, *rest)
            entry, scalars = self._fitting(key, tensors), list[Any]()
            if entry is None:
                try:
                    opened = (self._resized(structure, args, kwargs, arguments, rest)
                              or self._opened(args, kwargs, arguments, rest))
                    if opened is not None:
                        entry, scalars = opened
                        break
                    with capturing:
                        entry = Entry(self._function, args, kwargs, arguments, places,
                                      self._packs)
                except Overlap as found:
                    self._joined.update((id(t), weakref.ref(t)) for t in found.tensors)
                    continue
                self._keep(key, entry)
            break
        inputs = [a.buffer for a in arguments]
        if entry.changes and entry.is_by_hand(inputs, tensors):
            entry.take_turn()
            return self._function(*args, **kwargs)
        if entry.tries < MOST_TRIES:
            self._prepare(entry, args, kwargs, arrays)
        self._fast, after = None, entry.after
        if places is None and not kwargs and len(args) == len(arguments) and all(
            type(a) is Tensor and a._base is None and not a._requires_grad for a in args
        ):
            self._remember(key_of(args, inputs), entry)
        if after is None:
            return cast(R, entry.run(inputs, tensors, scalars))
        entry.after = None  # it knows the arguments
        begin = time.perf_counter()
        result = entry.run(inputs, tensors, scalars)
        after(time.perf_counter() - begin)
        return cast(R, result)

    def _fitting(self, key: Hashable, tensors: Sequence[TensorCore | None]) -> Entry | None:
        return next((e for e in self._entries.get(key) or () if e.fits(tensors)), None)

    def _resized(self, structure: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any],
                 arguments: Sequence[Argument], rest: tuple[Any, ...]
                 ) -> tuple[Entry, list[Any]] | None:  # fmt: skip
        """Return the capture for sizes that change, at those of the call, and its numbers."""
        if rest[0] is not None or not arguments or not any(a.shape for a in arguments):
            return None
        with importing:
            from weft.capture import recapture
            from weft.capture import runtime_sizes as sizes

        numbers: list[int | float] = []
        masked, kinds = numbers_of((args, kwargs), numbers, _ALL), sizes.kinds_of(arguments)
        if kinds is None:
            return None
        signature = masked, kinds, state.grad
        shapes = tuple([a.shape for a in arguments])
        family = self._sizes.get(signature)
        if family is None:
            self._sizes = self._sizes if len(self._sizes) < _MOST_SIGNATURES else {}
            family = self._sizes[signature] = sizes.SizeFamily(
                recapture.family_of(self._function, self._static, args, kwargs),
                recapture.pinned_arrays(self._function, self._static, args, kwargs))
        tensors = [a.tensor for a in arguments]
        while (found := family.pattern(shapes)) is not None:
            pattern, values = found
            positions = family.numbers.open(numbers)
            key = self._symbolic_key(args, kwargs, arguments, kinds, pattern, positions)
            entry = self._fitting(key, tensors)
            if entry is None:
                scalars = Scalars(numbers, positions) if positions else None
                with capturing:
                    made = sizes.captured(family, pattern, values, self._function, args, kwargs,
                                          arguments, self._packs, scalars)
                self._check_open(family.numbers)
                if made is None:
                    continue
                if made.pattern is None:
                    self._check_sizes(family, args, kwargs)
                entry = made.entry
                positions = () if entry.scalars is None else entry.scalars.positions
                if made.pattern is None:  # for these sizes alone
                    family.note(shapes)
                    self._families.setdefault((masked, rest), family.numbers.copy())
                    self._keep((numbers_of((args, kwargs), [], positions), *rest), entry)
                    return _with_numbers(entry, numbers)
                pattern = made.pattern
                self._keep(self._symbolic_key(args, kwargs, arguments, kinds, pattern, positions),
                           entry)
            read = _with_numbers(entry, numbers)
            if read is None:
                return None
            base = cast("DynamicEntry", entry)
            ready = base.at(values)
            counted = not self._packs and base.scalars is None
            if counted and base.tally is None:
                base.tally = family.tally(base, pattern)
            if not counted or not family.counts(base, shapes, values):
                return ready, read[1]
            ready.usage = family.usage(shapes)
            own = functools.partial(sizes.own, ready,
                                    functools.partial(self._add, (structure, *rest)))
            ready.after = functools.partial(family.count, shapes, ready, base, own)
            if not numbers and all(a.buffer.on_host for a in arguments):
                self._last_sized = sizes.Resized(family, pattern, base,
                                                 tuple([a.dtype for a in arguments]), state.grad)
            return ready, read[1]
        if family.refused:
            self._check_sizes(family, args, kwargs)
        family.note(shapes)
        return None

    def _check_open(self, family: Family) -> None:
        """Raise an error if a number is a constant that ``dynamic=`` names."""
        if self._dynamic:
            from weft.capture import recapture

            recapture.check_open(self._function, self._dynamic, family)

    def _check_sizes(self, family: SizeFamily, args: tuple[Any, ...], kwargs: dict[str, Any]
                     ) -> None:  # fmt: skip
        """Raise an error if sizes are constants, and ``dynamic=`` names arrays."""
        if self._dynamic:
            from weft.capture import recapture

            if recapture.pinned_arrays(self._function, self._dynamic, args, kwargs):
                raise recapture.needs_constant("the size of an argument", family.refused)

    def _symbolic_key(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                      arguments: Sequence[Argument], kinds: Hashable, pattern: Pattern,
                      positions: Collection[int]) -> Hashable:  # fmt: skip
        """Return what captures with sizes that change are kept by."""
        arrays = tuple(zip(pattern.shapes, [a.dtype.name for a in arguments], strict=True))
        return (numbers_of((args, kwargs), [], positions), None, arrays, kinds, state.grad)

    def _opened(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                arguments: Sequence[Argument], rest: tuple[Any, ...]
                ) -> tuple[Entry, list[Any]] | None:  # fmt: skip
        """Return the capture that reads the numbers that change, and memory with them."""
        numbers: list[int | float] = []
        signature = (numbers_of((args, kwargs), numbers, _ALL), rest)
        if not numbers:
            return None
        with importing:
            from weft.capture import recapture

        family = self._families.get(signature)
        if family is None:
            if len(self._families) >= _MOST_SIGNATURES:
                self._families.pop(next(iter(self._families)))
            self._families[signature] = recapture.family_of(self._function, self._static, args,
                                                            kwargs)
            return None
        tensors = [a.tensor for a in arguments]
        self._check_open(family)
        while positions := family.open(numbers):
            key = (numbers_of((args, kwargs), [], positions), *rest)
            entry = self._fitting(key, tensors)
            if entry is None:
                with capturing:
                    entry = recapture.opened(
                        family, functools.partial(Entry, self._function, args, kwargs, arguments,
                                                  rest[0], self._packs),
                        Scalars(numbers, positions))
                self._check_open(family)
                if entry is None:
                    continue
                open_still = () if entry.scalars is None else entry.scalars.positions
                self._keep((numbers_of((args, kwargs), [], open_still), *rest), entry)
            return _with_numbers(entry, numbers)
        return None

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

    def _add(self, key: Hashable, entry: Entry) -> None:
        self._ready = {}  # another entry may be the better one
        self._fast = None
        self._entries.put(key, [*(self._entries.get(key) or ()), entry])

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self._add(key, entry)
        self.captures += 1
        driver.count("captures")

    def explain_captures(self) -> str:
        """Return what was captured, which arguments are read at each call, and which are not.

        For every capture a line with the arguments it serves: ``float`` or ``int`` for a number
        that may have any value, ``2.5`` for one that is a constant of the capture. Below them, for
        each number that changed and is a constant nevertheless, the line that needs its value.

        Returns
        -------
        str
            Some lines of text.

        Examples
        --------
        >>> @weft.jit
        ... def step(x, rate, n):
        ...     return x * rate if n > 1 else x
        >>> for i in range(4):
        ...     y = step(x, i / 4, i)
        >>> print(step.explain_captures())
        step: 4 captures
          float32[8], 0.0, 0
          ...
        the argument n is a constant: step.py:3: return x * rate if n > 1 else x (__gt__)
        """
        with importing:
            from weft.capture import recapture

        sizes = list(self._sizes.values())
        return recapture.explain(self._function, self._entries.items(),
                                 [*self._families.values(), *(f.numbers for f in sizes)],
                                 [f.refused for f in sizes])

    @property
    def packed_bytes(self) -> int:
        """How many bytes the panels of weights take that are kept between calls."""
        return packed_weights.held(k for entries in self._entries.values() for e in entries
                           for k in e.kept)
