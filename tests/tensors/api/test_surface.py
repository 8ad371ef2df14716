"""The public surface beside PyTorch, over shapes and dtypes: values, dtype, shape, or both raise.

What Weft takes and PyTorch refuses is an extension and no difference. Where both take a call and
answer otherwise on purpose, or Weft alone refuses, `ON_PURPOSE` says why.
"""

import ast
import copy
import os
import pickle

import numpy as np
import pytest
import surface
from surface_calls import REFUSED, calls, expressions

import weft

pytestmark = pytest.mark.requires("torch")

SHARE = 0.1  # of all calls, drawn anew for each run

# text of the call, dtypes ("" for all), shapes (None for all): why Weft answers otherwise
EMPTY = [(0,), (0, 3), (3, 0)]
INTEGERS = "uint8 int8 int16 int32 int64"
ON_PURPOSE = [
    ("any(", "uint8", None, "bool, as NumPy and the array API; PyTorch keeps uint8 for old files"),
    ("all(", "uint8", None, "bool, as NumPy and the array API"),
    ("median(", f"bool {INTEGERS}", EMPTY, "no integer says that there is no value"),
    ("softmax(", f"bool {INTEGERS}", EMPTY, "a dtype is refused whatever the size"),
    ("softmin(", f"bool {INTEGERS}", EMPTY, "a dtype is refused whatever the size"),
    ("cummax(", "", [(0,)], "an axis that is not there is refused whatever the size"),
    ("cummin(", "", [(0,)], "an axis that is not there is refused whatever the size"),
    ("roll(", "", [(0,)], "an axis that is not there is refused whatever the size"),
    ("m.cat([x, x]", "", [(0,)], "an axis that is not there is refused whatever the size"),
    ("m.concat([x, x]", "", [(0,)], "an axis that is not there is refused whatever the size"),
    ("x.topk(0", "", [()], "no values of one axis are an axis without values"),
    ("unfold(", "", [()], "PyTorch's window of a number has no use"),
    ("nonzero(", "", [()], "one column of places an axis, as NumPy"),
    ("x.clamp(-1, 1)", "uint8", None, "limits as numbers are, as NumPy; PyTorch wraps -1 to 255"),
    ("dtype=m.int8", "float16 bfloat16 float32 float64", None, "casts out of range differ"),
    ("m.int8", "uint8", None, "casts out of range differ"),
    ("m.add(x, x, alpha=2)", "bool", None, "2 is an integer, and so is the sum"),
    ("m.nn.functional.pad(x, (3, -3), mode='circular'", "", None, "PyTorch leaves memory unset"),
    ("cross_entropy(", "", EMPTY, "no classes at all"),
    ("+ 9", "int8 uint8", None, "the same values, whatever the width"),
]  # fmt: skip


def on_purpose(call, shape, dtype):
    return any(text in call and (not dtypes or dtype in dtypes.split())
               and (shapes is None or shape in shapes)
               for text, dtypes, shapes, _ in ON_PURPOSE)  # fmt: skip


def compared(share, rng):
    """Return how many calls were compared, and the differences."""
    import torch

    found, count = [], 0
    for call in calls():
        code = compile(call, call, "eval")
        for shape in surface.SHAPES:
            for dtype in surface.DTYPES:
                if rng.random() >= share or on_purpose(call, shape, dtype):
                    continue
                x, y = surface.tensors(shape, dtype)
                count += 1
                mine = surface.outcome(lambda m, x, c=code: eval(c, {"m": m, "x": x}), weft, x)
                theirs = surface.outcome(lambda m, x, c=code: eval(c, {"m": m, "x": x}), torch, y)
                words = surface.difference(mine, theirs)
                if words and not words.startswith("gives"):
                    found.append(f"{call} of {dtype}{list(shape)}: {words}")
    return count, found


def test_like_pytorch():
    seed = int(os.environ["WEFT_TEST_SEED"])
    count, found = compared(SHARE, np.random.default_rng(seed))
    assert count > 1000
    assert not found, f"{len(found)} of {count} (seed {seed}):\n" + "\n".join(found[:40])


@pytest.mark.parametrize("call", expressions(REFUSED))
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
def test_refused(call, shape):
    """An option that there is not is an error that names the operation, not the default."""
    x = weft.tensor(surface.values(shape, "float32"))
    with pytest.raises(weft.WeftError, match="expected"):
        eval(call, {"m": weft, "x": x})


WRONG = ("'a'", "1.5", "None", "[]", "{}", "(1, 'a')", "m", "1j", "-99", "True", "10**30")


def replaced():
    """Return calls with one of their constants replaced by something of another kind."""
    for call in calls():
        found = [c for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Call)
                 and getattr(node.func, "id", "") not in ("float", "range", "tuple")
                 for c in (*node.args, *(k.value for k in node.keywords))]  # fmt: skip
        for part in found:
            if isinstance(part, (ast.Constant, ast.UnaryOp, ast.Tuple, ast.List, ast.Attribute)):
                for wrong in WRONG:
                    yield call[: part.col_offset] + wrong + call[part.end_col_offset :]


def test_arguments_of_other_kinds():
    """Whatever stands where a number, a shape or a dtype should: an error of Weft's, if any."""
    rng = np.random.default_rng(int(os.environ["WEFT_TEST_SEED"]))
    found = []
    for call in replaced():
        if rng.random() >= SHARE:
            continue
        x = weft.tensor(surface.values((2, 3), str(rng.choice(["float32", "int64"]))))
        mine = surface.outcome(lambda m, x, c=call: eval(c, {"m": m, "x": x}), weft, x)
        if isinstance(mine, Exception) and not isinstance(mine, weft.WeftError):
            found.append(f"{call}: {type(mine).__name__}: {mine}")
    assert not found, "\n".join(found)


def test_numbers_before_tensors_are_weak():
    """``f(2, x)`` has the type and the value of ``2 op x``."""
    for name in ("add", "sub", "mul", "maximum", "pow", "floor_divide", "eq", "less"):
        for dtype in surface.DTYPES:
            for shape in ((), (2,)):
                x = weft.ones(*shape, dtype=getattr(weft, dtype))
                for number in (True, 2, 0.1, 300):
                    behind = surface.outcome(lambda m, x, n=name, v=number: getattr(x, {
                        "add": "__radd__", "sub": "__rsub__", "mul": "__rmul__", "pow": "__rpow__",
                        "floor_divide": "__rfloordiv__", "less": "gt"}.get(n, n))(v), weft, x)
                    before = surface.outcome(
                        lambda m, x, n=name, v=number: getattr(m, n)(v, x), weft, x)  # fmt: skip
                    if not isinstance(behind, Exception):
                        assert before[0].dtype == behind[0].dtype, (name, dtype, number)
                        np.testing.assert_array_equal(before[0], behind[0])
    assert weft.add(0.1, weft.tensor(1.0, dtype=weft.float64)).item() == 1.1


def test_masked_fill_keeps_wide_integers():
    x = weft.tensor([2**53 + 1, -(2**63), 5])
    for value in (1, 1.0, 1.5, weft.tensor(1)):
        assert x.masked_fill(x == 5, value).tolist() == [2**53 + 1, -(2**63), 1]
    with pytest.raises(weft.RangeError):
        weft.ones(2, dtype=weft.uint8).masked_fill(weft.tensor([True, False]), 300)


def test_types_tell_their_limits():
    import torch

    for name in surface.DTYPES[1:]:
        mine = weft.finfo if "float" in name else weft.iinfo
        theirs = torch.finfo if "float" in name else torch.iinfo
        a, b = mine(getattr(weft, name)), theirs(getattr(torch, name))
        parts = ("bits", "min", "max") + (("eps", "tiny", "smallest_normal", "resolution")
                                          if "float" in name else ())  # fmt: skip
        assert [getattr(a, p) for p in parts] == [getattr(b, p) for p in parts], name
    with pytest.raises(weft.DTypeError, match="iinfo"):
        weft.finfo(int)
    with pytest.raises(weft.DTypeError, match="finfo"):
        weft.iinfo(weft.ones(1))


@pytest.mark.parametrize("call", [
    "weft.nn.init.kaiming_uniform_(p, mode='bad')", "weft.nn.Conv2d(1, 1, 3, padding='bad')",
    "weft.nn.init.kaiming_normal_(p, nonlinearity='bad')", "weft.nn.init.calculate_gain('bad')",
    "weft.nn.Conv2d(1, 1, 3, padding_mode='bad')", "weft.optim.SGD([p], lr='a')",
    "weft.nn.TransformerEncoderLayer(4, 2, activation='bad')", "weft.arange(float('inf'))",
    "weft.randperm(300, dtype=weft.int8)", "weft.linspace('a', 1, 3)", "weft.arange('a')",
])  # fmt: skip
def test_options_of_layers(call):
    with pytest.raises(weft.WeftError, match="expected"):
        eval(call, {"weft": weft, "p": weft.Parameter(weft.ones(2, 2))})


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_same_padding_in_other_modes(mode):
    import torch

    x = surface.values((2, 1, 6, 7), "float32")
    found = []
    for m in (weft, torch):
        layer = m.nn.Conv2d(1, 1, (3, 4), padding="same", padding_mode=mode, bias=False)
        with m.no_grad():
            layer.weight.copy_(m.arange(12.0).reshape(1, 1, 3, 4))
        found.append(layer(m.tensor(x)).detach().numpy())
    np.testing.assert_allclose(found[0], found[1], 1e-5)


def test_no_text_equals_a_tensor():
    """As in PyTorch: Python compares identities, and `if mask == None` works."""
    x = weft.tensor([1, 2])
    for other in (None, "a", b"a", object(), int, {}, {1}, [1, 2], (1,)):
        assert (x == other) is False
        assert (other == x) is False
        assert (x != other) is True
    assert (x == np.array([1, 3])).tolist() == [True, False]
    with pytest.raises(weft.DTypeError, match="lt"):
        x < None  # noqa: B015


def test_attributes_travel_with_copies():
    x = weft.ones(2, requires_grad=True)
    x.label, x.parts = "first", [1]
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.label == "first"
        assert made.parts == [1]
        assert made.parts is not x.parts
        assert made.requires_grad
    assert not vars(x + 1)
    p = weft.Parameter(weft.ones(2))
    p.frozen = True
    assert copy.deepcopy(p).frozen
    f = weft.jit(lambda t: t * 2)
    assert [vars(f(x)) for _ in range(3)] == [{}] * 3


def test_result_type_is_that_of_the_operation():
    """Of every pair of dtypes, with axes or without, and of Python's numbers."""
    kinds = [getattr(weft, n) for n in surface.DTYPES]
    things = [weft.zeros(*shape, dtype=d) for d in kinds for shape in ((), (2,))]
    for a in things:
        for b in [*things, True, 1, 1.0]:
            assert weft.result_type(a, b) is (a * b).dtype
    assert weft.result_type(weft.uint8, weft.uint8, 1) is weft.uint8
    assert weft.result_type(weft.int8, np.zeros(2, np.float64)) is weft.float64
    with pytest.raises(weft.ShapeError):
        weft.result_type()


def test_dtypes_of_python_are_those_of_numpy():
    for given in (float, int, bool, "float", "int", "bool", "f4", "u2", np.float64, np.int8,
                  np.dtype(">f4"), np.float32(1).dtype):  # fmt: skip
        for make in (lambda d: weft.zeros(2, dtype=d), lambda d: weft.ones(2).to(d),
                     lambda d: weft.tensor([1, 0], dtype=d), lambda d: weft.eye(2, dtype=d),
                     lambda d: weft.full((2,), 1, dtype=d),
                     lambda d: weft.ones(2).astype(d)):  # fmt: skip
            assert make(given).dtype.name == np.dtype(given).name
    for given in ("i8", "u8"):
        with pytest.raises(weft.DTypeError, match="int8 or "):
            weft.zeros(2, dtype=given)
    for given in (complex, np.complex64, "complex128"):
        with pytest.raises(weft.DTypeError, match="no complex numbers yet"):
            weft.zeros(2, dtype=given)


def test_sums_of_bool_at_places(compiled):
    base, index = weft.tensor([True, False, False]), weft.tensor([1, 1])
    source = weft.tensor([True, False])
    assert base.index_add(0, index, source).tolist() == [True, True, False]
    assert base.scatter_add(0, index, source).tolist() == [True, True, False]
    assert base.scatter_reduce(0, index, source, "prod").tolist() == [True, False, False]


def test_gradients_of_numbers_along_their_axis():
    """What treats a number as a row gives it its gradient back."""
    import torch

    for call in ("softmax(0)", "log_softmax(-1)", "max(0)[0]", "median(-1)[0]", "cummin(0)[0]",
                 "topk(1)[0]", "logsumexp(0)", "sum(-1)", "gather(0, i)", "scatter(0, i, 2.0)",
                 "index_add(0, i, v)", "norm(2, 0)", "kthvalue(1)[0]"):  # fmt: skip
        found = []
        for m in (weft, torch):
            x = m.tensor(0.5, requires_grad=True)
            names = {"x": x, "i": m.tensor([0]), "v": m.tensor(2.0)}
            eval(f"x.{call}", names).sum().mul(3.0).backward()
            found.append(float(x.grad))
        assert found[0] == pytest.approx(found[1]), call
