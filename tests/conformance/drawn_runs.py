"""The ways in which a drawn program runs, and what its values are compared with.

Every value of every run is compared with the interpretation of its graph in NumPy, within its error
bound, and those of programs that PyTorch can execute, their gradients among them, with PyTorch's.
"""

import contextlib
import importlib.util
import os
import re
import time

from drawn import REFUSED, defined, execute, is_input, meaning, scope

import weft
from weft import config
from weft.config import config as settings
from weft.driver.check.compare import difference
from weft.driver.check.errors import Reference
from weft.driver.check.graph import evaluate
from weft.driver.plans import host_program, plan_cache
from weft.errors import CheckError, WeftError
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.traverse import walk

POISON = 7.75
_POISONED = (64, 256, 1024, 4096, 16384, 65536)
STATEMENTS_A_NODE = 8
KERNELS_A_NODE = 1.0  # at most, and
SECONDS_A_NODE = 0.1  # to compile, beyond: what grows exponentially takes minutes
SECONDS = 5.0
_LEAF = re.compile(r"(\w+ = leaf\(\()([^)]*)(\), '\w+', )(\d+)")
_NAME = re.compile(r"\b[vg]\d+\b")
_DIFFERENTIATES = re.compile(r"weft\.grad\(|\.backward\(")
_REALIZES = re.compile(r"\w+\.tolist\(\); ")


class WrongError(AssertionError):
    """A result that differs from its reference."""


# values


def tensors_of(lines, names):
    """Return what a program defined, by name; None for gradients that are not there."""
    return {name: names[name] for line in lines if (name := defined(line))}


def expected(tensors):
    """Return the value and the error bound of each tensor by the interpretation of its graph."""
    known = Reference()
    return {name: None if t is None else known.of(meaning(t)) for name, t in tensors.items()}


def array(t):
    """Return the value of a tensor that was realized, of views as well."""
    node = t._value()
    assert all(n.op is Op.BUFFER or n.op.group == "movement" or n.op is Op.DETACH
               for n in nd.toposort([node])), f"not realized: {node!r}"
    return evaluate([node])[node]


def compare(tensors, wanted, what=""):
    """Compare tensors with what they should be.

    Raises
    ------
    WrongError
        If one differs by more than its bound, or is None where the other is not.
    """
    for name, t in tensors.items():
        if t is None or wanted[name] is None:
            if (t is None) != (wanted[name] is None):
                raise WrongError(f"{what}{name} is {t}, and should be {wanted[name]}")
            continue
        found = difference(array(t), *wanted[name])
        if found is not None:
            raise WrongError(f"{what}{name}: {found}")


def realize(tensors):
    """Compute tensors in memory in which other numbers were."""
    if not settings().poison:
        held = [weft.full((size // 4,), POISON) for size in _POISONED for _ in range(3)]
        weft.realize(*held)
        del held
    weft.realize(*[t for t in tensors.values() if t is not None])


# ways


def run(drawn, whole=True, wanted=None):
    """Evaluate a program with every value as a result, or only what nothing reads, and compare.

    Returns
    -------
    dict of str to (array, array)
        The value and the error bound of each name.
    """
    names = scope()
    execute(drawn.lines, names)
    tensors = tensors_of(drawn.lines, names)
    wanted = wanted or expected(tensors)
    if not whole:
        read = " ".join(line.split(" = ", 1)[-1] for line in drawn.lines)
        tensors = {n: t for n, t in tensors.items() if not re.search(rf"\b{n}\b", read)}
    with limits():
        realize(tensors)
    compare(tensors, wanted)
    return wanted


@contextlib.contextmanager
def limits():
    """Hold what is compiled inside against the bounds that are linear in the nodes of a graph.

    Raises
    ------
    WrongError
        If there are too many kernels or statements, or they take too long to compile.
    """
    right, made = host_program.kernelize, []

    def counted(outputs, *rest):
        steps = right(outputs, *rest)
        made.append((len(nd.toposort(outputs)), steps))
        return steps

    host_program.kernelize = counted
    start = time.process_time()
    try:
        yield
    finally:
        host_program.kernelize = right
    seconds = time.process_time() - start
    for nodes, steps in made:
        if len(steps) > KERNELS_A_NODE * nodes + 2:
            raise WrongError(f"{len(steps)} kernels of {nodes} nodes")
        count = sum(_statements(s.kernel) for s in steps)
        if count > STATEMENTS_A_NODE * nodes:
            raise WrongError(f"{count} statements of {nodes} nodes")
    nodes = sum(nodes for nodes, _ in made)
    if seconds > SECONDS + SECONDS_A_NODE * nodes:
        raise WrongError(f"{seconds:.1f} s to compile {nodes} nodes")


def _statements(kernel):
    """Return how many statements a kernel has; sorts and their like are one."""
    if kernel.meta.kind not in ("elementwise", "rowwise", "contraction"):
        return 1
    return sum(1 for _ in walk(kernel.body))


def run_checked(drawn):
    """Run a program in the mode in which plans, kernels and stages check themselves."""
    before = os.environ.get("WEFT_CHECK")
    os.environ["WEFT_CHECK"] = "1"
    try:
        config.reset()
        plan_cache.forget()
        run(drawn)
    finally:
        os.environ.pop("WEFT_CHECK")
        if before is not None:
            os.environ["WEFT_CHECK"] = before
        config.reset()
        plan_cache.forget()


# captured functions


DATA = ((0, 0), (0, 0), (1, 0))  # what changes between the calls of a captured function
SIZES = ((0, 0), (0, 1), (1, 1), (0, 2))


def captured(drawn, changes):
    """Run a part of a program in a captured function, several times, with other data or sizes.

    The function is given what it reads of the program as arguments or finds it by itself; what
    comes after it, a backward pass perhaps, reads its results.
    """
    lines = ["pass" if line.endswith(REFUSED) else _REALIZES.sub("", line) for line in drawn.lines]
    inputs = sum(map(is_input, lines))
    start, stop, closure = max(drawn.start, inputs), drawn.stop, drawn.closure
    names = scope()
    execute(lines[:start], names)
    owners = [_owner(t) for t in tensors_of(lines[:start], names).values() if t is not None]
    if len(set(owners)) < len(owners) or _DIFFERENTIATES.search("\n".join(lines[start:stop])):
        start = inputs  # of arguments none is a view of another, nor known to be made of it
    # Results are tensors of their own: writes to them do not reach what they were views of.
    writes = [k for k, line in enumerate(lines) if not defined(line) and ".backward(" not in line]
    stop = max([stop, *(k + 1 for k in writes)])
    body = lines[start:stop]
    made = [name for line in body if (name := defined(line))]
    if not made:
        return
    known = {defined(line) for line in lines[:start]}
    given = sorted({n for line in body for n in _NAME.findall(line) if n in known})
    params = "" if closure else ", ".join(given)
    text = "\n".join([f"def program({params}):", *(f"    {line}" for line in body),
                      f"    return [{', '.join(made)}]"])  # fmt: skip
    call = f"{', '.join(made)}, = captured({params})"
    function = None if closure else _function(text, scope())
    for data, size in changes:
        now = [_other(line, data, size) for line in lines]
        _call(now, start, stop, call, function or text)


def _owner(t):
    return id(t if t._base is None else t._base)


def _function(text, names):
    exec(compile(text, "<program>", "exec"), names)
    return weft.jit(names["program"])


def _other(line, data, size):
    """Return a line, of inputs one with other numbers, and with a longer first axis."""
    def changed(match):
        sizes = [int(n) for n in match[2].split(",") if n.strip()]
        text = ", ".join(map(str, [sizes[0] + size, *sizes[1:]])) + "," if sizes else ""
        return f"{match[1]}{text}{match[3]}{int(match[4]) + 978 * data}"
    return _LEAF.sub(changed, line)


def _call(lines, start, stop, call, function):
    """Run lines, those from `start` to `stop` as a call, and compare; both may raise alike."""
    eager = scope()
    raised = None
    try:
        execute(lines, eager)
        wanted = expected(tensors_of(lines, eager))
    except WeftError as error:
        raised = error
    names = scope()
    try:
        execute(lines[:start], names)
        names["captured"] = _function(function, names) if isinstance(function, str) else function
        execute([call, *lines[stop:]], names)
        tensors = tensors_of(lines, names)
        realize(tensors)
    except WeftError as error:
        if raised is None or (not isinstance(error, type(raised)) and (
                not isinstance(raised, type(error)))):
            raise
        return
    if raised is not None:
        raise WrongError(f"captured: ran where eager code raises {raised}")
    compare(tensors, wanted, "captured, ")


# all ways


def has_torch():
    """Whether PyTorch is there to be compared with."""
    return importlib.util.find_spec("torch") is not None


def ways_of(drawn):
    """Return the ways in which a program can run, beside the plain one, by name."""
    ways = {
        "ends": lambda wanted: run(drawn, whole=False, wanted=wanted),
        "captured": lambda wanted: captured(drawn, DATA),
        "sizes": lambda wanted: captured(drawn, SIZES),
        "checked": lambda wanted: run_checked(drawn),
    }
    if drawn.shared and has_torch():
        from drawn_in_torch import compare_with_torch

        ways["torch"] = lambda wanted: compare_with_torch(drawn, wanted)
    return ways


def fails(drawn, ways=None):
    """Return what is wrong with a program, None if nothing is.

    Parameters
    ----------
    drawn : Drawn
        The program.
    ways : collection of str, optional
        The ways to run it beside the plain one; all but ``checked`` by default.
    """
    name = "run"
    try:
        wanted = run(drawn)
        for name, way in ways_of(drawn).items():
            if name in ways if ways is not None else name != "checked":
                way(wanted)
    except CheckError as error:
        return f"{name}: {error}"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {str(error)[:600]}"
    return None
