"""What is written through an index, and how an index or a value out of range is reported."""

import numpy as np
import pytest

import weft
from weft.errors import BoundsError, DTypeError, RangeError, ShapeError

WRITES = {
    "slice": lambda x, v: x.__setitem__(slice(0, 2), v),
    "list": lambda x, v: x.__setitem__([0, 1], v),
    "mask": lambda x, v: x.__setitem__(weft.tensor([True, True, False]), v),
    "copy": lambda x, v: x[:2].copy_(v),
    "put": lambda x, v: x.index_put_([weft.tensor([0, 1])], v),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("value", [[2, 300], (2, -1), np.array([2, 256]), np.array([2.0, 1e9]),
                                   [1, 2**70]])  # fmt: skip
def test_values_that_do_not_fit_are_refused(write, value):
    x = weft.zeros(3, dtype="uint8")
    with pytest.raises(RangeError, match="uint8, 0 to 255"):
        WRITES[write](x, value)
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("value", [[2, 255], (2, 255), np.array([2, 255]), np.array([2.0, 255.5]),
                                   weft.tensor([2, 255], dtype="uint8")])  # fmt: skip
def test_values_that_fit_are_written(write, value):
    x = weft.zeros(3, dtype="uint8")
    WRITES[write](x, value)
    assert x.tolist() == [2, 255, 0]


@pytest.mark.parametrize("write", WRITES)
def test_tensors_of_another_type(write):
    """Assignments and copies convert them, `index_put_` refuses them, as in PyTorch."""
    x = weft.zeros(3, dtype="uint8")
    if write == "put":
        with pytest.raises(DTypeError, match=r"int64 into uint8.*\.to\(weft\.uint8\)"):
            WRITES[write](x, weft.tensor([2, 255]))
        assert x.tolist() == [0, 0, 0]
        return
    WRITES[write](x, weft.tensor([2, 255]))
    assert x.tolist() == [2, 255, 0]


@pytest.mark.parametrize("value", [300, -1, np.int64(300), [300], np.array(300)])
def test_one_value_that_does_not_fit(value):
    x = weft.zeros(3, dtype="uint8")
    for key in (0, slice(None), [0, 1], weft.tensor([True, False, True])):
        with pytest.raises(RangeError, match="uint8"):
            x[key] = value
    assert x.tolist() == [0, 0, 0]


def test_tensors_are_converted_by_value():
    x = weft.zeros(2, dtype="uint8")
    x[:] = weft.tensor([1, 300])
    assert x.tolist() == [1, 44]


def test_lists_take_the_type_of_the_target():
    x = weft.zeros(2, 2, dtype="float64")
    x[0] = [0.1, 2**53 + 1]
    x[1] = [True, np.float32(0.5)]
    assert x.tolist() == [[0.1, 2.0**53], [1.0, 0.5]]
    half = weft.zeros(2, dtype="bfloat16")
    half[:] = [1, 2.5]
    assert half.tolist() == [1.0, 2.5]


def test_values_of_no_type_are_refused():
    x = weft.zeros(2)
    for value in ([1j, 2], ["a", "b"], np.array(["a", "b"]), np.array([1j, 2])):
        with pytest.raises(DTypeError):
            x[:] = value
    for value in ([[1, 2], [3]], [1, 2, 3], []):
        with pytest.raises(ShapeError):
            x[:] = value
    assert x.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("use", "message"), [
    (lambda x: x[weft.tensor([-11])], "index -11, expected -10 to 9"),
    (lambda x: x[weft.tensor([11])], "index 11, expected -10 to 9"),
    (lambda x: x[[3, -12]], "index -12, expected -10 to 9"),
    (lambda x: x.take_along_dim(weft.tensor([-13]), 0), "index -13, expected -10 to 9"),
    (lambda x: x.reshape(2, 5)[weft.tensor([1]), weft.tensor([-6])], "index -6, expected -5 to 4"),
    (lambda x: x.gather(0, weft.tensor([-1])), "index -1, expected 0 to 9"),
    (lambda x: x.scatter_(0, weft.tensor([-1]), 1), "index -1, expected 0 to 9"),
])  # fmt: skip
def test_an_index_out_of_range_is_named_as_it_was_given(compiled, use, message):
    with pytest.raises(BoundsError, match=message):
        use(weft.arange(10)).numpy()


def test_a_written_index_out_of_range_is_named_as_it_was_given(compiled):
    x = weft.arange(10)
    x[weft.tensor([-12])] = 0
    with pytest.raises(BoundsError, match="index -12, expected -10 to 9") as found:
        x.numpy()
    assert "x[weft.tensor([-12])] = 0" in str(found.value)


@pytest.mark.parametrize("kind", ["lookup", "set", "add", "prod"])
def test_a_gradient_blames_the_line_of_the_lookup(compiled, kind):
    w = weft.ones(4, requires_grad=True)
    far = weft.tensor([9])
    if kind == "lookup":
        loss = w[far].sum()  # to blame
    elif kind == "set":
        loss = w.mul(1).scatter(0, far, weft.ones(1, requires_grad=True)).sum()  # to blame
    elif kind == "add":
        loss = w.scatter_add(0, far, weft.ones(1, requires_grad=True)).sum()  # to blame
    else:
        loss = w.scatter_reduce(0, far, w[:1], "prod").sum()  # to blame
    loss.backward()
    with pytest.raises(BoundsError) as found:
        w.grad.numpy() if kind != "add" else loss.numpy()
    assert "# to blame" in str(found.value)


def test_the_gradient_of_max_goes_to_the_index(compiled):
    x = weft.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]], requires_grad=True)
    for keepdim in (False, True):
        x.grad = None
        values, indices = x.max(1, keepdim=keepdim)
        assert values.shape == indices.shape == ((2, 1) if keepdim else (2,))
        values.sum().backward()
        assert x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]
    x.grad = None
    x.min(0).values.sum().backward()
    assert x.grad.tolist() == [[1, 0, 0], [0, 1, 1]]
    x.grad = None
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0, 0.5, 0.5], [0.5, 0.5, 0]]


def test_outer_takes_vectors():
    assert weft.tensor([1, 2]).outer(weft.tensor([3, 4])).tolist() == [[3, 4], [6, 8]]
    for a, b in [((2, 2), (3,)), ((3,), (1, 3)), ((), (3,))]:
        with pytest.raises(ShapeError, match="two vectors"):
            weft.ones(*a).outer(weft.ones(*b))


@pytest.mark.parametrize("seed", ["a", 1.5, None, [1]])
def test_seeds_are_integers(seed):
    with pytest.raises(DTypeError, match="an integer"):
        weft.manual_seed(seed)


@pytest.mark.parametrize("draw", [lambda: weft.rand(weft.Variable("n", 1, 4)),
                                  lambda: weft.randperm(np.array([1j])),
                                  lambda: weft.randperm(2.5)])  # fmt: skip
def test_a_wrong_size_leaves_the_stream_of_random_numbers_as_it_was(draw):
    weft.manual_seed(3)
    expected = weft.rand(2).tolist()
    weft.manual_seed(3)
    with pytest.raises(weft.WeftError):
        draw()
    assert weft.rand(2).tolist() == expected


@pytest.mark.parametrize("make", [
    lambda x: x.clamp(), lambda x: x.clamp(0, 255), lambda x: x.clip(-1, 300),
    lambda x: x.diff(0), lambda x: x.abs(), lambda x: x.floor(), lambda x: x.nan_to_num(),
    lambda x: x.repeat(1), lambda x: x.pad((0, 0)), lambda x: x.roll(0),
    lambda x: x.repeat_interleave(1), lambda x: weft.cat([x]), lambda x: x.flip(()),
    lambda x: weft.nn.functional.relu(x),
])  # fmt: skip
def test_a_result_with_the_same_values_is_no_view(make):
    x = weft.tensor([1, 2, 3], dtype="uint8")
    result = make(x)
    assert result is not x
    result[0] = 9
    assert x.tolist() == [1, 2, 3]
    x[1] = 7
    assert result.tolist() == [9, 2, 3]
