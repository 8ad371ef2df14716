"""Small changes to kernels, as a person makes them by mistake."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SWAPPED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
BARRIERS = ("gpu.syncthreads", "gpu.syncwarp", "gpu.threadfence")
COPIES = ("gpu.commit_group", "gpu.wait_group")
MATRICES = ("wmma.load_matrix_sync", "wmma.store_matrix_sync")


class Mutant(NamedTuple):
    """One change: what is done, and to which of the nodes that `ast.walk` meets."""

    example: str
    change: str
    node: int
    line: int

    def __str__(self) -> str:
        return f"{self.example}-{self.line}-{self.change}-{self.node}"


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(d).startswith(("weft.kernel", "weft.func")) for d in node.decorator_list
        ):
            yield node


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of the bodies of all kernels and device functions."""
    return [n for f in _functions(tree) for s in f.body for n in ast.walk(s)]


def _changes(node: ast.AST) -> Iterator[str]:
    """Yield what can be done to a node."""
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(BARRIERS):
        yield "delete-barrier"
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith("gpu.atomic.add"):
        yield "plain-add"
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(COPIES):
        yield "delete-copy"
    if isinstance(node, ast.Call):
        yield from _changes_of_call(node)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        yield from (f"drop-check-{k}" for k in range(len(node.values)))
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.FloorDiv) and (
        ast.unparse(node.value) == "2"
    ):
        yield "double-step"
    if isinstance(node, ast.Subscript) and not ast.unparse(node.value).endswith(".shape"):
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        yield from (f"shift-index-{k}" for k, key in enumerate(keys)
                    if not isinstance(key, ast.Slice) or key.lower is not None)
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "gpu.ALL":
        yield from ("drop-lane", "half-mask")
    if isinstance(node, ast.Compare):
        yield from (f"{what}-{k}" for k, op in enumerate(node.ops) if type(op) in SWAPPED
                    for what in ("swap", "exchange"))
    if isinstance(node, ast.If) and not node.orelse:
        yield "remove-guard"
    if isinstance(node, ast.IfExp):
        yield "remove-guard"


def _changes_of_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    if name == "gpu.shared.array":
        shape = node.args[0]
        count = len(shape.elts) if isinstance(shape, ast.Tuple) else 1
        yield from (f"smaller-{k}" for k in range(count))
    if name == "range":
        yield "one-more"
        if len(node.args) == 3:
            yield "other-stride"
    if name.endswith(MATRICES) and len(node.args) == 3:
        yield "other-leading"


def _plus_one(key: ast.expr) -> ast.expr:
    if isinstance(key, ast.Slice):
        assert key.lower is not None
        return ast.Slice(_plus_one(key.lower), key.upper, key.step)
    return ast.BinOp(key, ast.Add(), ast.Constant(1))


def _changed(node: ast.AST, change: str) -> ast.AST | list[ast.stmt]:
    """Return what takes the place of a node."""
    number = int(change.rpartition("-")[2]) if change[-1].isdigit() else 0
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts[number] = _plus_one(node.slice.elts[number])
        else:
            node.slice = _plus_one(node.slice)
        return node
    if isinstance(node, ast.Call):
        return _changed_call(node, change, number)
    if isinstance(node, ast.BoolOp):
        del node.values[number]
        return node.values[0] if len(node.values) == 1 else node
    if isinstance(node, ast.AugAssign):
        node.value = ast.Constant(4)
        return node
    if isinstance(node, ast.Compare) and change.startswith("exchange"):
        operands = [node.left, *node.comparators]
        operands[number:number + 2] = reversed(operands[number:number + 2])
        node.left, *node.comparators = operands
        return node
    if isinstance(node, ast.Compare):
        node.ops[number] = SWAPPED[type(node.ops[number])]()
        return node
    if isinstance(node, ast.If):
        # A guard that leaves is one that is not there; any other lets all threads in.
        return ast.Pass() if isinstance(node.body[-1], ast.Return | ast.Continue) else node.body
    if isinstance(node, ast.IfExp):
        return node.body
    if isinstance(node, ast.Attribute):
        return ast.Constant(0xFFFFFFFB if change == "drop-lane" else 0xFFFF)
    assert isinstance(node, ast.Expr)
    if change.startswith("delete"):
        return ast.Pass()
    array, index, value = (ast.unparse(a) for a in node.value.args)
    return ast.parse(f"{array}[{index}] += {value}").body[0]


def _changed_call(node: ast.Call, change: str, number: int) -> ast.Call:
    """Return an array of another size, a loop of other turns, or a matrix of other rows."""
    place = len(node.args) - 1
    if change.startswith("smaller"):
        shape = node.args[0]
        minus = ast.BinOp(shape.elts[number] if isinstance(shape, ast.Tuple) else shape,
                          ast.Sub(), ast.Constant(1))
        if isinstance(shape, ast.Tuple):
            shape.elts[number] = minus
        else:
            node.args[0] = minus
        return node
    if change == "one-more":
        place = min(place, 1)
    node.args[place] = _plus_one(node.args[place])
    return node


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST, change: str) -> None:
        self.node, self.change = node, change

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        return _changed(node, self.change) if node is self.node else self.generic_visit(node)


def mutants(file: Path) -> list[Mutant]:
    """Return every change to the kernels of a file."""
    nodes = _nodes(ast.parse(file.read_text()))
    return [Mutant(file.stem, change, k, getattr(node, "lineno", 0))
            for k, node in enumerate(nodes) for change in _changes(node)]


def mutated(file: Path, mutant: Mutant) -> str:
    """Return the text of a file with one change."""
    tree = ast.parse(file.read_text())
    node = _nodes(tree)[mutant.node]
    return ast.unparse(ast.fix_missing_locations(_Replace(node, mutant.change).visit(tree)))
