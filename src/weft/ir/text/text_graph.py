"""Text of graphs: one node a line, operands first.

    %0: f32[1024] = buffer 0
    %1: f32[32, 32] = reshape %0
    %2: f32[32] = reduce %1 {kind="sum", axes=[1]}
    return %2

Storages are numbered in the order they are met: a graph says how to compute, not on what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import node as nd
from weft.ir.expr import Bounds, Expr
from weft.ir.node import Dim, Node, Shape, Storage
from weft.ir.op import BY_NAME, Op, Operation
from weft.ir.record import Record
from weft.ir.text.text_expr import ExprPrinter, name, number, quoted
from weft.ir.text.text_lexer import Line, Names

ATTRIBUTES: Final[dict[Operation, type[Record]]] = {
    Op.SLICE: nd.SliceAttr, Op.PAD: nd.PadAttr, Op.WINDOW: nd.WindowAttr,
    Op.UNWINDOW: nd.UnwindowAttr, Op.STRIDED: nd.StridedAttr, Op.REDUCE: nd.ReduceAttr,
    Op.ARGREDUCE: nd.ArgAttr, Op.SCAN: nd.ScanAttr, Op.SORT: nd.SortAttr,
    Op.RECURRENCE: nd.ScanAttr, Op.GATHER: nd.GatherAttr, Op.SCATTER: nd.ScatterAttr,
    Op.LAUNCH: nd.LaunchAttr,
}  # fmt: skip


def print_graph(outputs: Sequence[Node]) -> str:
    """Return the exact text of the graph below `outputs`."""
    nodes = nd.toposort(outputs)
    numbers = {node: n for n, node in enumerate(nodes)}
    storages: dict[Storage, int] = {}
    exprs = ExprPrinter([e for node in nodes for e in _exprs(node.shape)])
    lines = ["graph"]
    for node in nodes:
        shape = _value(node.shape, exprs, lines)
        parts = [f"%{numbers[node]}: {node.dtype.text}{shape} = {node.op.name}"]
        if node.args:
            parts.append(", ".join([f"%{numbers[a]}" for a in node.args]))
        if node.op is Op.BUFFER:
            parts.append(str(storages.setdefault(node.attr, len(storages))))
        elif node.attr is not None and node.op is not Op.DETACH:  # which differ in gradients only
            parts.append(_value(node.attr, exprs, lines))
        lines.append(" ".join(parts))
    lines.append(" ".join(["return", ", ".join([f"%{numbers[o]}" for o in outputs])]).rstrip())
    return "\n".join(lines) + "\n"


def _exprs(shape: Shape) -> list[Expr]:
    return [dim for dim in shape if isinstance(dim, Expr)]


def _value(value: Any, exprs: ExprPrinter, lines: list[str]) -> str:
    if isinstance(value, Expr):
        if value.op is Op.CONST:
            return f"{value.attr}:i64"  # an expression, where a plain size is a number
        return exprs.show(value, lines)
    if isinstance(value, Bounds):
        return f"@{name(value.name)}[{value.min}..{value.max}]"
    if isinstance(value, Record):
        fields = zip(type(value)._fields, value.values(), strict=True)
        return "{" + ", ".join([f"{key}={_value(v, exprs, lines)}" for key, v in fields]) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join([_value(v, exprs, lines) for v in value]) + "]"
    return quoted(value) if isinstance(value, str) else number(value)


def storages_of(outputs: Sequence[Node]) -> list[Storage]:
    """Return the arrays below `outputs` in the order in which the text numbers them."""
    found = [node.attr for node in nd.toposort(outputs) if node.op is Op.BUFFER]
    return list(dict.fromkeys(found))


def parse_graph(text: str, storages: Sequence[Storage] | None = None) -> list[Node]:
    """Return the outputs of the graph that `print_graph` printed.

    Storages stand for the numbered arrays; without them placeholders are made.

    Raises
    ------
    ParseError
        If the text is malformed; its ``where`` names the line.
    """
    return _GraphParser(storages).run(text)


class _GraphParser:
    def __init__(self, storages: Sequence[Storage] | None) -> None:
        self.given = storages
        self.storages: dict[int, Storage] = {}
        self.names = Names()
        self.nodes: dict[str, Node] = {}

    def run(self, text: str) -> list[Node]:
        rows = [(n, row) for n, row in enumerate(text.splitlines(), 1) if row.strip()]
        lines = (Line(row, n, self.names) for n, row in rows)
        line = next(lines, Line("", 1, self.names))
        line.expect("graph")
        line.end()
        outputs: list[Node] | None = None
        for line in lines:
            if outputs is not None:
                line.fail("the end of the text")
            if line.peek().startswith("$"):
                line.temporary()
            elif line.take("return"):
                outputs = self.operands(line)
            else:
                self.node(line)
            line.end()
        if outputs is None:
            line.fail("return", "the end of the text")
        return outputs

    def operands(self, line: Line) -> list[Node]:
        found: list[Node] = []
        while line.peek().startswith("%"):
            node = self.nodes.get(line.peek())
            if node is None:
                line.fail("a node that is defined before")
            found.append(node)
            line.at += 1
            if not line.take(","):
                break
        return found

    def node(self, line: Line) -> None:
        label = line.peek()
        line.var_name()
        line.expect(":")
        dtype, _ = line.type()
        shape = self.dims(line)
        line.expect("=")
        op = BY_NAME.get(line.name())
        if op is None:
            line.at -= 1
            line.fail("an operation")
        args = tuple(self.operands(line))
        attr: Any = None
        if op is Op.BUFFER:
            attr = self.storage(line, dtype, shape)
        elif op is Op.CONST:
            attr = line.literal(dtype)
        elif op is Op.VARIABLE:
            line.expect("@")
            attr = line.bounds()
        elif line.more:
            attr = self.attribute(line, op)
        self.nodes[label] = nd.make(op, dtype, shape, args, attr)

    def storage(self, line: Line, dtype: Any, shape: Shape) -> Storage:
        at = line.integer()
        if self.given is not None:
            if not 0 <= at < len(self.given):
                line.fail(f"one of {len(self.given)} arrays", str(at))
            return self.given[at]
        if len(shape) != 1:
            line.fail("a flat array", f"{len(shape)} axes")
        return self.storages.setdefault(at, Storage(dtype, shape[0]))

    def attribute(self, line: Line, op: Operation) -> Any:
        record = ATTRIBUTES.get(op)
        if record is None:
            return self.value(line)
        line.expect("{")
        fields: dict[str, Any] = {}
        while not line.take("}"):
            if fields:
                line.expect(",")
            key = line.one_of(record._fields, f"a field of {op.name}")
            line.expect("=")
            fields[key] = self.value(line)
        missing = [f for f in record._fields if f not in fields]
        if missing:
            line.fail(f"the field {missing[0]}", "}")
        return record(**fields)

    def dims(self, line: Line) -> tuple[Dim, ...]:
        value = self.value(line)
        if not isinstance(value, tuple):
            line.fail("a shape in brackets")
        return value

    def value(self, line: Line) -> Any:
        text = line.peek()
        if line.take("["):
            items: list[Any] = []
            while not line.take("]"):
                if items:
                    line.expect(",")
                items.append(self.value(line))
            return tuple(items)
        kind = line.kinds[line.at] if line.more else ""
        if kind == "string":
            return line.string()
        if text in ("true", "false"):
            line.at += 1
            return text == "true"
        if text.startswith("nan") or (kind == "number" and line.peek(1) in (",", "]", "}", "")):
            line.at += 1
            return line.scalar(text, dt.float64)
        return line.expr()
