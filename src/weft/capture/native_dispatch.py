"""Native dispatch of captures: rows of what a call checks, reads, writes and returns.

The rows say in native code what `Entry.fits` and `Entry.run` (`weft.capture.captured_graph`) say in
Python, and check all that a signature consists of. They are strict: whatever they do not know
(views, tensors that are not computed yet, memory shared with NumPy that is to be written) goes the
Python way, call by call. A function gets none if its results have a history for gradients, or if
arguments are views of one tensor.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import driver
from weft.capture.capture import GradientOf, Owner
from weft.exchange import dlpack
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.node import Storage
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state
from weft.tensors.core.write_lock import writing

if TYPE_CHECKING:
    from weft.capture.captured_graph import Entry
    from weft.capture.captured_values import Out
    from weft.driver.plans.compiled_graph import Binding
    from weft.runtimes.native.calls.dispatch import Owned, Program, Slot

__all__ = ["Builder", "NotNative", "as_object", "attach"]

_MOST_CHANGED: Final = 32  # arguments that are compared with each other
_MOST_GRADIENTS: Final = 512  # and gradients
_ARGUMENTS, _KEYWORDS = 1, 2  # words of the frame of a call
_IN_ONE_PIECE: Final = 0x101  # flags of NumPy's arrays: and aligned
_BY_VALUE: Final = (int, str, bytes)
_EXACT: Final = 1 << 53  # up to here, doubles are whole numbers
_OF_DOUBLES: Final[Mapping[Any, str]] = {
    operator.add: "add_doubles", operator.sub: "subtract_doubles", operator.mul: "multiply_doubles",
    operator.truediv: "divide_doubles", operator.neg: "negate_double",
    operator.pow: "raise_double",
}  # fmt: skip


class NotNative(Exception):
    """Something that only the Python way knows."""


def attach(base: type, result: type[Out], function: Callable[..., Any], entry: Entry,
           args: tuple[Any, ...], kwargs: dict[str, Any],
           builder: Callable[[Entry, Binding, type[Out]], Builder] | None = None
           ) -> bool:  # fmt: skip
    """Give a function a native dispatch for calls like this one; whether there can be one.

    Parameters
    ----------
    base
        The class of all captured functions.
    result
        The class of what stands for a tensor in ``entry.template``.
    builder
        Makes the builder of the rows for a capture that serves many sizes; its dispatch is tried
        last.
    """
    compiled = entry.compiled
    if not isinstance(compiled, driver.Compiled) or (entry.has_history and state.grad) or any(
        place.path or place.joined is not None for place in entry.places or ()
    ):
        return False
    dispatcher = driver.dispatcher(Tensor, base, state)
    binding = None if dispatcher is None else compiled.bind()
    if dispatcher is None or binding is None:
        return False
    try:
        word = (builder or Builder)(entry, binding, result).build(args, kwargs)
    except NotNative:
        return False
    context = binding.program.assemble(
        word, compiled.fail, int(binding.arena is not None),
        (binding.arena, binding.layouts, entry, compiled),
        writing.native if _takes_iterations(entry, binding) else None,
    )
    dispatcher.attach(function, context, builder is not None)
    return True


def _takes_iterations(entry: Entry, binding: Binding) -> bool:
    """Whether other threads may run between the first read and the last write of a call."""
    return entry.changes and (binding.program.plan.release_gil or bool(entry.draws))


class Builder:
    """The rows of one dispatch."""

    def __init__(self, entry: Entry, binding: Binding, out: type[Out]) -> None:
        self.entry, self.binding, self.out = entry, binding, out
        self.program: Program = binding.program
        # Of each source: its word, its value, whether it lies in something that may change.
        self.arguments: list[tuple[int, Any, bool]] = []
        self.met = 0  # arrays among the arguments so far, each time that one is given
        self.numbers = 0  # and numbers
        self.scalars: list[int] = []  # the words with the open numbers, then those derived
        self.words: dict[int, int] = {}  # of tensors from outside
        self.gradients: dict[int, Owned] = {}

    def build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Owned:
        """Add all rows, and return the word with the result.

        What runs other Python code comes first (settings), then what only looks, then memory and
        random numbers, and at last the reading of addresses.
        """
        entry, check = self.entry, self.program.check
        for owner, name, value in entry.settings:
            check("setting", owner, name, value)
        check("state", state.grad)
        self._structure(args, _ARGUMENTS, False)
        if kwargs:
            self._structure(kwargs, _KEYWORDS, True)
        else:
            check("no_keywords", _KEYWORDS)
        self._meet_sizes()
        self._read_scalars()
        for tensor, learned in entry.learned:
            check("learned", tensor, learned)
        for owner, guard in entry.guards:
            self._guard(self._gradient(owner), guard)
        if entry.changes:
            self._changes()
            if not _takes_iterations(entry, self.binding):
                check("zero", writing.word)
        program = self.program
        outputs = [self._allocate(*output) for output in self.binding.outputs]
        if entry.draws:  # nothing is drawn for a call that cannot be made
            self._read(check)
            self._draw()
        self._read(program.read)
        result = self._result(entry.template, outputs)
        self._write_back(outputs)
        return result

    # what else there is for a capture that serves many sizes (`weft.capture.native_dispatch_sizes`)

    def _meet_sizes(self) -> None:
        """Do what needs the sizes of the arguments, which are known by now."""

    def _spec(self, word: int, value: TensorCore) -> None:
        """Check the type of a tensor, the last argument so far."""
        self.program.check("spec", word, type(value), value.shape, value.dtype,
                           value._requires_grad)

    def _allocate(self, nbytes: Any, slot: Slot) -> Owned:
        """Take memory for a slot of the plan."""
        return self.program.allocate(nbytes, slot)

    def _axes(self, number: int) -> list[Any]:
        """Return what the sizes of an argument have to be, two words an axis."""
        return [word for n in self.arguments[number][1].shape for word in (int(n), 0)]

    def _read_array(self, add: Any, number: int, slot: Any, offset: int, held: int) -> None:
        """Read the address of an argument that is an array."""
        word, value, _ = self.arguments[number]
        table = self.program.table([slot, offset, 0, *self._axes(number)])
        if held:
            add("hold", word, held)
        kind, ndim = type(value), len(value.shape)
        if kind is np.ndarray:
            add("array", word, kind, value.dtype, ndim, _IN_ONE_PIECE, _IN_ONE_PIECE, table)
        else:
            function = dlpack.exchange_function(kind)
            if function is None:
                raise NotNative
            code = dlpack.code_of(self.entry.placeholders[number].dtype)
            add("exchange", word, kind, function, ndim, code,
                1 + 2 * hasattr(value, "is_neg"), table)

    def _blocks(self, add: Any, generator: Any, blocks: Any, word: int) -> None:
        """Draw random numbers."""
        count = self.program.words()
        self.program.check("set", count, as_object(blocks))
        add("draw", generator, count, word)

    def _made(self, out: Out, outputs: Sequence[Owned]) -> Owned:
        word = self.program.owned()
        self.program.finish("result", word, outputs[out.slot], out.shape, out.dtype)
        return word

    # before the run

    def _structure(self, value: Any, word: int, changes: bool) -> None:
        """Check that an argument is made like this one, and find the arrays in it."""
        check = self.program.check
        kind = type(value)
        if isinstance(value, TensorCore):
            if value._base is not None:
                raise NotNative
            if self._source(word, value, changes):
                self._spec(word, value)
                if value._requires_grad:
                    if not value._is_leaf:
                        raise NotNative
                    check("unrecorded", word)
        elif kind is np.ndarray:
            if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
                raise NotNative
            self._source(word, value, changes)
        elif kind is tuple or kind is list or (isinstance(value, tuple) and
                                               hasattr(value, "_fields")):  # fmt: skip
            first = self.program.words(len(value))
            if kind is list:
                check("list", word, len(value), first)
            else:
                check("tuple", word, kind, len(value), first)
            for i, item in enumerate(value):
                self._structure(item, first + i, changes or kind is list)
        elif issubclass(kind, dict):
            if kind is not dict or not all(type(key) is str for key in value):
                raise NotNative
            first = self.program.words(len(value))
            check("dict", word, len(value), first, self.program.table(list(value)))
            for i, item in enumerate(value.values()):
                self._structure(item, first + i, True)
        elif (kind is float or kind is int) and self._is_open():
            self.scalars.append(self.program.words())
            if kind is float:
                check("real", word, self.scalars[-1], kind, 8)
            else:
                check("integer", word, self.scalars[-1], dt.int64.min, dt.int64.max)
        elif kind is float:
            check("bits", word, _bits(value))
        elif kind in _BY_VALUE:
            check("equal", word, as_object(value), kind)
        elif hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
            self._foreign(word, value, changes)
        else:
            check("same", word, as_object(value))

    def _is_open(self) -> bool:
        """Whether the next number among the arguments is read at each call."""
        self.numbers += 1
        scalars = self.entry.scalars
        return scalars is not None and self.numbers - 1 in scalars.positions

    def _read_scalars(self) -> None:
        """Derive numbers as Python would, and note where the plan reads them."""
        plan, program = self.entry.scalars, self.program
        if plan is None:
            return
        kinds = [*plan.kinds, *(step.kind for step in plan.steps)]
        for step in plan.steps:
            name = _OF_DOUBLES.get(step.function)
            types = [kinds[v] if is_index else type(v) for is_index, v in step.operands]
            if name is None or step.kind is not float or float not in types:
                raise NotNative
            given = [self._double(is_index, v, kind)
                     for (is_index, v), kind in zip(step.operands, types, strict=True)]
            self.scalars.append(program.words())
            program.check(name, self.scalars[-1], *given)
        first = len(self.arguments) + len(self.entry.draws)
        for i, (number, dtype) in enumerate(plan.slots, first):
            word = self._converted(self.scalars[number], kinds[number], dtype)
            for slot, offset in self.binding.inputs.get(i, ()):
                program.check("address", slot, word, offset)

    def _double(self, is_index: bool, value: Any, kind: type) -> Any:
        """Return the word with a number, or a constant, as a double."""
        if is_index and kind is float:
            return self.scalars[value]
        word = self.program.words()
        if is_index:
            self.program.check("to_double", word, self.scalars[value])
        else:
            if abs(value) > _EXACT and kind is not float:
                raise NotNative
            self.program.check("set", word, _bits(float(value)))
        return word

    def _converted(self, word: int, kind: type, dtype: DType) -> int:
        """Return the word with a number in the type in which the plan reads it."""
        program = self.program
        if kind is int and dtype.is_integer:
            if dtype is not dt.int64:
                program.check("between", word, dtype.min, min(dtype.max, dt.int64.max))
            return word
        if dtype is not dt.float32 and dtype is not dt.float64:
            raise NotNative
        if kind is int:
            source, word = word, program.words()
            program.check("to_double", word, source)
        if dtype is dt.float32:
            source, word = word, program.words()
            program.check("to_single", word, source)
        return word

    def _source(self, word: int, value: Any, changes: bool) -> bool:
        """Note an array among the arguments; False if it is there already: it must be this one."""
        places = self.entry.places
        number = len(self.arguments) if places is None else places[self.met].source
        self.met += 1
        if number < len(self.arguments):
            self.program.check("alias", word, self.arguments[number][0])
            return False
        self.arguments.append((word, value, changes))
        return True

    def _foreign(self, word: int, value: Any, changes: bool) -> None:
        """Check what makes another library's array refuse to lend its memory, as its Python would.

        DLPack's table of functions, by which the memory is read, does not ask.
        """
        if dlpack.exchange_function(type(value)) is None or 0 in value.shape:
            raise NotNative
        check = self.program.check
        if hasattr(value, "requires_grad"):
            if value.requires_grad is not False:
                raise NotNative
            check("attribute", word, "requires_grad", False)
        self._source(word, value, changes)

    def _outside(self, tensor: TensorCore) -> int:
        """Return the word with a tensor from outside."""
        word = self.words.get(id(tensor))
        if word is None:
            word = self.words[id(tensor)] = self.program.words()
            self.program.check("set", word, tensor)
        return word

    def _gradient(self, owner: Owner) -> Owned:
        """Return the word with a gradient, or None."""
        word = self.arguments[owner][0] if isinstance(owner, int) else self._outside(owner)
        found = self.gradients.get(word)
        if found is None:
            found = self.gradients[word] = self.program.owned()
            self.program.check("gradient", word, found)
        return found

    def _guard(self, word: Owned, guard: Any) -> None:
        if type(guard) is tuple:
            shape, dtype = guard
            self.program.check("spec", word, Tensor, shape, dtype, False)
        else:
            self.program.check("same", word, as_object(guard))

    def _changes(self) -> None:
        """Check what a function that changes something depends on besides."""
        entry, program = self.entry, self.program
        tensors = [word for word, value, _ in self.arguments if isinstance(value, TensorCore)]
        if len(tensors) > _MOST_CHANGED:
            raise NotNative
        outside = program.table(list(entry.outside))
        for i, word in enumerate(tensors):
            if entry.outside:
                program.check("outside", word, outside, len(entry.outside))
            if i:
                program.check("distinct", word, program.table(tensors[:i]), i)
        if entry.grads or entry.grad_writes:
            gradients = [self._gradient(owner) for owner in entry.with_gradients()]
            if len(gradients) > _MOST_GRADIENTS:
                raise NotNative
            for i, found in enumerate(gradients[1:], 1):
                program.check("distinct", found, program.table(gradients[:i]), i)
        for word in self._written():
            program.check("writable", word)
            program.check("hold", word, program.owned())

    def _written(self) -> list[int]:
        """Return the words with tensors whose value is replaced."""
        entry = self.entry
        words = [self._outside(tensor) for tensor, *_ in entry.writes]
        words += [self.arguments[i][0] for i, _ in self._written_arguments()]
        for owner, _ in entry.grad_writes:
            word = self._gradient(owner)
            words.append(word)
        return words

    def _written_arguments(self) -> list[tuple[int, int]]:
        return [(i, slot) for i, slot in self.entry.argument_writes
                if isinstance(self.arguments[i][1], TensorCore)]  # fmt: skip

    def _draw(self) -> None:
        """Take random numbers; their states lie in the frame."""
        program = self.program
        for i, (generator, blocks) in enumerate(self.entry.draws, len(self.arguments)):
            word = program.words(2)
            self._blocks(program.check, generator, blocks, word)
            for slot, offset in self.binding.inputs.get(i, ()):
                program.check("address", slot, word, offset)

    def _read(self, add: Any) -> None:
        """Add the rows that read addresses."""
        inputs, entry, program = self.binding.inputs, self.entry, self.program
        frees = program.plan.release_gil
        for i, (word, value, changes) in enumerate(self.arguments):
            places: Sequence[tuple[int, int]] = inputs.get(i) or [(0, 0)]  # no kernel reads it
            held = program.owned() if frees or changes else 0
            for slot, offset in places:
                if isinstance(value, TensorCore):
                    add("read", word, slot, offset, held)
                else:
                    self._read_array(add, i, slot, offset, held)
        first = len(self.arguments) + len(entry.draws) + len(entry.scalar_nodes)
        for i, source in enumerate(entry.captured, first):
            for slot, offset in inputs.get(i, ()):
                if isinstance(source, Storage):
                    if source.buffer is None:
                        raise NotNative
                    program.check("set", slot, source.buffer.address + offset)
                    program.keep(source.buffer)
                    continue
                word = (self._gradient(source.owner) if isinstance(source, GradientOf)
                        else self._outside(source))  # fmt: skip
                add("read", word, slot, offset, program.owned() if frees else 0)
        for kept, slot in zip(entry.kept, self.binding.panels, strict=True):
            add("unchanged", kept.tensor, kept.cells)
            program.keep(kept)
            word = self._outside(kept.holder)
            add("read", word, slot, 0, program.owned() if frees else 0)

    # after the run

    def _result(self, template: Any, outputs: Sequence[Owned]) -> Owned:
        kind = type(template)
        if isinstance(template, self.out):
            return self._made(template, outputs)
        if kind is tuple or kind is list or hasattr(kind, "_fields"):
            items = self._tuple([self._result(v, outputs) for v in template])
            if kind is tuple:
                return items
            return self._call(kind, self._tuple([items]) if kind is list else items)
        if issubclass(kind, dict):
            pairs = [self._tuple([self._constant(key), self._result(value, outputs)])
                     for key, value in template.items()]  # fmt: skip
            return self._call(dict, self._tuple([self._tuple(pairs)]))
        return self._constant(template)

    def _constant(self, value: object) -> Owned:
        word = self.program.owned()
        self.program.finish("constant", word, as_object(value))
        return word

    def _tuple(self, items: list[Owned]) -> Owned:
        word = self.program.owned()
        self.program.finish("make_tuple", word, len(items), self.program.table(items))
        return word

    def _call(self, kind: Any, items: Owned) -> Owned:
        word = self.program.owned()
        self.program.finish("call", word, kind, items)
        return word

    def _write_back(self, outputs: Sequence[Owned]) -> None:
        entry, finish = self.entry, self.program.finish
        for tensor, slot, needs, leaf in entry.writes:
            word = self._outside(tensor)
            finish("give", word, outputs[slot])
            finish("leaf", word, needs and leaf)
        for i, slot in self._written_arguments():
            finish("give", self.arguments[i][0], outputs[slot])
        for owner, slot in entry.grad_writes:
            finish("give", self._gradient(owner), outputs[slot])
        for owner, out in entry.grads:
            if isinstance(owner, int) and not isinstance(self.arguments[owner][1], TensorCore):
                continue
            word = self.arguments[owner][0] if isinstance(owner, int) else self._outside(owner)
            made = self._constant(None) if out is None else self._made(out, outputs)
            finish("set_gradient", word, made)


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def as_object(value: object) -> Any:
    """Return an operand that is this object, be it an integer."""
    with importing:
        from weft.runtimes.native.calls.program import Object

    return Object(value)
