"""Random programs of loops, conditions and jumps, against the same programs in Python."""

import random
import sys

import numpy as np
import pytest

import weft
from weft import build

VARIABLES = ("a", "b", "c")


def statements(rng, depth, in_loop, budget):
    """Return random statements, as a tree: names of statements and what they need."""
    out = []
    for _ in range(rng.randint(1, 4)):
        if budget[0] <= 0:
            break
        budget[0] -= 1
        kinds = ["set", "set", "store"]
        if depth < 4:
            kinds += ["if", "if", "else", "loop", "while"]
        kinds += ["break", "continue"] if in_loop else []
        kinds += ["return"] if rng.random() < 0.2 else []
        kind = rng.choice(kinds)
        name, other = rng.choice(VARIABLES), rng.choice(VARIABLES)
        number = rng.randint(1, 6)
        if kind in ("set", "store"):
            out.append((kind, name, other, number))
        elif kind in ("break", "continue", "return"):
            if rng.random() < 0.7:  # most jumps under a condition
                out.append(("if", name, number, [(kind,)], []))
            else:
                out.append((kind,))
        else:
            inner = in_loop or kind in ("loop", "while")
            body = statements(rng, depth + 1, inner, budget) or [("set", name, other, 1)]
            rest = statements(rng, depth + 1, in_loop, budget) if kind == "else" else []
            out.append(("if" if kind == "else" else kind, name, number, body, rest))
    return out


def source(tree, indent=1):
    """Return statements as Python."""
    pad, rows = "    " * indent, []
    for kind, *rest in tree:
        if kind == "set":
            name, other, number = rest
            rows.append(f"{pad}{name} = ({name} * 3 + {other} + {number}) % 17")
        elif kind == "store":
            name, other, number = rest
            rows.append(f"{pad}y[{number}] = y[{number}] * 5 + {name} - {other}")
        elif kind in ("break", "continue", "return"):
            rows.append(pad + kind)
        else:
            name, number, body, orelse = rest
            head = {"if": f"if {name} % {number + 1} == 0:", "loop": f"for k in range({number}):",
                    "while": f"while {name} % {number + 2} != 1:"}[kind]
            rows.append(pad + head)
            if kind == "loop":
                rows.append(f"{pad}    {name} = {name} + k")
            if kind == "while":
                rows += [f"{pad}    {name} = {name} + 1", f"{pad}    y[7] = y[7] + 1"]
            rows.extend(source(body, indent + 1))
            if orelse:
                rows.append(pad + "else:")
                rows.extend(source(orelse, indent + 1))
    return rows


def emit(f, names, y, tree):
    """Write statements by a builder."""
    for kind, *rest in tree:
        if kind == "set":
            name, other, number = rest
            names[name].set((names[name] * 3 + names[other] + number) % 17)
        elif kind == "store":
            name, other, number = rest
            y[number] = y[number] * 5 + names[name] - names[other]
        elif kind in ("break", "continue", "return"):
            getattr(f, f"{kind}_")()
        else:
            name, number, body, orelse = rest
            v = names[name]
            if kind == "if":
                with f.if_(v % (number + 1) == 0):
                    emit(f, names, y, body)
                if orelse:
                    with f.else_():
                        emit(f, names, y, orelse)
            elif kind == "loop":
                with f.loop(number) as k:
                    v.set(v + k)
                    emit(f, names, y, body)
            else:
                with f.while_(lambda v=v, number=number: v % (number + 2) != 1):
                    v.set(v + 1)
                    y[7] = y[7] + 1
                    emit(f, names, y, body)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    rng = random.Random(seed)
    tree = statements(rng, 0, False, [40])
    with build.function("random") as f:
        y = f.array("y", weft.int64, (8,), writable=True)
        names = {name: f.variable(name, weft.int64, k) for k, name in enumerate(VARIABLES)}
        emit(f, names, y, tree)
        for name in VARIABLES:
            y[0] = y[0] * 100 + names[name]
    rows = ["def program(y):", "    a, b, c = 0, 1, 2", *source(tree),
            "    y[0] = (y[0] * 100 + a) * 10000 + b * 100 + c"]
    text = "\n".join(rows)
    scope = {}
    exec(text, scope)
    expected = [0] * 8
    steps = [0]

    def limited(frame, event, _):
        steps[0] += 1
        if steps[0] > 20_000:
            raise TimeoutError
        return limited

    before = sys.gettrace()
    sys.settrace(limited)
    try:
        scope["program"](expected)
    except TimeoutError:
        expected = None
    finally:
        sys.settrace(before)
    if expected is None:  # it does not end: the interpreter device must notice
        with pytest.raises(weft.WeftError, match="does not end"):
            f.program.interpret(np.zeros(8, np.int64), steps=20_000)
        return
    wrapped = np.array([(v + (1 << 63)) % (1 << 64) - (1 << 63) for v in expected], np.int64)
    for run in (f.program, f.program.interpret):
        y = np.zeros(8, np.int64)
        run(y)
        np.testing.assert_array_equal(y, wrapped, err_msg=text)


class Row:
    """One row of an array, as `emit` needs it."""

    def __init__(self, array, i):
        self.array, self.i = array, i

    def __getitem__(self, k):
        return self.array[self.i, k]

    def __setitem__(self, k, value):
        self.array[self.i, k] = value


def _without_returns(tree):
    out = []
    for kind, *rest in tree:
        if kind == "return":
            out.append(("set", "a", "b", 1))
        elif kind in ("if", "loop", "while"):
            name, number, body, orelse = rest
            out.append((kind, name, number, _without_returns(body), _without_returns(orelse)))
        else:
            out.append((kind, *rest))
    return out


def _ends(tree):
    """Whether all its loops end: those under a condition may not."""
    return all(kind != "while" and (kind not in ("if", "loop") or (_ends(rest[2])
               and _ends(rest[3]))) for kind, *rest in tree)


@pytest.mark.parametrize("seed", range(30))
def test_random_turns_of_parallel_loops(seed):
    rng = random.Random(1000 + seed)
    tree = _without_returns(statements(rng, 0, False, [30]))
    while not _ends(tree):
        tree = _without_returns(statements(rng, 0, False, [30]))
    count = 37
    with build.function("random") as f:
        y = f.array("y", weft.int64, (count, 8), writable=True)
        with f.parallel(count) as (i,):
            names = {name: f.variable(name, weft.int64, i * (k + 1) % 7)
                     for k, name in enumerate(VARIABLES)}
            emit(f, names, Row(y, i), tree)
            for name in VARIABLES:
                y[i, 0] = y[i, 0] * 100 + names[name]
    text = "\n".join(["def program(y, a, b, c):", *source(tree),
                      "    y[0] = (y[0] * 100 + a) * 10000 + b * 100 + c"])
    scope = {}
    exec(text, scope)
    expected = np.zeros((count, 8), np.int64)
    with np.errstate(over="ignore"):
        for i in range(count):
            row = [0] * 8
            scope["program"](row, *(i * (k + 1) % 7 for k in range(3)))
            expected[i] = [(v + (1 << 63)) % (1 << 64) - (1 << 63) for v in row]
    for run in (f.program, f.program.interpret):
        y = np.zeros((count, 8), np.int64)
        run(y)
        np.testing.assert_array_equal(y, expected, err_msg=text)
    assert f.program.sanitize(np.zeros((count, 8), np.int64)).findings == ()
