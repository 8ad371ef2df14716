"""One function of a SPIR-V module while it is written, and terms to write formulas with.

A `Term` is one value in the block that is open. ``+ - * & | ^ ~ << >>`` on terms append the
instruction of their kind: words wrap around, ``>>`` fills with zeros, floats are rounded one by
one. Numbers beside a term become constants of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.declarations import Declarations, instruction

__all__ = ["Function", "Term", "Variable"]

_WORDS: Final = {"+": spv.I_ADD, "-": spv.I_SUB, "*": spv.I_MUL, "&": spv.BITWISE_AND,
                 "|": spv.BITWISE_OR, "^": spv.BITWISE_XOR, "<<": spv.SHIFT_LEFT_LOGICAL,
                 ">>": spv.SHIFT_RIGHT_LOGICAL, "==": spv.I_EQUAL, "!=": spv.I_NOT_EQUAL,
                 "<": spv.U_LESS_THAN, "<=": spv.U_LESS_THAN_EQUAL, "/": spv.U_DIV,
                 "%": spv.U_MOD, "s>>": spv.SHIFT_RIGHT_ARITHMETIC, "s<": spv.S_LESS_THAN,
                 "s<=": spv.S_LESS_THAN_EQUAL, "s/": spv.S_DIV, "s%": spv.S_REM}  # fmt: skip
_FLOATS: Final = {"+": spv.F_ADD, "-": spv.F_SUB, "*": spv.F_MUL, "/": spv.F_DIV,
                  "==": spv.F_ORD_EQUAL, "!=": spv.F_UNORD_NOT_EQUAL, "<": spv.F_ORD_LESS_THAN,
                  "<=": spv.F_ORD_LESS_THAN_EQUAL}  # fmt: skip
_BOOLS: Final = {"&": spv.LOGICAL_AND, "|": spv.LOGICAL_OR, "^": spv.LOGICAL_NOT_EQUAL,
                 "==": spv.LOGICAL_EQUAL, "!=": spv.LOGICAL_NOT_EQUAL}  # fmt: skip
_COMPARE: Final = frozenset(("==", "!=", "<", "<=", "s<", "s<="))


class Term:
    """One value of a function.

    Attributes
    ----------
    f : Function
        Whose it is.
    id : int
        In the module.
    kind : str
        ``bool``, ``u32``, ``u64``, ``f32``...
    """

    __slots__ = ("f", "id", "kind")

    def __init__(self, f: Function, number: int, kind: str) -> None:
        self.f, self.id, self.kind = f, number, kind

    def op(self, operator: str, other: Term | float) -> Term:
        """Return ``self operator other``; operators that begin with ``s`` are of signed words."""
        b = other if isinstance(other, Term) else self.f.const(self.kind, other)
        table = _BOOLS if self.kind == "bool" else _FLOATS if self.kind[0] == "f" else _WORDS
        kind = "bool" if operator in _COMPARE else self.kind
        return self.f.emit(table[operator], kind, self.id, b.id)

    def __add__(self, other: Term | float) -> Term:
        return self.op("+", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.op("-", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.op("*", other)

    def __and__(self, other: Term | int) -> Term:
        return self.op("&", other)

    def __or__(self, other: Term | int) -> Term:
        return self.op("|", other)

    def __xor__(self, other: Term | int) -> Term:
        return self.op("^", other)

    def __lshift__(self, other: Term | int) -> Term:
        return self.op("<<", other)

    def __rshift__(self, other: Term | int) -> Term:
        return self.op(">>", other)

    def __invert__(self) -> Term:
        opcode = spv.LOGICAL_NOT if self.kind == "bool" else spv.NOT
        return self.f.emit(opcode, self.kind, self.id)

    def __neg__(self) -> Term:
        if self.kind[0] == "f":
            return self.f.emit(spv.F_NEGATE, self.kind, self.id)
        return self.f.const(self.kind, 0) - self

    def eq(self, other: Term | float) -> Term:
        """Return whether two are equal."""
        return self.op("==", other)

    def ne(self, other: Term | float) -> Term:
        """Return whether two differ."""
        return self.op("!=", other)

    def lt(self, other: Term | float) -> Term:
        """Return whether it is less, as an unsigned word or a float."""
        return self.op("<", other)

    def slt(self, other: Term | int) -> Term:
        """Return whether it is less, as a signed word."""
        return self.op("s<", other)

    def sar(self, other: Term | int) -> Term:
        """Return it shifted right, filled with its sign."""
        return self.op("s>>", other)

    def choose(self, a: Term, b: Term | float) -> Term:
        """Return `a` where this bool holds, else `b`."""
        other = b if isinstance(b, Term) else self.f.const(a.kind, b)
        return self.f.emit(spv.SELECT, a.kind, self.id, a.id, other.id)

    def to(self, kind: str) -> Term:
        """Return a word as one of another width: cut, or filled with zeros."""
        return self if kind == self.kind else self.f.emit(spv.U_CONVERT, kind, self.id)

    def extended(self, kind: str) -> Term:
        """Return a word as one of another width: cut, or filled with its sign."""
        if kind != "u64" or self.kind == "u64":
            return self if kind == self.kind else self.f.emit(spv.S_CONVERT, kind, self.id)
        # Of two words: Mesa takes comparisons of an extended number with a constant for others.
        f, word = self.f, self.extended("u32")
        pair = f.typed(spv.COMPOSITE_CONSTRUCT, f.module.vector(2), word.id, word.sar(31).id)
        return f.emit(spv.BITCAST, kind, pair)

    def bitcast(self, kind: str) -> Term:
        """Return the same bits as another kind."""
        return self if kind == self.kind else self.f.emit(spv.BITCAST, kind, self.id)

    def bits(self) -> Term:
        """Return the bits of a float as a word."""
        return self.bitcast("u" + self.kind[1:])


class Variable:
    """A variable of one function, of one kind."""

    __slots__ = ("f", "id", "kind")

    def __init__(self, f: Function, kind: str) -> None:
        self.f, self.kind = f, kind
        self.id = f.declare(f.module.type(kind))

    def get(self) -> Term:
        """Read it."""
        return self.f.emit(spv.LOAD, self.kind, self.id)

    def set(self, value: Term) -> None:
        """Write it."""
        self.f.effect(spv.STORE, self.id, value.id)


class Function:
    """One function.

    Parameters
    ----------
    module : Declarations
        Where its types and constants are.
    result : str
        The kind of its result, or ``void``.
    params : tuple of str
        The kinds of its parameters.
    """

    def __init__(self, module: Declarations, result: str = "void",
                 params: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.module, self.result = module, result
        self.id = module.id()
        kind = module.function_type(result, params)
        self._head = list(instruction(spv.FUNCTION, module.type(result), self.id, 0, kind))
        self.params = tuple([Term(self, module.id(), p) for p in params])
        for p in self.params:
            self._head += instruction(spv.FUNCTION_PARAMETER, module.type(p.kind), p.id)
        self.block = module.id()  # that is open
        self._head += instruction(spv.LABEL, self.block)
        self._variables: list[int] = []
        self._body: list[int] = []
        self.ended = False  # the block that is open

    # instructions

    def emit(self, opcode: int, kind: str, *ids: int) -> Term:
        """Append an instruction with a result; floats are never contracted."""
        made = self.module.id()
        self._body += instruction(opcode, self.module.type(kind), made, *ids)
        if kind[0] == "f" and opcode not in (spv.LOAD, spv.SELECT, spv.BITCAST, spv.PHI,
                                             spv.FUNCTION_CALL):  # fmt: skip
            self.module.decorate(made, spv.NO_CONTRACTION)
        return Term(self, made, kind)

    def typed(self, opcode: int, typed: int, *ids: int) -> int:
        """Append an instruction whose result has a type that is no kind; return its id."""
        made = self.module.id()
        self._body += instruction(opcode, typed, made, *ids)
        return made

    def effect(self, opcode: int, *words: int) -> None:
        """Append an instruction without a result."""
        self._body += instruction(opcode, *words)

    def const(self, kind: str, value: float) -> Term:
        """Return a constant."""
        return Term(self, self.module.constant(kind, value), kind)

    def extended(self, number: int, kind: str, *args: Term) -> Term:
        """Append an instruction of GLSL.std.450."""
        return self.emit(spv.EXT_INST, kind, self.module.glsl, number, *(a.id for a in args))

    def call(self, callee: Function, *args: Term) -> Term:
        """Append a call."""
        return self.emit(spv.FUNCTION_CALL, callee.result, callee.id, *(a.id for a in args))

    def declare(self, pointee: int) -> int:
        """Return a new variable of the function, of a type."""
        made = self.module.id()
        typed = self.module.pointer(spv.FUNCTION_CLASS, pointee)
        self._variables += instruction(spv.VARIABLE, typed, made, spv.FUNCTION_CLASS)
        return made

    def variable(self, value: Term) -> Variable:
        """Return a new variable with a first value."""
        made = Variable(self, value.kind)
        made.set(value)
        return made

    # control flow

    def label(self, number: int) -> None:
        """Begin a block."""
        self._body += instruction(spv.LABEL, number)
        self.block, self.ended = number, False

    def branch(self, goal: int) -> None:
        """End the block, if it has no end yet."""
        if not self.ended:
            self._body += instruction(spv.BRANCH, goal)
            self.ended = True

    def branch_if(self, condition: Term, yes: int, no: int) -> None:
        """End the block with a choice."""
        self._body += instruction(spv.BRANCH_CONDITIONAL, condition.id, yes, no)
        self.ended = True

    def leave(self, value: Term | None = None) -> None:
        """End the block and the function."""
        if value is None:
            self._body += instruction(spv.RETURN)
        else:
            self._body += instruction(spv.RETURN_VALUE, value.id)
        self.ended = True

    def when(self, condition: Term, then: Callable[[], object]) -> None:
        """Write what is done where a condition holds."""
        yes, after = self.module.id(), self.module.id()
        self.effect(spv.SELECTION_MERGE, after, 0)
        self.branch_if(condition, yes, after)
        self.label(yes)
        then()
        self.branch(after)
        self.label(after)

    def value_when(self, condition: Term, then: Callable[[], Term], other: Term) -> Term:
        """Return what `then` makes where a condition holds, else `other`."""
        before, yes, after = self.block, self.module.id(), self.module.id()
        self.effect(spv.SELECTION_MERGE, after, 0)
        self.branch_if(condition, yes, after)
        self.label(yes)
        made, last = then(), self.block
        self.branch(after)
        self.label(after)
        return self.emit(spv.PHI, made.kind, made.id, last, other.id, before)

    def repeat(self, head: Callable[[], Term], body: Callable[[], object]) -> None:
        """Write ``while head(): body()``."""
        begin, test, inside, turn, after = (self.module.id() for _ in range(5))
        self.branch(begin)
        self.label(begin)
        self.effect(spv.LOOP_MERGE, after, turn, 0)
        self.branch(test)
        self.label(test)
        self.branch_if(head(), inside, after)
        self.label(inside)
        body()
        self.branch(turn)
        self.label(turn)
        self.branch(begin)
        self.label(after)

    def finish(self, value: Term | None = None) -> None:
        """End the function."""
        if not self.ended:
            self.leave(value)

    def words(self) -> list[int]:
        """Return the words of the whole function."""
        return [*self._head, *self._variables, *self._body, *instruction(spv.FUNCTION_END)]
