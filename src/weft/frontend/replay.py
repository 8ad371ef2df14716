"""Native dispatches of captured functions: what a call checks, reads, writes and returns, as rows.

The rows say in native code what `Entry.fits` and `Entry.run` (`weft.frontend.entry`) say in Python,
and check all that a signature consists of. They are strict: whatever they do not know (views,
tensors that are not computed yet, memory shared with NumPy that is to be written) goes the Python
way, call by call. A function gets none if its results have a history for gradients, or if arguments
are views of one tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import driver
from weft.frontend.capture import GradientOf, Owner
from weft.frontend.core import TensorCore
from weft.frontend.state import state
from weft.frontend.tensor import Tensor
from weft.imports import importing
from weft.ir.node import Storage

if TYPE_CHECKING:
    from weft.driver.realize import Binding
    from weft.frontend.entry import Entry, Out
    from weft.frontend.jit import Jitted
    from weft.runtimes.dispatch import Owned, Program

__all__ = ["attach"]

_MOST_CHANGED: Final = 32  # arguments that are compared with each other
_MOST_GRADIENTS: Final = 512  # and gradients
_BY_VALUE: Final = (int, str, bytes)


class _Python(Exception):
    """Something that only the Python way knows."""


def attach(base: type[Jitted[Any, Any]], result: type[Out], function: Jitted[Any, Any],
           entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # fmt: skip
    """Give a function a native dispatch for calls like this one, if there can be one.

    Parameters
    ----------
    base
        The class of all captured functions.
    result
        The class of what stands for a tensor in ``entry.template``.
    """
    compiled = entry.compiled
    if not isinstance(compiled, driver.Compiled) or (entry.has_history and state.grad) or any(
        place.path or place.joined is not None for place in entry.places or ()
    ):
        return
    dispatcher = driver.dispatcher(Tensor, base, state)
    binding = None if dispatcher is None else compiled.bind()
    if dispatcher is None or binding is None:
        return
    try:
        word = _Builder(entry, binding, result).build(args, kwargs)
    except _Python:
        return
    context = binding.program.assemble(
        word, compiled.fail, int(binding.arena is not None), (binding.arena, entry, compiled)
    )
    dispatcher.attach(function, context)


class _Builder:
    """The rows of one dispatch."""

    def __init__(self, entry: Entry, binding: Binding, out: type[Out]) -> None:
        self.entry, self.binding, self.out = entry, binding, out
        self.program: Program = binding.program
        # Of each source: its word, its value, whether it lies in something that may change.
        self.arguments: list[tuple[int, Any, bool]] = []
        self.met = 0  # arrays among the arguments so far, each time that one is given
        self.words: dict[int, int] = {}  # of tensors from outside
        self.gradients: dict[int, Owned] = {}

    def build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Owned:
        """Add all rows, and return the word with the result.

        What runs other Python code comes first (modes), then what only looks, then memory and
        random numbers, and at last the reading of addresses.
        """
        entry, check = self.entry, self.program.check
        for module, training in entry.modes:
            check("attribute", module, "training", training)
        check("state", state.grad)
        self._structure(args, 0, False)
        if kwargs:
            self._structure(kwargs, 1, True)
        else:
            check("no_keywords", 1)
        for tensor, learned in entry.learned:
            check("learned", tensor, learned)
        for owner, guard in entry.guards:
            self._guard(self._gradient(owner), guard)
        if entry.changes:
            self._changes()
        program = self.program
        outputs = [program.allocate(*output) for output in self.binding.outputs]
        if entry.draws:  # nothing is drawn for a call that cannot be made
            self._read(check)
            self._draw()
        self._read(program.read)
        result = self._result(entry.template, outputs)
        self._write_back(outputs)
        return result

    # before the run

    def _structure(self, value: Any, word: int, changes: bool) -> None:
        """Check that an argument is made like this one, and find the arrays in it."""
        check = self.program.check
        kind = type(value)
        if isinstance(value, TensorCore):
            if value._base is not None:
                raise _Python
            if self._source(word, value, changes):
                check("spec", word, kind, value.shape, value.dtype, value._requires_grad)
        elif kind is np.ndarray:
            if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
                raise _Python
            self._source(word, value, changes)
        elif kind is tuple or kind is list or (isinstance(value, tuple) and
                                               hasattr(value, "_fields")):  # fmt: skip
            first = self.program.objects(len(value))
            if kind is list:
                check("list", word, len(value), first)
            else:
                check("tuple", word, len(value), first, kind)
            for i, item in enumerate(value):
                self._structure(item, first + i, changes or kind is list)
        elif kind is dict:
            if not all(type(key) is str for key in value):
                raise _Python
            first = self.program.objects(len(value))
            check("dict", word, len(value), first, self.program.table(list(value)))
            for i, item in enumerate(value.values()):
                self._structure(item, first + i, True)
        elif kind is float:
            check("float", word, int.from_bytes(struct.pack("<d", value), "little", signed=True))
        elif kind in _BY_VALUE:
            check("equal", word, _object(value), kind)
        elif hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
            raise _Python
        else:
            check("same", word, _object(value))

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

    def _outside(self, tensor: TensorCore) -> int:
        """Return the word with a tensor from outside."""
        word = self.words.get(id(tensor))
        if word is None:
            word = self.words[id(tensor)] = self.program.objects()
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
            self.program.check("same", word, _object(guard))

    def _changes(self) -> None:
        """Check what a function that changes something depends on besides."""
        entry, program = self.entry, self.program
        tensors = [word for word, value, _ in self.arguments if isinstance(value, TensorCore)]
        if len(tensors) > _MOST_CHANGED:
            raise _Python
        outside = program.table(list(entry.outside))
        for i, word in enumerate(tensors):
            if entry.outside:
                program.check("outside", word, outside, len(entry.outside))
            if i:
                program.check("distinct", word, program.table(tensors[:i]), i)
        if entry.grads or entry.grad_writes:
            gradients = [self._gradient(owner) for owner in entry.with_gradients()]
            if len(gradients) > _MOST_GRADIENTS:
                raise _Python
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
            word = program.objects(2)
            program.check("draw", generator, _object(blocks), word)
            for slot, offset in self.binding.inputs.get(i, ()):
                program.check("address", slot, word, offset)

    def _read(self, add: Any) -> None:
        """Add the rows that read addresses."""
        inputs, entry, program = self.binding.inputs, self.entry, self.program
        frees = program.plan.release_gil
        for i, (word, value, changes) in enumerate(self.arguments):
            places = inputs.get(i) or [(_nowhere(program), 0)]
            held = program.owned() if frees or changes else 0
            for slot, offset in places:
                if isinstance(value, TensorCore):
                    add("read", word, slot, offset, held)
                else:
                    sizes = program.table(value.shape)
                    add("array", word, slot, value.ndim, sizes, value.dtype, offset, held)
        for i, source in enumerate(entry.captured, len(self.arguments) + len(entry.draws)):
            for slot, offset in inputs.get(i, ()):
                if isinstance(source, Storage):
                    if source.buffer is None:
                        raise _Python
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

    def _made(self, out: Out, outputs: Sequence[Owned]) -> Owned:
        word = self.program.owned()
        self.program.finish("result", word, outputs[out.slot], out.shape, out.dtype)
        return word

    def _result(self, template: Any, outputs: Sequence[Owned]) -> Owned:
        kind = type(template)
        if isinstance(template, self.out):
            return self._made(template, outputs)
        if kind is tuple or kind is list or hasattr(kind, "_fields"):
            items = self._tuple([self._result(v, outputs) for v in template])
            if kind is tuple:
                return items
            return self._call(kind, self._tuple([items]) if kind is list else items)
        if kind is dict:
            pairs = [self._tuple([self._constant(key), self._result(value, outputs)])
                     for key, value in template.items()]  # fmt: skip
            return self._call(dict, self._tuple([self._tuple(pairs)]))
        return self._constant(template)

    def _constant(self, value: object) -> Owned:
        word = self.program.owned()
        self.program.finish("constant", word, _object(value))
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


def _nowhere(program: Program) -> Any:
    """Return a place for the address of an argument that no kernel reads."""
    return program.scratch()


def _object(value: object) -> Any:
    """Return an operand that is this object, be it an integer."""
    with importing:
        from weft.runtimes.dispatch import Object

    return Object(value)
