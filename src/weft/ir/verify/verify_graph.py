"""The verifier of graph level: every node is what its checked builder makes of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, cast

from weft.errors import VerifyError, WeftError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Bounds, Expr
from weft.ir.node import Dim, Node, Shape, Storage
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.text.text_graph import ATTRIBUTES

Result = tuple[dt.DType, Shape]


def verify_graph(outputs: Sequence[Node]) -> None:
    """Check the graph below `outputs`.

    Raises
    ------
    VerifyError
        If a node is not legal; ``where`` is the user's line that made it, where known.
    """
    for node in nd.toposort(outputs):
        _check(node)


def _fail(node: Node, found: str, expected: str | None = None) -> NoReturn:
    place = nd.locations.get(node)
    where = None if place is None else (place.file, place.line)
    raise VerifyError(f"verify graph, at {node!r}", found=found, expected=expected, where=where)


def _check(node: Node) -> None:
    op = node.op
    for dim in node.shape:
        if isinstance(dim, Expr) and (dim.dtype is not dt.int64 or dim.lanes != 1):
            _fail(node, f"the size {dim!r}", "an int64 expression")
        if not isinstance(dim, Expr) and (not isinstance(dim, int) or dim < 0):
            _fail(node, f"the size {dim!r}", "a size of at least 0")
    if len(node.args) != op.arity and op.arity >= 0:
        _fail(node, f"{len(node.args)} operands", f"{op.arity}")
    record = ATTRIBUTES.get(op)
    if record is not None and not isinstance(node.attr, record):
        _fail(node, f"the attribute {node.attr!r}", record.__name__)
    rule: Callable[[Node], Result | None] | None = _RULES.get(op)
    if rule is None and op.is_elementwise:
        rule = _elementwise
    if rule is None:
        _fail(node, op.name, "an operation of graph level")
    try:
        expected = rule(node)
    except WeftError as error:
        raise VerifyError(f"verify graph, at {node!r}", found=str(error)) from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        _fail(node, f"the attribute {node.attr!r}: {error}")
    if expected is None:
        return
    dtype, shape = expected
    if node.dtype is not dtype:
        _fail(node, node.dtype.text, dtype.text)
    if not _agree(node.shape, shape):
        _fail(node, f"the shape {list(node.shape)}", f"{list(shape)}")


def _agree(a: Shape, b: Shape) -> bool:
    """Whether two shapes may be equal: symbolic sizes are compared when the graph runs."""
    return len(a) == len(b) and all(map(_may_agree, a, b))


def _may_agree(a: Dim, b: Dim) -> bool:
    return isinstance(a, Expr) or isinstance(b, Expr) or a == b


def _of(made: Node) -> Result:
    return made.dtype, made.shape


def _elementwise(node: Node) -> Result:
    if node.attr is not None:
        _fail(node, f"the attribute {node.attr!r}", "none")
    return _of(infer.elementwise(node.op, *node.args))


def _leaf(node: Node) -> Result | None:
    if node.shape != ():
        _fail(node, f"the shape {list(node.shape)}", "no axes")
    if node.op is Op.VARIABLE:
        if not isinstance(node.attr, Bounds):
            _fail(node, f"the attribute {node.attr!r}", "a name with bounds")
        return dt.int64, ()
    dt.check_value(node.attr, node.dtype, "const")
    return None


def _buffer(node: Node) -> Result:
    if not isinstance(node.attr, Storage):
        _fail(node, f"the attribute {node.attr!r}", "a storage")
    return node.attr.dtype, (node.attr.size,)


def _iota(node: Node) -> Result | None:
    if len(node.shape) != 1 or node.dtype.kind not in Op.IOTA.kinds:
        _fail(node, f"{node.dtype.text}{list(node.shape)}", "one axis of numbers")
    return None


def _convert(node: Node) -> Result:
    x = node.args[0]
    made = infer.cast if node.op is Op.CAST else infer.bitcast
    return node.dtype, made(x, node.dtype).shape


def _pad(node: Node) -> Result:
    x, attr = node.args[0], node.attr
    sizes = zip(node.shape, x.shape, attr.before, strict=True)
    after = [0 if any(isinstance(v, Expr) for v in (n, s, b)) else n - s - b for n, s, b in sizes]
    return _of(infer.pad(x, attr.before, after, attr.value))


def _strided(node: Node) -> Result:
    a = node.attr
    shape = cast("tuple[int, ...]", node.shape)
    return _of(infer.strided(node.args[0], shape, a.offset, a.strides))


def _window(node: Node) -> Result:
    a = node.attr
    return _of(infer.window(node.args[0], a.axis, a.size, a.step, a.dilation))


def _unwindow(node: Node) -> Result:
    a = node.attr
    return _of(infer.unwindow(node.args[0], a.axis, a.step, a.dilation, node.shape[a.axis]))


def _sort(node: Node) -> Result:
    values, _ = infer.sort(node.args[0], node.attr.axis, node.attr.descending,
                          node.attr.keep)
    return _of(values)


def _project(node: Node) -> Result:
    both = node.args[0]
    if both.op is Op.LAUNCH:
        if not isinstance(node.attr, int) or not 0 <= node.attr < len(both.attr.writes):
            _fail(node, f"part {node.attr!r} of a launch", "one of the arrays that it writes to")
        return _of(both.args[both.attr.writes[node.attr]])
    if both.op not in (Op.SORT, Op.PACK) or node.attr not in (0, 1):
        _fail(node, f"part {node.attr!r} of {both.op.name}", "part 0 or 1 of a sort or pack")
    if both.op is Op.PACK and node.attr == 1:
        return dt.int64, ()
    return (both.dtype if node.attr == 0 else dt.int64), both.shape


def _launch(node: Node) -> Result:
    a = node.attr
    return _of(infer.launch(a.code, a.name, node.args, a.writes, a.fresh, a.why)[0].args[0])


def _gather(node: Node) -> Result:
    x, index = node.args
    return _of(infer.gather(x, index, node.attr.axis, node.attr.what))


def _scatter(node: Node) -> Result:
    base, index, updates = node.args
    a = node.attr
    if a.kind not in infer.SCATTER_KINDS:
        _fail(node, f"the kind {a.kind!r}", "one of " + ", ".join(infer.SCATTER_KINDS))
    return _of(infer.scatter(base, index, updates, a.axis, a.kind, a.what))


def _pack(node: Node) -> Result:
    return _of(infer.pack(*node.args)[0])


def _kind(node: Node, kinds: Sequence[str]) -> Any:
    attr: Record = node.attr
    kind = getattr(attr, "kind", None)
    if kind not in kinds:
        _fail(node, f"the kind {kind!r}", "one of " + ", ".join(kinds))
    return attr


def _reduce(node: Node) -> Result:
    a = _kind(node, infer.REDUCE_KINDS)
    return _of(infer.reduce(node.args[0], a.kind, a.axes, a.single))


def _argreduce(node: Node) -> Result:
    a = _kind(node, ("max", "min"))
    return _of(infer.argreduce(node.args[0], a.kind, a.axis))


def _scan(node: Node) -> Result:
    a = _kind(node, (*infer.SCAN_KINDS, "logsumexp"))
    return _of(infer.scan(node.args[0], a.kind, a.axis, a.reverse))


def _recurrence(node: Node) -> Result:
    a = _kind(node, ("linear",))
    factors, terms = node.args
    return _of(infer.recurrence(factors, terms, a.axis, a.reverse))


def _copy(node: Node) -> Result:
    if not isinstance(node.attr, str) or not node.attr:
        _fail(node, f"the device {node.attr!r}", "the name of a device")
    return _of(node.args[0])


def _same(node: Node) -> Result:
    return _of(node.args[0])


_RULES: Final[dict[Operation, Callable[[Node], Result | None]]] = {
    Op.CONST: _leaf, Op.VARIABLE: _leaf, Op.BUFFER: _buffer, Op.IOTA: _iota,
    Op.CAST: _convert, Op.BITCAST: _convert,
    Op.RESHAPE: lambda n: _of(infer.reshape(n.args[0], n.shape)),
    Op.PERMUTE: lambda n: _of(infer.permute(n.args[0], n.attr)),
    Op.EXPAND: lambda n: _of(infer.expand(n.args[0], n.shape)),
    Op.SLICE: lambda n: _of(infer.slice_(n.args[0], n.attr.starts, n.shape, n.attr.steps)),
    Op.PAD: _pad, Op.WINDOW: _window, Op.UNWINDOW: _unwindow,
    Op.STRIDED: _strided,
    Op.REDUCE: _reduce, Op.ARGREDUCE: _argreduce, Op.SCAN: _scan, Op.SORT: _sort,
    Op.RECURRENCE: _recurrence, Op.LAUNCH: _launch,
    Op.PROJECT: _project, Op.GATHER: _gather, Op.SCATTER: _scatter, Op.CONTIGUOUS: _same,
    Op.PACK: _pack,
    Op.DETACH: _same, Op.COPY: _copy,
}  # fmt: skip
