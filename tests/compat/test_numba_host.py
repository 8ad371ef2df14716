"""What numba has for functions of the host, which programs for kernels bring along."""

import numpy as np

import weft.compat as numba
from weft.compat import cuda
from weft.compat.experimental import jitclass
from weft.compat.typed import Dict, List


def test_classes_for_the_host_stay_pythons():
    node = numba.deferred_type()

    @jitclass([("value", numba.float64), ("following", numba.optional(node))])
    class Node:
        def __init__(self, value, following):
            self.value, self.following = value, following

    node.define(getattr(Node, "class_type", Node))
    assert Node(1.0, Node(2.0, None)).following.value == 2.0

    @numba.experimental.jitclass
    class Point:
        x: float

        def __init__(self, x):
            self.x = x

    assert Point(3.0).x == 3.0


def test_lists_and_dicts_of_one_type():
    numbers = List.empty_list(numba.int64)
    numbers.append(3)
    assert numbers == [3] == List([3])
    assert List() == []
    sizes = Dict.empty(key_type=numba.types.unicode_type, value_type=numba.int64)
    sizes["a"] = 1
    assert sizes == {"a": 1}
    assert numba.typed.List is List


def test_their_values_go_to_kernels():
    @cuda.jit
    def fill(out, value):
        out[cuda.grid(1)] = value

    values = List([2.5])
    out = np.zeros(3)
    fill[1, 3](out, values[0])
    assert out.tolist() == [2.5] * 3
