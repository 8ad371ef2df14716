"""What ``--input`` says, and example inputs as arguments."""

from collections import namedtuple

import numpy as np
import pytest

import weft
from weft.errors import DTypeError, UnsupportedError, VariableError
from weft.web.inputs import MOST, Constant, Spec, arguments_of, parse_input, parse_inputs


def test_inputs_are_read():
    assert parse_input("x=f32[1,28,28]") == ("x", Spec(weft.float32, (1, 28, 28)))
    assert parse_input("x = int8[ 3 ]") == ("x", Spec(weft.int8, (3,)))
    assert parse_input("x=bool[]") == ("x", Spec(weft.bool, ()))
    for text, value in [("r=0.5", 0.5), ("r=-3", -3), ("r=0x10", 16), ("r=1e-3", 1e-3),
                        ("r=True", True), ("r=inf", float("inf"))]:
        name, found = parse_input(text)
        assert (name, type(found), found) == ("r", type(value), value)
    name, found = parse_input("r=f32(0.5)")
    assert (type(found), found) == (np.float32, 0.5)


def test_equal_names_are_one_size():
    found = parse_inputs(["x=f32[n:1..512,m]", "y=f32[n,3]", "r=2"])
    n, m = found["x"].shape
    assert (n.attr.name, n.attr.min, n.attr.max) == ("n", 1, 512)
    assert (m.attr.min, m.attr.max) == (1, MOST)
    assert found["y"].shape[0] is n
    assert found["r"] == 2


@pytest.mark.parametrize(("texts", "kind", "said"), [
    (["x"], DTypeError, "x=f32[1,28,28]"), (["x=f33[2]"], DTypeError, "a dtype such as f32"),
    (["x=f32[2,a-b]"], DTypeError, "the size 'a-b'"), (["x=f32[-2]"], DTypeError, "the size '-2'"),
    (["x=what"], DTypeError, "NAME=NUMBER"), (["x=f32(a)"], DTypeError, "NAME=NUMBER"),
    (["x=f32[n:4..2]"], VariableError, "n from 4 to 2"),
    (["x=f32[n:1..9]", "y=f32[n:1..8]"], VariableError, "1 to 9, as before"),
])  # fmt: skip
def test_other_texts_are_refused(texts, kind, said):
    with pytest.raises(kind) as error:
        parse_inputs(texts)
    assert said in str(error.value)


def test_arguments_are_named():
    Pair = namedtuple("Pair", "first second")

    def function(x, parts, *, scale=1):
        pass

    given = arguments_of(function, (Spec(weft.float32, (2, 3)), {
        "a": weft.zeros(4), "b": [np.zeros((3, 2)).T, 5], "c": Pair(np.zeros(1), np.zeros(2))}))
    assert given.names == ("x", "parts")
    assert given.arrays == ["x", "parts_a", "parts_b_0", "parts_c_first", "parts_c_second"]
    assert given.shapes == [(2, 3), (4,), (2, 3), (1,), (2,)]
    assert given.args[1]["b"][1] == 5
    assert given.args[1]["b"][0].flags.c_contiguous
    with pytest.raises(UnsupportedError, match="by name alone"):
        arguments_of(function, {"x": np.zeros(1), "parts": (), "scale": 2})


def test_numbers_of_kernels_are_constants():
    def kernel(a, x):
        pass

    number = np.float32(2)
    given = arguments_of(kernel, (number, np.zeros(3)), is_kernel=True)
    assert given.arrays == ["x"]
    assert isinstance(given.args[0], Constant)
    assert given.args[0].value is number
    assert arguments_of(kernel, (number, np.zeros(3))).arrays == ["a", "x"]
