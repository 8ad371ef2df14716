"""Correct kernels with one thing taken away: what breaks a rule is found."""

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.lockstep import test_correct_kernels as correct

import weft

BARRIERS = {"syncthreads": "missing-barrier", "syncwarp": "missing-barrier",
            "threadfence": "race"}  # fmt: skip
NEEDLESS = {
    ("reduction_with_the_last_warp_in_step", "syncwarp", 0),  # no thread reads what another wrote
    ("leavers_behind_a_barrier", "syncthreads", 1),  # each thread reads its own element
    ("lock", "threadfence", 0),  # a fence is asked for only of who tells, not of who is told
    ("locks_that_are_tried_again", "threadfence", 0),
}


def _name(node: ast.AST) -> str:
    """Return the name of the intrinsic that a statement calls."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).removeprefix("gpu.")
    return ""


def _tree(name: str) -> ast.Module:
    kernel = correct.CORRECT[name].kernel
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.__weft_function__)))
    tree.body[0].decorator_list = [ast.parse("weft.kernel", mode="eval").body]
    return tree


def _mutants() -> list[tuple[str, str, int]]:
    """Return (kernel, what is changed, which one)."""
    found = []
    for name in correct.CORRECT:
        counts: dict[str, int] = {}
        for node in ast.walk(_tree(name)):
            what = _name(node)
            if what in BARRIERS or what == "atomic.add" or (
                isinstance(node, ast.Attribute) and node.attr == "ALL"
            ):
                what = what or "mask"
                number = counts[what] = counts.get(what, -1) + 1
                if (name, what, number) not in NEEDLESS:
                    found.append((name, what, number))
    return found


class _Change(ast.NodeTransformer):
    """Removes a barrier, makes an atomic addition a plain one, or drops a lane from a mask."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit(self, node: ast.AST) -> Any:
        if node is not self.target:
            return self.generic_visit(node)
        if isinstance(node, ast.Attribute):
            return ast.copy_location(ast.Constant(0xFFFFFFFB), node)
        call = node.value  # type: ignore[attr-defined]
        if _name(node) in BARRIERS:
            return ast.copy_location(ast.Pass(), node)
        array, index, value = map(ast.unparse, call.args)
        return ast.copy_location(ast.parse(f"{array}[{index}] += {value}").body[0], node)


@pytest.mark.grid
@pytest.mark.parametrize(("name", "what", "number"), _mutants(),
                         ids=lambda v: str(v))  # fmt: skip
def test_mutant(name: str, what: str, number: int, tmp_path: Path) -> None:
    """A barrier, a fence, an atomic operation or a lane of a mask that is missing is found."""
    tree = _tree(name)
    nodes = [n for n in ast.walk(tree) if (_name(n) == what if what != "mask" else
             isinstance(n, ast.Attribute) and n.attr == "ALL")]  # fmt: skip
    text = ast.unparse(ast.fix_missing_locations(_Change(nodes[number]).visit(tree)))
    file = tmp_path / f"{name}_{what}_{number}.py"
    file.write_text(text)
    scope = dict(vars(correct))
    exec(compile(text, str(file), "exec"), scope)
    case = correct.CORRECT[name]
    report = weft.sanitize(scope[name], *case.shape, shared=case.shared)(*case.given())
    kinds = {f.kind for f in report.findings}
    assert kinds
    if what == "mask":
        assert "warp-mask" in kinds
    elif what == "atomic.add":
        assert kinds & {"race", "missing-barrier"}
    else:
        assert BARRIERS[what] in kinds
    assert all(f.file == str(file) for f in report.findings)
