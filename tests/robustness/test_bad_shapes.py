"""Shapes that do not fit and axes that are not there: typed errors that name the user's line."""

import pytest
from blame import fails

import weft
from weft import AxisError, RangeError, ShapeError

a, b = weft.ones(3, 4), weft.ones(3, 5)
ints, more_ints = weft.ones(3, 4, dtype=weft.int32), weft.ones(3, 5, dtype=weft.int32)
F = weft.nn.functional

BINARY = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum",
    "fmax", "fmin", "atan2", "hypot", "copysign", "logaddexp", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor",
]  # fmt: skip
INTEGER = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
OPERATORS = {
    "+": lambda: a + b,
    "-": lambda: a - b,
    "*": lambda: a * b,
    "/": lambda: a / b,
    "//": lambda: a // b,
    "%": lambda: a % b,
    "**": lambda: a**b,
    "==": lambda: a == b,
    "!=": lambda: a != b,
    "<": lambda: a < b,
    "<=": lambda: a <= b,
    ">": lambda: a > b,
    ">=": lambda: a >= b,
    "&": lambda: ints & more_ints,
    "|": lambda: ints | more_ints,
    "^": lambda: ints ^ more_ints,
    "<<": lambda: ints << more_ints,
    ">>": lambda: ints >> more_ints,
    "where": lambda: weft.where(a > 0, a, b),
    "lerp": lambda: a.lerp(b, 0.5),
    "clamp": lambda: a.clamp(b),
    "addcmul": lambda: a.addcmul(a, b),
    "masked_fill": lambda: a.masked_fill(b > 0, 1.0),
    "broadcast_tensors": lambda: weft.broadcast_tensors(a, b),
    "copy_": lambda: weft.zeros(3, 4).copy_(b),
    "setitem": lambda: weft.zeros(3, 4).__setitem__(slice(None), b),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_method(name):
    fails(ShapeError, lambda: getattr(a, name)(b), "(3, 4)", "(3, 5)")


@pytest.mark.parametrize("name", INTEGER)
def test_integer_method(name):
    fails(ShapeError, lambda: getattr(ints, name)(more_ints), "(3, 4)", "(3, 5)")


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    fails(ShapeError, OPERATORS[name], "(3, 4)", "(3, 5)")


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "pow_"])
def test_a_write_that_would_grow_its_target(name):
    fails(ShapeError, lambda: getattr(weft.ones(1, 4), name)(a), "(3, 4)", "(1, 4)")


x1, x2 = weft.ones(2, 3, 8), weft.ones(2, 3, 8, 8)
CONTRACTIONS = {
    "matmul": (lambda: a @ b, "(3, 4)", "(3, 5)"),
    "matmul vector": (lambda: a @ weft.ones(3), "(3, 4)", "(3,)"),
    "matmul batch": (lambda: weft.ones(2, 3, 4) @ weft.ones(3, 4, 5), "(2, 3, 4)", "(3, 4, 5)"),
    "matmul scalar": (lambda: a @ weft.ones(()), "matmul"),
    "mm": (lambda: weft.mm(a, weft.ones(2, 3)), "(3, 4)", "(2, 3)"),
    "mm rank": (lambda: weft.mm(a, weft.ones(2, 4, 3)), "(2, 4, 3)"),
    "bmm": (lambda: weft.bmm(x1, x1), "(2, 3, 8)"),
    "mv": (lambda: weft.mv(a, weft.ones(3)), "(3, 4)", "(3,)"),
    "dot": (lambda: weft.dot(weft.ones(3), weft.ones(4)), "(3,)", "(4,)"),
    "linear": (lambda: F.linear(a, weft.ones(2, 5)), "(3, 4)", "(2, 5)"),
    "einsum": (lambda: weft.einsum("ij,jk->ik", a, b), "einsum"),
    "einsum rank": (lambda: weft.einsum("ijk->i", a), "einsum", "(3, 4)"),
    "einsum count": (lambda: weft.einsum("ij,jk->ik", a), "einsum"),
    "einsum output": (lambda: weft.einsum("ij->z", a), "einsum", "z"),
    "tensordot": (lambda: weft.tensordot(a, b, 1), "(3, 4)", "(3, 5)"),
    "conv1d channels": (lambda: F.conv1d(x1, weft.ones(4, 5, 3)), "conv1d", "(4, 5, 3)"),
    "conv1d rank": (lambda: F.conv1d(x1, weft.ones(4, 3)), "conv1d", "(4, 3)"),
    "conv1d window": (lambda: F.conv1d(x1, weft.ones(4, 3, 9)), "conv1d", "9"),
    "conv2d channels": (lambda: F.conv2d(x2, weft.ones(4, 2, 3, 3)), "conv2d", "(4, 2, 3, 3)"),
    "conv2d input": (lambda: F.conv2d(weft.ones(3), weft.ones(4, 3, 3, 3)), "conv2d", "(3,)"),
    "conv2d groups": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), groups=2), "conv2d", "2"),
    "conv2d groups zero": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), groups=0), "conv2d", "0"),
    "conv2d bias": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), weft.ones(5)), "conv2d", "(5,)"),
    "conv2d stride": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), stride=0), "conv2d", "0"),
    "conv2d padding": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), padding=-1), "conv2d", "-1"),
    "conv2d dilation": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), dilation=0), "conv2d", "0"),
    "conv2d pair": (lambda: F.conv2d(x2, weft.ones(4, 3, 3, 3), stride=(1, 2, 3)), "conv2d"),
    "max_pool2d": (lambda: F.max_pool2d(x2, 9), "max_pool2d", "9"),
    "avg_pool2d": (lambda: F.avg_pool2d(x2, 0), "avg_pool2d", "0"),
    "attention": (
        lambda: F.scaled_dot_product_attention(x1, weft.ones(2, 3, 7), x1), "(2, 3, 7)",
    ),
    "layer_norm": (lambda: F.layer_norm(a, (5,)), "layer_norm", "(5,)"),
    "cross_entropy": (
        lambda: F.cross_entropy(a, weft.zeros(2, dtype=weft.int64)), "(3, 4)", "(2,)",
    ),
    "mse_loss": (lambda: F.mse_loss(a, b), "(3, 4)", "(3, 5)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contraction(name):
    call, *parts = CONTRACTIONS[name]
    fails(ShapeError, call, *parts)


JOINS = {
    "cat": (lambda: weft.cat([a, b]), "cat", "(3, 4)", "(3, 5)"),
    "cat rank": (lambda: weft.cat([a, weft.ones(3)]), "cat", "(3,)"),
    "cat nothing": (lambda: weft.cat([]), "cat"),
    "stack": (lambda: weft.stack([a, b]), "stack", "(3, 4)", "(3, 5)"),
    "stack nothing": (lambda: weft.stack([]), "stack"),
    "reshape": (lambda: a.reshape(5, 2), "reshape", "(3, 4)", "(5, 2)"),
    "reshape rest": (lambda: a.reshape(-1, 5), "reshape", "(-1, 5)"),
    "reshape two": (lambda: a.reshape(-1, -1), "reshape"),
    "reshape of none": (lambda: weft.ones(0, 3).reshape(0, -1), "reshape"),
    "view": (lambda: a.view(13), "(13,)"),
    "expand": (lambda: a.expand(3, 5), "expand", "(3, 5)"),
    "expand rank": (lambda: a.expand(4), "expand", "(4,)"),
    "unflatten": (lambda: a.unflatten(1, (3, 3)), "(3, 3)"),
    "split": (lambda: a.split([1, 1]), "split", "[1, 1]"),
    "split zero": (lambda: a.split(0), "split", "0"),
    "narrow": (lambda: a.narrow(0, 2, 2), "narrow", "2"),
    "repeat": (lambda: a.repeat(2), "repeat"),
    "repeat negative": (lambda: a.repeat(2, -1), "repeat"),
    "pad": (lambda: a.pad((1,)), "pad", "1"),
    "pad too much": (lambda: a.pad((1,) * 6), "pad", "6"),
    "pad reflect": (lambda: a.pad((9, 0), "reflect"), "pad", "9"),
    "pad mode": (lambda: a.pad((1, 0), "mirror"), "pad", "mirror"),
    "roll": (lambda: a.roll((1, 2), 0), "roll"),
    "unfold": (lambda: a.unfold(1, 9, 1), "9"),
    "t": (lambda: weft.ones(1, 2, 3).t(), "(1, 2, 3)"),
    "mT": (lambda: weft.ones(3).mT, "(3,)"),
    "tril": (lambda: weft.ones(3).tril(), "tril", "(3,)"),
    "zeros": (lambda: weft.zeros(2, -1), "-1"),
    "arange": (lambda: weft.arange(0, 5, 0), "arange"),
    "tensor": (lambda: weft.tensor([[1, 2], [3]]), "tensor", "lists"),
    "amax of none": (lambda: weft.ones(0).amax(), "max", "(0,)"),
    "argmax of none": (lambda: weft.ones(0, 3).argmax(0), "argmax", "(0, 3)"),
    "gather": (lambda: a.gather(0, weft.zeros(2, 9, dtype=weft.int64)), "gather", "(2, 9)"),
    "gather rank": (lambda: a.gather(0, weft.zeros(2, dtype=weft.int64)), "gather", "(2,)"),
    "index_select": (
        lambda: a.index_select(0, weft.zeros(1, 1, dtype=weft.int64)), "index_select", "(1, 1)",
    ),
    "mask": (lambda: a[weft.ones(2, 4) > 0], "(2, 4)"),
    "topk": (lambda: a.topk(5), "topk", "5"),
    "load_state_dict": (
        lambda: weft.nn.Linear(2, 3).load_state_dict({"weight": a, "bias": weft.ones(3)}),
        "weight", "(3, 4)",
    ),
    "step of zero": (lambda: a[::0], "0"),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_other_shapes(name):
    call, *parts = JOINS[name]
    fails(ShapeError, call, *parts)


COUNTS = {
    "chunk": (lambda: a.chunk(0), "chunk", "0", "at least 1"),
    "chunk negative": (lambda: a.chunk(-2), "chunk", "-2", "at least 1"),
    "tensor_split": (lambda: a.tensor_split(0), "tensor_split", "0"),
    "linspace": (lambda: weft.linspace(0, 1, -3), "linspace", "-3", "at least 0"),
    "logspace": (lambda: weft.logspace(0, 1, -3), "logspace", "-3", "at least 0"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_there_cannot_be(name):
    call, *parts = COUNTS[name]
    fails(RangeError, call, *parts)


AXES = {
    "sum": lambda x, i: x.sum(i),
    "prod": lambda x, i: x.prod(i),
    "mean": lambda x, i: x.mean(i),
    "var": lambda x, i: x.var(i),
    "std": lambda x, i: x.std(i),
    "max": lambda x, i: x.max(i),
    "amax": lambda x, i: x.amax(i),
    "amin": lambda x, i: x.amin((0, i)),
    "argmax": lambda x, i: x.argmax(i),
    "any": lambda x, i: x.any(i),
    "all": lambda x, i: x.all(i),
    "logsumexp": lambda x, i: x.logsumexp(i),
    "norm": lambda x, i: x.norm(2, i),
    "softmax": lambda x, i: x.softmax(i),
    "log_softmax": lambda x, i: x.log_softmax(i),
    "cumsum": lambda x, i: x.cumsum(i),
    "cummax": lambda x, i: x.cummax(i),
    "sort": lambda x, i: x.sort(i),
    "argsort": lambda x, i: x.argsort(i),
    "topk": lambda x, i: x.topk(1, i),
    "diff": lambda x, i: x.diff(1, i),
    "permute": lambda x, i: x.permute(0, i),
    "transpose": lambda x, i: x.transpose(0, i),
    "movedim": lambda x, i: x.movedim(0, i),
    "squeeze": lambda x, i: x.squeeze(i),
    "flatten": lambda x, i: x.flatten(i),
    "unflatten": lambda x, i: x.unflatten(i, (1, -1)),
    "flip": lambda x, i: x.flip(i),
    "roll": lambda x, i: x.roll(1, i),
    "narrow": lambda x, i: x.narrow(i, 0, 1),
    "select": lambda x, i: x.select(i, 0),
    "split": lambda x, i: x.split(1, i),
    "chunk": lambda x, i: x.chunk(2, i),
    "unbind": lambda x, i: x.unbind(i),
    "unfold": lambda x, i: x.unfold(i, 1, 1),
    "diagonal": lambda x, i: x.diagonal(0, 0, i),
    "repeat_interleave": lambda x, i: x.repeat_interleave(2, i),
    "size": lambda x, i: x.size(i),
    "cat": lambda x, i: weft.cat([x, x], i),
    "gather": lambda x, i: x.gather(i, weft.zeros(1, 1, dtype=weft.int64)),
    "scatter": lambda x, i: x.scatter(i, weft.zeros(1, 1, dtype=weft.int64), weft.ones(1, 1)),
    "index_select": lambda x, i: x.index_select(i, weft.zeros(1, dtype=weft.int64)),
    "index_add": lambda x, i: x.index_add(i, weft.zeros(1, dtype=weft.int64), weft.ones(1, 4)),
    "tensor_split": lambda x, i: x.tensor_split(2, i),
    "normalize": lambda x, i: F.normalize(x, 2.0, i),
}


@pytest.mark.grid
@pytest.mark.parametrize("axis", [2, -3, 10**30])
@pytest.mark.parametrize("name", AXES)
def test_axis(name, axis):
    call = AXES[name]

    def here():
        call(weft.ones(3, 4), axis)

    with pytest.raises(AxisError) as caught:
        here()
    text = str(caught.value)
    assert str(axis) in text
    assert "2 axes" in text
    lines = {here.__code__.co_firstlineno + 1, call.__code__.co_firstlineno}
    assert caught.value.where.line in lines


@pytest.mark.parametrize("axis", [3, -4])
@pytest.mark.parametrize("name", ["unsqueeze", "stack"])
def test_axis_of_a_result(name, axis):
    calls = {"unsqueeze": lambda: a.unsqueeze(axis), "stack": lambda: weft.stack([a, a], axis)}
    fails(AxisError, calls[name], str(axis), "3 axes")


@pytest.mark.parametrize(
    "call",
    [lambda: a.sum((0, 0)), lambda: a.sum((1, -1)), lambda: a.permute(0, 0),
     lambda: a.diagonal(0, 1, 1), lambda: a.movedim((0, 1), (1, 1)), lambda: a.flip(0, -2)],
    ids=["sum", "sum negative", "permute", "diagonal", "movedim", "flip"],
)  # fmt: skip
def test_axis_given_twice(call):
    fails(AxisError, call)


@pytest.mark.grid
@pytest.mark.parametrize("axis", ["x", None.__class__, 1.0, 1.5, b"0", {}, [None]])
@pytest.mark.parametrize("name", ["sum", "softmax", "transpose", "narrow", "cumsum", "cat", "flip"])
def test_axis_of_a_wrong_kind(name, axis):
    with pytest.raises((TypeError, AxisError)):
        AXES[name](a, axis)
