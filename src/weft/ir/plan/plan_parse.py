"""The text of plan level, read back: see `weft.ir.plan.plan` for the language."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from weft.errors import ParseError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import BY_NAME
from weft.ir.plan.plan_steps import (
    SPACES,
    Access,
    Alloc,
    Constant,
    Copy,
    Fill,
    Free,
    Launch,
    Parallel,
    Plan,
    ProgramRef,
    Ref,
    Size,
    Step,
    Wait,
)

__all__ = ["parse_plan"]

_TOKEN: Final = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|#?-?\d+|[A-Za-z_][A-Za-z_0-9]*(?:\.[a-z]\w*)?|[(){}\[\],+])'
)


class _Line:
    """The tokens of one line."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self.text = number, text
        self.tokens: list[str] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(text[position:].strip()[:20], "a word, number or string")
            self.tokens.append(match[1])
            position = match.end()
        self.at = 0

    def error(self, found: object, expected: str) -> ParseError:
        return ParseError(f"plan, line {self.number}", found=found, expected=expected)

    @property
    def next(self) -> str:
        """The next token without taking it; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.next
        if not token or (expected and token != expected):
            raise self.error(token or "the end of the line", expected or "more")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.next == token:
            self.at += 1
            return True
        return False

    def number_(self) -> int:
        token = self.take()
        if not re.fullmatch(r"-?\d+", token):
            raise self.error(token, "a number")
        return int(token)

    def string(self) -> str:
        token = self.take()
        if not token.startswith('"'):
            raise self.error(token, "a string")
        try:
            return str(json.loads(token))
        except ValueError:
            raise self.error(token, "a string") from None

    def finish(self) -> None:
        if self.next:
            raise self.error(self.next, "the end of the line")


class _Parser:
    def __init__(self, text: str) -> None:
        lines = (_Line(i, t) for i, t in enumerate(text.splitlines(), 1))
        self.lines = [line for line in lines if line.tokens]
        self.variables: dict[str, Expr] = {}
        self.fields: dict[str, list[Any]] = {
            name: [] for name in ("inputs", "outputs", "updated", "constants", "programs",
                                  "devices", "input_devices", "output_devices")
        }
        self.arenas: dict[int, Size] = {}

    def run(self) -> Plan:
        if not self.lines:
            raise ParseError("plan", found="no text", expected="plan \"name\" {")
        head = self.lines[0]
        head.take("plan")
        name = head.string()
        head.take("{")
        head.finish()
        bodies: list[list[Step]] = [[]]
        saves: list[int] = [0]
        for line in self.lines[1:]:
            if not bodies:
                raise line.error(line.next, "the end of the text")
            if line.next == "}":
                line.take()
                done, saved = bodies.pop(), saves.pop()
                if bodies:
                    bodies[-1].append(Parallel(tuple(done), saved))
            elif line.next == "parallel":
                line.take()
                saves.append(line.number_() if line.accept("saves") else 0)
                line.take("{")
                bodies.append([])
            elif not self.declaration(line):
                bodies[-1].append(self.step(line))
            line.finish()
        if bodies:
            raise self.lines[-1].error("the end of the text", "}")
        fields = {k: tuple(v) for k, v in self.fields.items()}
        for slots in ("input_devices", "output_devices"):
            fields[slots] = fields[slots] if any(fields[slots]) else ()
        arenas = tuple(self.arenas.get(i, 0) for i in range(1, max(len(fields["devices"]), 1)))
        return Plan(name, tuple(self.variables.values()), arena=self.arenas.get(0, 0),
                    steps=tuple(done), arenas=arenas if any(a != 0 for a in arenas) else (),
                    **fields)

    def declaration(self, line: _Line) -> bool:
        """Read a line that declares; return False if it is a step."""
        word = line.next
        if word == "variable":
            line.take()
            self.variable(line, self.variables)
        elif word in ("input", "output", "updated"):
            if line.accept("updated"):
                self.fields["updated"].append(len(self.fields["inputs"]))
            slots = line.take()
            self.fields[f"{slots}s"].append(self.size(line))
            self.fields[f"{slots}_devices"].append(self.device(line))
        elif word == "constant":
            line.take()
            self.fields["constants"].append(Constant(line.string(), line.number_()))
        elif word == "arena":
            line.take()
            size = self.size(line)
            self.arenas[self.device(line)] = size
        elif word == "device":
            line.take()
            self.fields["devices"].append(line.string())
        elif word == "program":
            self.program(line)
        else:
            return False
        return True

    def program(self, line: _Line) -> None:
        line.take()
        key, device = line.string(), self.device(line)
        own: dict[str, Expr] = {}
        if line.accept("("):
            self.variable(line, own)
            while line.accept(","):
                self.variable(line, own)
            line.take(")")
        accesses = []
        while line.next in ("reads", "writes", "updates"):
            accesses.append(Access(line.take(), self.size(line, own)))
        made = ProgramRef(key, tuple(own.values()), tuple(accesses), device)
        self.fields["programs"].append(made)

    def device(self, line: _Line) -> int:
        """Read ``on N``, if it stands here."""
        if not line.accept("on"):
            return 0
        number = line.number_()
        if not 0 <= number < len(self.fields["devices"]):
            raise line.error(str(number), f"one of {len(self.fields['devices'])} devices")
        return number

    @staticmethod
    def variable(line: _Line, known: dict[str, Expr]) -> None:
        name, low, high = line.string(), line.number_(), line.number_()
        if name in known:
            raise line.error(name, "a new name")
        known[name] = ex.Variable(name, low, high)

    def step(self, line: _Line) -> Step:
        word = line.take()
        if word == "alloc":
            index, device = line.number_(), self.device(line)
            line.take("at")
            offset = self.size(line)
            line.take("size")
            return Alloc(index, offset, self.size(line), device)
        if word == "free":
            return Free(line.number_())
        if word == "launch":
            return self.launch(line)
        if word == "copy":
            target = self.ref(line)
            line.take("from")
            source = self.ref(line)
            line.take("size")
            return Copy(target, source, self.size(line))
        if word == "fill":
            target = self.ref(line)
            line.take("size")
            size = self.size(line)
            line.take("byte")
            return Fill(target, size, line.number_())
        if word == "wait":
            numbers = [line.number_()]
            while line.accept(","):
                numbers.append(line.number_())
            return Wait(tuple(numbers))
        raise line.error(word, "a declaration or a step")

    def launch(self, line: _Line) -> Launch:
        key = line.string()
        line.take("[")
        refs: list[Ref] = []
        while not line.accept("]"):
            if refs:
                line.take(",")
            refs.append(self.ref(line))
        values = self.sizes(line) if line.next == "(" else ()
        groups = self.sizes(line) if line.accept("groups") else ()
        threads = self.sizes(line) if line.accept("threads") else ()
        return Launch(key, tuple(refs), values, groups, threads)

    def sizes(self, line: _Line) -> tuple[Size, ...]:
        """Read sizes in parentheses, one at least."""
        line.take("(")
        found = [self.size(line)]
        while line.accept(","):
            found.append(self.size(line))
        line.take(")")
        return tuple(found)

    def ref(self, line: _Line) -> Ref:
        space = line.take()
        if space not in SPACES:
            raise line.error(space, "one of " + ", ".join(SPACES))
        index = line.number_()
        return Ref(space, index, line.number_() if line.accept("+") else 0)

    def size(self, line: _Line, known: dict[str, Expr] | None = None) -> Size:
        """Read a size: a number, or an expression in prefix form."""
        if re.fullmatch(r"-?\d+", line.next):
            return line.number_()
        stack: list[tuple[str, list[Expr]]] = []
        while True:
            if line.accept("("):
                stack.append((line.take(), []))
                continue
            if line.accept(")"):
                if not stack:
                    raise line.error(")", "a size")
                done = self.operation(line, *stack.pop())
            else:
                done = self.leaf(line, self.variables if known is None else known)
            if not stack:
                return done
            stack[-1][1].append(done)

    @staticmethod
    def leaf(line: _Line, known: dict[str, Expr]) -> Expr:
        token = line.take()
        if token.startswith("#"):
            return ex.index(int(token[1:]))
        name = str(json.loads(token)) if token.startswith('"') else token
        if name not in known:
            raise line.error(token, "a variable of " + (", ".join(known) or "none"))
        return known[name]

    def operation(self, line: _Line, head: str, args: list[Expr]) -> Expr:
        name, _, kind = head.partition(".")
        op = BY_NAME.get(name)
        if op is None or op.arity != len(args):
            raise line.error(f"{head} of {len(args)}", "an operation with its operands")
        try:
            d = dt.from_text(kind) if kind else dt.int64
        except KeyError:
            raise line.error(head, "a known type") from None
        return ex.make(op, d, tuple(args))


def parse_plan(text: str) -> Plan:
    """Return the plan that a text stands for; it equals the one that was printed.

    Raises
    ------
    ParseError
        If the text is malformed, with the line.
    """
    return _Parser(text).run()
