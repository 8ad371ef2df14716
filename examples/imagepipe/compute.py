"""Compute blocks: code for each pixel, translated to calls of a builder."""

from __future__ import annotations

import contextlib

from examples.imagepipe.syntax import at

import weft
from weft import build

FUNCTIONS = {
    "sqrt": 1, "exp": 1, "log": 1, "sin": 1, "cos": 1, "tan": 1, "tanh": 1, "atan2": 2, "pow": 2,
    "floor": 1, "ceil": 1, "abs": 1, "min": 2, "max": 2, "clamp": 3,
}  # fmt: skip
READS = {"red": 0, "green": 1, "blue": 2}  # of the picture, anywhere: in @kernel blocks
FIXED = ("x", "y", "width", "height", "lx", "ly")


class Poisoned(Exception):
    """An error in this was told already."""


class Code:
    """Translates the statements of one block.

    Attributes
    ----------
    f : weft.build.Builder
        Gets the statements.
    names : dict
        What the names of the block are: variables, numbers, arrays; None after an error.
    """

    def __init__(self, f, file, errors, functions, names, planes=None):
        self.f, self.file, self.errors = f, file, errors
        self.functions, self.names, self.planes = functions, dict(names), planes

    def at(self, node):
        """Return the place of a node."""
        return at(node, self.file)

    def wrong(self, message, node, hint=""):
        """Keep an error; return what ends its statement."""
        self.errors.note(message, self.at(node), hint)
        return Poisoned()

    # --- statements

    def body(self, tree):
        """Translate a list of statements; what it declares ends with it."""
        outside = dict(self.names)
        for statement in tree.children:
            with self.errors, contextlib.suppress(Poisoned):
                getattr(self, f"_{statement.data}")(statement)
        self.names = outside

    def _let(self, tree):
        name, value = tree.children
        if name in self.names:
            raise self.wrong(f"{name} is declared already", name, f"{name} = ... changes it")
        self.names[str(name)] = None
        found = self.number(value)
        kind = weft.bool if _is_bool(found) else weft.float32
        if not _is_bool(found):
            found = self.real(found, value)
        self.names[str(name)] = self.f.variable(str(name), kind, found, at=self.at(tree))

    def _assign(self, tree):
        name, value = tree.children
        variable = self.known(name)
        if not isinstance(variable, build.Variable):
            what = "an array" if isinstance(variable, build.Array) else "fixed"
            raise self.wrong(f"{name} is {what}: it cannot be assigned to", name)
        found = self.number(value)
        if variable.dtype is not weft.bool:
            found = self.real(found, value)
        variable.set(found, at=self.at(tree))

    def _store(self, tree):
        name, *index, value = tree.children
        array = self.known(name)
        if not isinstance(array, build.Array):
            raise self.wrong(f"{name} is no array", name)
        places = [self.whole(i) for i in index]
        self.f.store(array, places, self.real(self.number(value), value), at=self.at(tree))

    def _if(self, tree):
        test, then, orelse = tree.children
        with self.f.if_(self.truth(test), at=self.at(test)):
            self.body(then)
        if orelse is not None:
            with self.f.else_(at=self.at(orelse)):
                inner = orelse.children[0]
                if orelse.data == "elseif":
                    self._if(inner)
                else:
                    self.body(inner)

    def _while(self, tree):
        test, body = tree.children
        with self.f.while_(lambda: self.truth(test), at=self.at(test)):
            self.body(body)

    def _for(self, tree):
        name, first, last, body = tree.children
        outside = self.names.get(str(name), Poisoned)
        if outside is not Poisoned:
            raise self.wrong(f"{name} is declared already", name)
        ends = self.whole(first), self.whole(last)
        with self.f.loop(*ends, name=str(name), at=self.at(tree)) as index:
            self.names[str(name)] = index
            self.body(body)
        del self.names[str(name)]

    def _shared(self, tree):
        name, *sizes = tree.children
        if self.planes is None:
            raise self.wrong("shared memory in a block without @kernel", tree)
        if name in self.names:
            raise self.wrong(f"{name} is declared already", name)
        self.names[str(name)] = self.f.shared(str(name), weft.float32, tuple(map(int, sizes)),
                                              at=self.at(tree))

    def _barrier(self, tree):
        if self.planes is None:
            raise self.wrong("a barrier in a block without @kernel", tree)
        self.f.barrier(at=self.at(tree))

    # --- expressions

    def number(self, tree):
        """Return the value of an expression: of the builder, or a number of Python."""
        return getattr(self, f"_{tree.data}")(tree)

    def numeric(self, tree):
        """Return the value of an expression that is a number."""
        value = self.number(tree)
        if _is_bool(value):
            raise self.wrong("true or false where a number is needed", tree)
        return value

    def real(self, value, tree):
        """Return a value as a float32."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if _is_bool(value):
            raise self.wrong("true or false where a number is needed", tree)
        return self.f.cast(value, weft.float32, at=self.at(tree))

    def whole(self, tree):
        """Return an expression as an integer; a float is rounded down."""
        value = self.number(tree)
        if isinstance(value, float) or (not isinstance(value, int) and value.dtype.is_float):
            return self.f.call("floor", value, at=self.at(tree))
        return value

    def known(self, name):
        """Return what a name is."""
        if name not in self.names:
            listed = ", ".join(sorted(self.names))
            raise self.wrong(f"{name} is not declared", name, f"known here: {listed}")
        if self.names[name] is None:
            raise Poisoned
        return self.names[name]

    def _number(self, tree):
        text = str(tree.children[0])
        return float(text) if "." in text or "e" in text else int(text)

    def _truth(self, tree):
        return self.f.constant(str(tree.children[0]) == "true", weft.bool, at=self.at(tree))

    def _name(self, tree):
        found = self.known(tree.children[0])
        if isinstance(found, build.Array):
            raise self.wrong(f"{tree.children[0]} is an array", tree, "name[index] is an element")
        return found.get(at=self.at(tree)) if isinstance(found, build.Variable) else found

    def _binary(self, tree):
        a, symbol, b = tree.children
        left, right = self.numeric(a), self.numeric(b)
        if symbol == "/":
            left, right = self.real(left, a), self.real(right, b)
        if isinstance(left, int | float) and isinstance(right, int | float):
            left = self.f.constant(float(left), weft.float32, at=self.at(a))
        return self.f.op(str(symbol), left, right, at=self.at(tree))

    def _unary(self, tree):
        symbol, x = tree.children
        value = self.numeric(x)
        if isinstance(value, int | float):
            return -value if symbol == "-" else value
        return self.f.op(str(symbol), value, at=self.at(tree))

    def _logic(self, tree, symbol):
        a, b = (self.truth(t) for t in tree.children)
        return self.f.op(symbol, a, b, at=self.at(tree))

    def truth(self, tree):
        """Return the value of a condition."""
        value = self.number(tree)
        if not _is_bool(value):
            raise self.wrong("a number where true or false is needed", tree, "compare it: a > 0")
        return value

    def _and_(self, tree):
        return self._logic(tree, "&")

    def _or_(self, tree):
        return self._logic(tree, "|")

    def _not_(self, tree):
        return self.f.op("not", self.truth(tree.children[0]), at=self.at(tree))

    def _element(self, tree):
        name, *index = tree.children
        array = self.known(name)
        if not isinstance(array, build.Array):
            raise self.wrong(f"{name} is no array", name)
        return self.f.load(array, *[self.whole(i) for i in index], at=self.at(tree))

    def _call(self, tree):
        name, *args = tree.children
        args = [a for a in args if a is not None]
        if name in READS:
            return self._read(str(name), args, tree)
        defined = self.functions.get(str(name))
        count = FUNCTIONS.get(str(name)) if defined is None else len(defined.params)
        if count is None:
            listed = ", ".join(sorted({*FUNCTIONS, *READS, *self.functions}))
            raise self.wrong(f"there is no function {name}", name, f"there are: {listed}")
        if len(args) != count:
            raise self.wrong(f"{name} takes {count} numbers, found {len(args)}", tree)
        values = [self.real(self.number(a), a) for a in args]
        where = self.at(tree)
        if defined is not None:
            return self.f.call(defined, *values, at=where)
        values = [self.f.constant(v, weft.float32, at=where) if isinstance(v, float) else v
                  for v in values]
        if name == "clamp":
            low = self.f.call("max", values[0], values[1], at=where)
            return self.f.call("min", low, values[2], at=where)
        found = self.f.call(str(name), *values, at=where)
        return self.f.cast(found, weft.float32, at=where)

    def _read(self, name, args, tree):
        """Read the picture as it was before the block, at any place."""
        if self.planes is None:
            raise self.wrong(f"{name}() in a block without @kernel", tree,
                             "other pixels can be read in @kernel blocks")
        if len(args) != 2:
            raise self.wrong(f"{name} takes a column and a row, found {len(args)} numbers", tree)
        column, row = (self.whole(a) for a in args)
        return self.f.load(self.planes, READS[name], row, column, at=self.at(tree))


def _is_bool(value):
    return not isinstance(value, int | float) and value.dtype is weft.bool
