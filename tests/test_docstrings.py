"""What `help()` shows of tensors and functions: complete sections, examples that run as printed."""

import doctest
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.nn
import weft.optim
from weft import errors
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.docs.parameters import PARAMETERS
from weft.tensors.docs.results import RAISES, RETURNS

# Modules whose public names are held to this page.
HELD = {
    f"weft.{name}"
    for name in (
        "capture.dynamic", "capture.tuning", "interop.files", "tensors.api.autograd",
        "tensors.api.combined", "tensors.api.creation", "tensors.api.functions",
        "tensors.api.functions_composed", "tensors.api.functions_types",
        "tensors.api.generator",
        "tensors.api.inplace_functions", "tensors.api.random", "tensors.api.ranges",
        "tensors.api.tensor", "tensors.core.devices", "tensors.core.lazy_tensor",
        "tensors.core.tensor_value", "tensors.ops.arithmetic", "tensors.ops.repetition",
        "tensors.ops.composed", "tensors.ops.contraction", "tensors.ops.convolution",
        "tensors.ops.elementwise", "tensors.ops.gather", "tensors.ops.indexing",
        "tensors.ops.inplace", "tensors.ops.loss", "tensors.ops.movement",
        "tensors.ops.normalisation", "tensors.ops.operators", "tensors.ops.ordering",
        "tensors.ops.reduction", "tensors.ops.searching", "tensors.ops.special",
        "tensors.ops.statistics",
    )
}  # fmt: skip
SYNONYMS = {"axis": "dim", "keepdims": "keepdim"}  # entries of PyTorch's names mention them
NEVER_RAISE = {  # for any value of their parameters
    "Tensor.numpy", "weft.Generator", "weft.inference_mode", "weft.is_tensor",
    "weft.set_grad_enabled", "weft.tune",
}  # fmt: skip
UNDERLINED = re.compile(r"^(\w+)\n-+$", re.MULTILINE)


def members() -> Iterator[tuple[str, object, object]]:
    """Yield each public method and property of tensors: name, what help takes, the function."""
    for kind in reversed(weft.Tensor.__mro__):  # what a subclass defines anew counts
        if kind.__module__ not in HELD:
            continue
        for name, value in vars(kind).items():
            if name.startswith("_") or isinstance(value, types.MemberDescriptorType):
                continue
            function = value.fget if isinstance(value, property) else value
            yield f"Tensor.{name}", value, function


def functions() -> Iterator[tuple[str, object, object]]:
    """Yield each function and class of `weft` itself from those modules."""
    for name in weft.__all__:
        value = getattr(weft, name)
        if getattr(value, "__module__", "") in HELD and callable(value):
            yield f"weft.{name}", value, value


EVERY = {name: (value, function) for name, value, function in (*functions(), *members())}


def of(value: object) -> dict[str, str]:
    """Return the sections of a docstring by title; the introduction by an empty one."""
    parts = UNDERLINED.split(inspect.getdoc(value) or "")
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters_of(function: object) -> list[str]:
    """Return the names that a caller of the method, or of the function, chooses values for."""
    found = inspect.signature(function).parameters  # type: ignore[arg-type]
    if function is weft.Tensor:  # which raises when it is called
        return []
    return [name for name in found if name != "self" and SYNONYMS.get(name) not in found]


def test_every_name_is_found() -> None:
    assert len(EVERY) > 400
    assert {"Tensor.exp", "Tensor.T", "Tensor.add_", "weft.exp", "weft.grad"} <= set(EVERY)


def test_each_begins_with_a_sentence() -> None:
    """One line, which lists of names show; further paragraphs come behind an empty one."""
    for name, (value, _) in EVERY.items():
        lines = (inspect.getdoc(value) or "").splitlines()
        assert lines, name
        assert re.match(r"[A-Z`].*[.:]$", lines[0]), name
        assert len(lines[0]) <= 96, name
        assert lines[1:2] in ([], [""]), name


def test_each_parameter_has_an_entry() -> None:
    wrong = []
    for name, (value, function) in EVERY.items():
        text = of(value).get("Parameters", "")
        entries = re.findall(r"^([\w*][\w*, ]*?)(?: :.*)?$", text, re.MULTILINE)
        listed = [n.strip(" *") for entry in entries for n in entry.split(",")]
        wanted = parameters_of(function)
        if name.startswith("weft.") and "self" in inspect.signature(function).parameters:
            wanted.append("self")  # which a caller of the function passes
        if sorted(listed) != sorted(wanted):
            wrong.append(f"{name}: {listed} for {wanted}")
    assert not wrong, "\n".join(wrong)


def test_each_with_parameters_tells_its_errors() -> None:
    wrong = [name for name, (value, function) in EVERY.items()
             if parameters_of(function) and "Raises" not in of(value)]  # fmt: skip
    assert not set(wrong) - NEVER_RAISE


def test_each_has_an_example() -> None:
    wrong = [name for name, (value, _) in EVERY.items()
             if ">>> " not in of(value).get("Examples", "")]  # fmt: skip
    assert not wrong


def test_sections_stand_in_order_and_name_errors_of_weft() -> None:
    order = ["", "Parameters", "Returns", "Raises", "Notes", "Examples"]
    for name, (value, _) in EVERY.items():
        found = of(value)
        assert list(found) == [t for t in order if t in found], name
        for line in found.get("Raises", "").splitlines():
            if line and not line.startswith(" "):
                for error in line.split(", "):
                    assert issubclass(getattr(errors, error), errors.WeftError), (name, line)


def test_references_to_shared_entries_are_expanded() -> None:
    """A module that refers to entries and does not fill its docstrings would show them so."""
    left = re.compile(r"^ *\{[\w:][\w: ]*\}$", re.MULTILINE)
    for module in [module for name, module in sys.modules.items() if name.startswith("weft.")]:
        for name, value in vars(module).items():
            if isinstance(value, type | types.FunctionType) and value.__module__ == module.__name__:
                members = vars(value).values() if isinstance(value, type) else ()
                for member in (value, *members):
                    assert not left.search(str(member.__doc__)), (module, name, member)
                    # What a decorator wraps is what documentation tools show.
                    inner = getattr(member, "__wrapped__", None)
                    assert not left.search(str(inner.__doc__)), (module, name, inner)


def test_fill_docstrings_expands_sections_and_entries() -> None:
    def function(x: int, dim: int) -> None:
        """Return it.

        Parameters
        ----------
        x : int
            A number.
        {dim}

        {Returns: same}
        {Raises: axis own}
        """

    names = {"__name__": __name__, "function": function, "other": of, "value": 1}
    fill_docstrings(names, {"own": "OwnError\n    If it is."})
    found = of(function)
    assert found["Parameters"].split("\n")[1:] == [
        "x : int", "    A number.", *PARAMETERS["dim"].split("\n"), "", ""]  # fmt: skip
    assert found["Returns"].strip() == RETURNS["same"]
    assert found["Raises"].strip() == RAISES["axis"] + "\nOwnError\n    If it is."
    function.__doc__ = "Return it.\n\n    {Raises: nowhere}\n    "
    with pytest.raises(KeyError, match="nowhere"):
        fill_docstrings(names)


def test_no_entry_of_the_shared_texts_is_unused() -> None:
    text = "\n".join(inspect.getdoc(value) or "" for value, _ in EVERY.values())
    for table in (PARAMETERS, RETURNS, RAISES):
        for key, entry in table.items():
            assert entry in text, key


def test_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier_rows: Callable[[list[str]], list[str]]
) -> None:
    """Every example prints what it says, all of them in one process."""
    monkeypatch.chdir(tmp_path)  # some write files
    parser, shown = doctest.DocTestParser(), []
    runner = doctest.DocTestRunner(verbose=False)
    # a function of a method's name has the method's text
    names = [name for name in EVERY
             if not (name.startswith("weft.") and f"Tensor.{name[5:]}" in EVERY)]  # fmt: skip
    chosen = tier_rows(names)
    for name in chosen:
        value, _ = EVERY[name]
        values = {"weft": weft, "np": np}
        test = parser.get_doctest(inspect.getdoc(value) or "", values, name, None, 0)
        runner.run(test, out=shown.append)
    assert runner.tries >= len(chosen)
    assert not runner.failures, "".join(shown)


# For each entry of errors in the shared texts, calls that raise all that it names.
CALLS = {
    "broadcast": ["x.add(v)"], "inplace": ["x.clone().add_(v)", "n.clone().add_(0.5)"],
    "operand": ["x.add('a')"], "value": ["u.add(300)"], "bools": ["b.sub(b)"],
    "rounding": ["x.div(2, rounding_mode='up')"], "bits": ["x.bitwise_and(1)"],
    "bitkind": ["x.bitwise_not()"], "kind": ["b.neg()"], "condition": ["x.where(1, 2)"],
    "dtype": ["x.astype('single')"], "device": ["x.to('cuda')"],
    "bitcast": ["x.bitcast(weft.int64)"], "decimals": ["x.round(400)"], "number": ["x.elu('a')"],
    "approximate": ["x.gelu('erf')"], "axis": ["x.sum(2)"], "empty": ["weft.zeros(0).amax()"],
    "floating": ["n.mean()"], "norm": ["x.norm('nuc')"], "times": ["x.diff(-1)"],
    "elements": ["x.reshape(3)"], "viewtype": ["x.view(weft.int64)"],
    "viewmemory": ["x.T.view(-1)"],
    "tensor": ["x.view_as((2, 2))"], "sizes": ["x.unflatten(0, (3,))"],
    "expand": ["x.expand(3, 2)"],
    "permute": ["x.permute(0, 0)"], "movedim": ["x.movedim(0, (0, 1))"], "twoaxes": ["v.tril()"],
    "mosttwo": ["weft.zeros(1, 1, 1).t()"], "oneaxis": ["weft.tensor(1).diag_embed()"],
    "vectors": ["weft.zeros(1, 1, 1).diag()"], "whole": ["x.tril(0.5)"],
    "part": ["x.narrow(0, 1, 2)"], "index": ["x.select(0, 2)"], "split": ["x.split(0)"],
    "count": ["x.chunk(0)"], "window": ["x.unfold(0, 3, 1)"], "diagonal": ["x.diagonal(0, 0, 0)"],
    "roll": ["x.roll((1, 2), (0,))"], "repeat": ["x.repeat(2)"], "repeats": ["x.tile(-1)"],
    "pad": ["x.pad((1,))", "x.pad((1, 1), mode='reflect', value=1)"],
    "range:index": ["x.take(weft.tensor([9]))"],
    "indextype": ["x.gather(0, x)"], "indexvector": ["x.index_select(0, n)"],
    "gathershape": ["x.gather(0, weft.tensor([0]))"],
    "alongshape": ["x.take_along_dim(weft.tensor([0]), 0)"],
    "scattershape": ["v.scatter(0, n, x)"],
    "slices": ["x.index_add(0, weft.tensor([0]), weft.zeros(5, 2))"],
    "owntype": ["x.scatter(0, n, n)"], "masktype": ["x.masked_select(x)"],
    "few": ["x.masked_scatter(b, [1.0])"], "reduce": ["x.scatter(0, n, 1.0, reduce='mean')"],
    "putindices": ["x.clone().index_put_([0], 1.0)"], "k": ["x.topk(3)"],
    "classes": ["x.one_hot()", "n.one_hot(1)"], "capture": ["weft.jit(lambda t: t.nonzero())(x)"],
    "lists": ["weft.zeros(1 << 58, 0).tolist()"],
    "leaf": ["weft.ones(2, requires_grad=True).zero_()"], "floatresult": ["n.clone().exp_()"],
    "setgrad": ["n.requires_grad_()", "(p * 2).requires_grad_(False)"],
    "setgradient": ["setattr(p, 'grad', x)"],
    "dim": ["x.softmax(2)"], "negative": ["weft.zeros(-1)"], "like": ["weft.zeros_like(1)"],
    "random": ["weft.rand(2, dtype='int32')"], "steptype": ["weft.linspace(0, 1, 2, dtype='bool')"],
    "large": ["weft.tril_indices(2**13, 2**13)"], "notype": ["weft.tensor(['a'])"],
    "weftdtype": ["weft.astype(x, 'single')"], "dtypes": ["weft.can_cast('single', 'int32')"],
    "makesnone": ["weft.atleast_1d('a')"], "cat": ["weft.hstack([])"], "catsizes": ["weft.cat([])"],
    "stacksizes": ["weft.stack([x, v])"], "none": ["weft.cartesian_prod()"],
    "einsum": ["weft.einsum('i->i', x)"], "indexing": ["weft.meshgrid(v, v, indexing='yx')"],
    "counts": ["x.repeat_interleave(weft.tensor([1, 2, 3]), 0)"], "divisible": ["v.hsplit(2)"],
    "agree": ["v.addmv(x, v)"], "dot": ["x.dot(v)"],
    "srcshape": ["x.diagonal_scatter(v)"], "quantile": ["x.quantile(2.0)"],
    "target": ["x.mse_loss(weft.zeros(5, 2))"], "class": ["x.nll_loss(weft.tensor([0, 9]))"],
    "lastaxes": ["x.layer_norm((3,))"], "pool": ["v.avg_pool2d(2)"],
    "poolsize": ["v.adaptive_avg_pool2d(2)"], "kernel": ["i.conv2d(weft.ones(1, 3, 1, 1))"],
    "weighttype": ["x.linear(n)"],
    "conv2d": ["s.conv1d(weft.ones(1, 3, 1))", "s.conv1d(weft.ones(1, 2, 1, dtype=weft.float64))"],
    "conv_transpose2d": ["s.conv_transpose1d(weft.ones(3, 1, 1))",
                         "s.conv_transpose1d(weft.ones(2, 1, 1, dtype=weft.float64))"],
    "gradient": ["x.retain_grad()"],
}  # fmt: skip


def test_errors_are_those_of_the_text() -> None:
    """Each entry of the shared texts names the errors that a call of its kind raises."""
    assert set(CALLS) == set(RAISES)
    values = {
        "weft": weft, "x": weft.tensor([[1.0, 2.0], [3.0, 4.0]]), "v": weft.ones(3),
        "n": weft.tensor([[0, 1], [1, 0]]), "u": weft.tensor([1, 2], dtype=weft.uint8),
        "b": weft.tensor([[True, False], [True, True]]), "p": weft.ones(2, requires_grad=True),
        "i": weft.ones(1, 2, 4, 4), "s": weft.ones(1, 2, 4),
    }  # fmt: skip
    for key, calls in CALLS.items():
        named = {error for line in RAISES[key].splitlines() if not line.startswith(" ")
                 for error in line.split(", ")}  # fmt: skip
        assert {raised(call, values) for call in calls} == named, key


def raised(call: str, values: dict[str, object]) -> str:
    try:
        found = eval(call, values)
        found.numpy()  # indices are checked where they are used
    except errors.WeftError as error:
        return type(error).__name__
    return "nothing"
