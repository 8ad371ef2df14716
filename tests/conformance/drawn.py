"""Random programs in which every intermediate is a result beside what reads it.

A program is a list of lines of Python, most of which define v0, v1 and so on, so that one that
fails is its own report, and can be made smaller by leaving lines out. Programs are drawn by a seed
alone. There are three kinds: of tensor methods, with gradients and attention among them; of
operations of graphs, with every dtype and every special value; and of tensor methods that PyTorch
has as well, with writes in place and a backward pass at their end.
"""

import math
import random
import re
from typing import NamedTuple

import drawn_steps as steps
import numpy as np
from devices import Device
from drawn_writes import write
from values import calm
from values import random as special

import weft
from weft.driver.check.errors import Reference
from weft.errors import DeviceError, WeftError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.tensors.core import pending

SIZES = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 12, 16, 17)
LARGE = (32, 33, 64, 65, 130)
MOST = 2500  # elements of one array
TYPES = ("float32",) * 16 + ("float64", "bfloat16", "float16", "int32", "int64", "uint8", "bool")
ALL_TYPES = ("bool", "uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16",
             "bfloat16", "float32", "float32", "float64")  # fmt: skip
FEW = (-1.0, -0.0, 0.0, 0.5, 0.5, 2.0)  # of which a row has several equal ones
STEPS = (4, 7, 12)
REFUSED = "  # refused"  # at the end of a line that raises
_DEFINED = re.compile(r"(\w+) = ")
# What PyTorch lacks or does otherwise where elements are equal.
_OWN = re.compile(r"\.(gelu|silu|softplus|pad|layer_norm|rms_norm|normalize|\w+_pool1d|conv1d|topk"
                  r"|median|argsort|cummax|kthvalue)\(|float16|to\(weft\.int")  # fmt: skip


class Drawn(NamedTuple):
    """A program.

    Attributes
    ----------
    lines : list of str
        What it executes, inputs first.
    shared : bool
        Whether PyTorch can execute it as well.
    start, stop : int
        Which lines are inside where a part of it is a captured function.
    closure : bool
        Whether that function finds what it reads by itself, instead of being given it.
    """

    lines: list[str]
    shared: bool
    start: int = 0
    stop: int = 1 << 20
    closure: bool = False

    def without(self, k):
        """Return the program without one of its lines."""
        return self._replace(lines=[*self.lines[:k], *self.lines[k + 1:]],
                             start=self.start - (k < self.start), stop=self.stop - (k < self.stop))

    def __str__(self):
        inside = f"# captured: lines {self.start} to {self.stop}, {'closure' * self.closure}"
        return "\n".join([*self.lines, inside])


def is_input(line):
    """Whether a line defines an input."""
    return " = leaf(" in line


def defined(line):
    """Return the name that a line defines, None if it defines none."""
    found = _DEFINED.match(line)
    return found and found[1]


def numbers(shape, dtype, seed, kind="calm"):
    """Return the values of an input: plain, ``whole`` (sums are exact), ``ties`` or ``wild``."""
    rng = np.random.default_rng(seed)
    d = getattr(dt, "bool_" if dtype == "bool" else dtype)
    if kind == "wild":
        return special(d, shape, rng)
    if kind == "calm" or d.is_bool:
        return calm(d, shape, rng)
    found = rng.choice(FEW, shape) if kind == "ties" else rng.integers(-8, 9, shape) / 4
    return (found if d.is_float else np.abs(found)).astype(d.numpy)


def leaf(shape, dtype, seed, kind="calm", grad=False):
    """Return an input of a program, now and then in memory that begins between aligned places."""
    array = numbers(shape, dtype, seed, kind)
    if seed % 3 == 0 or dtype in ("bfloat16", "float16"):
        made = weft.Tensor._from_node(Device("cpu").leaf(array, seed % 2))
    else:
        made = weft.tensor(array)
    return made.requires_grad_() if grad else made


def node(builder, *args):
    """Return what a builder of graph nodes makes of tensors."""
    given = [a._read() if isinstance(a, weft.Tensor) else a for a in args]
    made = getattr(infer, builder)(*given)
    return weft.Tensor._from_node(made[0] if isinstance(made, tuple) else made)


def meaning(t):
    """Return the graph of a tensor, with parameters that wait for their values as these."""
    return pending._defined([t._value()])[0][0]


def scope():
    """Return the names that programs begin with."""
    return {"weft": weft, "leaf": leaf, "node": node, "Op": Op, "dt": dt}


def execute(lines, names):
    """Execute lines of a program; those that are marked so must raise.

    Raises
    ------
    WeftError
        If another line does.
    """
    for line in lines:
        if not line.endswith(REFUSED):
            exec(line, names)
            continue
        try:
            exec(line, names)
        except WeftError:
            continue
        raise AssertionError(f"was refused before: {line}")


class Program:
    """Lines that grow, with the values they define and what is known of these."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.kind = r.choice(("tensors", "tensors", "tensors", "shared", "nodes"))
        self.chained = r.random() < 0.4  # nearly every line reads the one before
        self.tracked = self.kind != "nodes" and (self.kind == "shared" or r.random() < 0.3)
        self.attends = self.kind != "nodes" and r.random() < 0.2
        self.lines = []
        self.scope = scope()
        self.names = []
        self.reference = Reference()

    @property
    def shared(self):
        """Whether PyTorch can execute the program as well."""
        return self.kind == "shared"

    def pick(self, accept=lambda t: True):
        """Return the name of a value, late ones more often, or None if none is accepted."""
        fitting = [n for n in self.names if accept(self.scope[n])]
        if not fitting:
            return None
        drawn = self.random.random() ** (3 if self.chained else 1)
        return fitting[-1] if drawn < 0.5 else self.random.choice(
            fitting[-3:] if drawn < 0.8 else fitting)

    def exact(self, name):
        """Whether the value of a name is the same in every correct evaluation."""
        return self.reference.is_exact(meaning(self.scope[name]))

    def add(self, text):
        """Add a line that defines the next name, and return the name; None if Weft refuses it."""
        name = f"v{len(self.names)}"
        if self.shared and _OWN.search(text):
            return None
        try:
            made = eval(text, self.scope)
        except DeviceError:
            raise
        except WeftError:
            return None
        if not isinstance(made, weft.Tensor) or made.numel() > MOST or made.ndim > 5:
            return None
        self.lines.append(f"{name} = {text}")
        self.names.append(name)
        self.scope[name] = made
        return name

    def do(self, line):
        """Add a line that defines nothing, marked if Weft refuses it."""
        try:
            exec(line, self.scope)
        except DeviceError:
            raise
        except WeftError as error:
            if "one place in memory" in str(error):  # PyTorch looks at each index, Weft at the view
                return
            line += REFUSED
        self.lines.append(line)

    def leaf(self, shape, dtype, kinds=("calm",)):
        """Add an input, and return its name; None if it is too large."""
        r = self.random
        if math.prod(shape) > MOST:
            return None
        grad = ", True" if self.tracked and "float" in dtype and r.random() < 0.8 else ""
        return self.add(f"leaf({shape}, {dtype!r}, {r.randrange(1 << 16)}, {r.choice(kinds)!r}"
                        f"{grad})")  # fmt: skip


def draw(seed):
    """Return a random program."""
    p = Program(seed)
    _inputs(p, p.random)
    most = p.random.choice(STEPS)
    {"tensors": _steps, "shared": _writes, "nodes": _operations}[p.kind](p, p.random, most)
    inputs = [line for line in p.lines if is_input(line)]
    lines = inputs + [line for line in p.lines if not is_input(line)]
    return Drawn(lines, p.shared, *_part(p.random, lines, len(inputs)))


def _part(r, lines, first):
    """Return what `Drawn` says of the part that is captured: half of the time all but inputs."""
    values = sum(1 for line in lines if not line.startswith("g"))
    start = r.randrange(first, values) if values > first and r.random() < 0.25 else first
    stop = r.randint(start + 1, values) if values > start and r.random() < 0.5 else len(lines)
    return start, stop, r.random() < 0.25


def _inputs(p, r):
    kinds = ("calm", "calm", "whole", "ties") + ("wild", "wild") * (p.kind == "nodes")
    types = {"tensors": TYPES, "shared": ("float32", "float64"), "nodes": ALL_TYPES}[p.kind]
    for _ in range(r.choice((1, 1, 2)) + (p.kind != "tensors")):
        shape = tuple(r.choice(SIZES) for _ in range(r.choice((1, 2, 2, 2, 3, 3, 4))))
        if r.random() < 0.15:
            shape = (*shape[:1], r.choice(LARGE))
        if p.attends:
            shape = (*r.choice(((), (), (2,), (2, 2))), r.choice((8, 9, 12)), r.choice((4, 8, 16)))
        p.leaf(shape, types[0] if p.attends else r.choice(types), kinds)
    if not p.names:
        p.leaf((3, 8), "float32")


def _steps(p, r, most):
    step = None
    for _ in range(r.randint(3, most)):
        step = r.choice(steps.AFTER.get(step, steps.STEPS) if r.random() < 0.4 else steps.STEPS)
        step = steps.attend if p.attends and r.random() < 0.4 else step
        text = step(p, r)
        if text is not None:
            p.add(text)


def _operations(p, r, most):
    for _ in range(r.randint(3, 2 * most)):
        text = r.choice(steps.OPERATIONS)(p, r)
        if text is not None:
            p.add(text)


def _writes(p, r, most):
    """Add steps, writes among them or none, then the gradient of a number that reads the values."""
    often = r.choice((0, 0.2, 0.5))
    for _ in range(r.randint(1, 3)):
        _steps(p, r, max(most // 3, 3))
        while r.random() < often:
            line = write(p, r)
            if line is not None:
                p.do(line)
    tracked = [n for n in p.names if p.scope[n].requires_grad]
    if not tracked:
        return
    read = r.sample(tracked, min(len(tracked), r.randint(1, 3)))
    terms = " + ".join(r.choice((f"{n}.sum()", f"({n} * {n}).sum()")) for n in read)
    total = p.add(terms)
    if total is not None:
        p.do(f"{total}.backward(retain_graph=True)")
        inputs = [defined(line) for line in p.lines if is_input(line)]
        p.lines += [f"g{n[1:]} = {n}.grad" for n in tracked if n in inputs]


def smaller(drawn, fails):
    """Return a program that still fails with as few lines as leaving them out gives.

    Parameters
    ----------
    drawn : Drawn
        A program that fails.
    fails : callable
        Whether one does; those that cannot be executed count as if they did not.
    """
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(drawn.lines))):
            rest = drawn.without(k)
            if rest.lines and _is_defined(rest) and fails(rest):
                drawn, changed = rest, True
    return drawn


def _is_defined(drawn):
    try:
        execute(drawn.lines, scope())
    except Exception:
        return False
    return True
