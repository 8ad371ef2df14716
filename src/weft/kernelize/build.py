"""A graph as kernels in order: equal groups are lowered once."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from weft.errors import VerifyError
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.size import canonical
from weft.ir.stmt import Kernel, Memory
from weft.ir.traverse import Tally
from weft.kernelize.attention.attention_groups import block_of
from weft.kernelize.common.cost import TUPLES, is_leaf
from weft.kernelize.common.group import Group
from weft.kernelize.fusion.attention_parts import Attention
from weft.kernelize.fusion.evaluation_counts import verify_evaluations
from weft.kernelize.fusion.fuse import Form, Fusion, fuse
from weft.kernelize.lower import Lowered, lower
from weft.kernelize.special import attempt
from weft.target import SIMT, Target

_pack: Final = struct.Struct("<d").pack


class Lowering(NamedTuple):
    """What writing one loop nest took: passes over all of it, and milliseconds."""

    passes: int
    milliseconds: float


class Step(Record):
    """One launch: a kernel and the nodes its parameters stand for.

    ``inputs`` are BUFFER leaves or nodes stored by earlier steps; ``outputs`` are stored by this
    one; ``scratch`` are arrays it needs besides; ``checks`` are the nodes whose runtime checks the
    kernel makes, by check number; ``why`` tells why these values are in one kernel; ``lowering``
    is what writing the loop nest took.
    """

    kernel: Kernel
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    scratch: tuple[Memory, ...]
    checks: tuple[Node, ...]
    why: tuple[str, ...]
    lowering: Lowering

    def verify(self) -> Step:
        """Return the launch if each parameter of its kernel has one array of its dtype and size.

        A launch with an array too many hands every parameter behind it the memory of another one,
        and the kernel writes past its end.

        Raises
        ------
        VerifyError
            Naming the kernel, and the parameter where they part.
        """
        params = self.kernel.params
        arrays = [(n.dtype, canonical(nd.size(n.shape))) for n in (*self.inputs, *self.outputs)]
        arrays += [(m.dtype, canonical(m.size)) for m in self.scratch]
        if len(arrays) != len(params):
            raise VerifyError(f"launch of {self.kernel.name}", found=f"{len(arrays)} arrays",
                              expected=f"{len(params)}, one for each parameter")
        for memory, (dtype, size) in zip(params, arrays, strict=True):
            wanted = canonical(memory.size)
            if memory.dtype is not dtype or wanted != size:
                raise VerifyError(
                    f"launch of {self.kernel.name}",
                    found=f"an array of {size} {dtype} for {memory.name}",
                    expected=f"{wanted} {memory.dtype}")
        return self


def kernelize(outputs: Sequence[Node], target: Target | None = None,
              strict: bool = False) -> list[Step]:  # fmt: skip
    """Return the launches that compute `outputs`, each after those it depends on.

    Where a special form of a kernel fails, all are made again in a more general one: without
    attentions, and in the end with a kernel for each operation.

    Parameters
    ----------
    outputs : sequence of Node
        What is computed.
    target : Target, optional
        What it has operations for may decide by which method a kernel computes; without one every
        target can run them.
    strict : bool
        Verify what each rewrite of a nest stores and how often kernels evaluate what they inline,
        and raise what special forms raise.
    """
    def made(form: Form, reason: str = "") -> list[Step]:
        return _steps(outputs, target, strict, form, reason)

    return attempt(
        lambda: made(Form.ALL),
        lambda first: attempt(lambda: made(Form.NO_ATTENTION, first),
                              lambda _: made(Form.ALONE, first), strict), strict)


def kernelize_alone(outputs: Sequence[Node], target: Target | None = None) -> list[Step]:
    """Return launches that compute one operation each: the most general form there is."""
    return _steps(outputs, target, False, Form.ALONE, "nothing else could be made")


def _steps(outputs: Sequence[Node], target: Target | None, strict: bool, form: Form,
           reason: str) -> list[Step]:  # fmt: skip
    """Return the launches of a graph whose values share kernels as far as a form allows it."""
    suits = None if target is None or target.style != SIMT else partial(_suits, target)
    fusion = fuse([nd.base(o) for o in outputs if not is_leaf(o)], form, suits)
    if strict:
        verify_evaluations(fusion)
    wanted = {nd.base(o) for o in outputs}
    groups = fusion.ordered()
    read = {
        d for g in groups for m in g.members for d in fusion.reads.get(m, ())
        if fusion.home[d] is not g
    }
    done: dict[Any, tuple[Lowered, list[Node], Lowering]] = {}
    steps: list[Step] = []
    for group in groups:
        stored = [m for m in group.members
                  if (m in wanted or m in read) and m.op not in TUPLES]
        key, nodes, inputs = _key(group, fusion, stored)
        found = done.get(key)
        if found is None:
            start, before = time.perf_counter(), Tally.passes
            if reason:
                group.why.append(f"{form.value}, since a special form failed ({reason})")
            made = lower(group, fusion, stored, f"k{len(done)}", target, strict)
            took = Lowering(Tally.passes - before, (time.perf_counter() - start) * 1e3)
            found = done[key] = made, nodes, took
        lowered, theirs, took = found
        place = {n: i for i, n in enumerate(theirs)}
        checks = tuple(nodes[place[c]] for c in lowered.checks)
        steps.append(Step(lowered.kernel, inputs, tuple(stored), lowered.scratch, checks,
                          tuple(group.why), took).verify())
    return steps


def _suits(target: Target, match: Attention, with_gradients: bool) -> str:
    """Return why a device of threads has no kernel for an attention, an empty text if it has."""
    if with_gradients:
        return "its gradients are products and a softmax on a device of threads"
    if block_of(match, target) is None:
        return "no block of its queries fits the memory of a group"
    return ""


def _key(group: Group, fusion: Fusion,
         stored: list[Node]) -> tuple[Any, list[Node], tuple[Node, ...]]:  # fmt: skip
    """Return what the loop nest of a group depends on, its nodes numbered, and its inputs."""
    members = frozenset(group.members)
    number: dict[Node, int] = {}
    rows: list[tuple[Any, ...]] = []
    inputs: dict[Node, int] = {}

    def visit(node: Node) -> None:
        attr: Any = node.attr
        args: tuple[int, ...] = ()
        if node.op is Op.BUFFER or (node in fusion.home and node not in members):
            attr = ("in", inputs.setdefault(node, len(inputs)))
        else:
            args = tuple([number[a] for a in node.args])
            if type(attr) is float:
                attr = _pack(attr)
            elif node.op is Op.PAD:
                attr = repr(attr)
        number[node] = len(rows)
        rows.append((node.op.name, node.dtype, node.shape, args, attr))

    for member in group.members:
        stack = [member]
        while stack:
            node = stack[-1]
            if node in number:
                stack.pop()
                continue
            outside = node.op is Op.BUFFER or (node in fusion.home and node not in members)
            missing = [] if outside else [a for a in node.args if a not in number]
            if missing:
                stack.extend(reversed(missing))
            else:
                visit(node)
                stack.pop()
    key = (tuple(rows), tuple(number[m] for m in group.members), group.kind, group.full,
           group.inner_axes, tuple(number[s] for s in stored))
    return key, list(number), tuple(inputs)
