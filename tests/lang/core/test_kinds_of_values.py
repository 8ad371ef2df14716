"""Kinds of values: each is found by its type, and values of several kinds meet in one."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import KernelError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.lang.core import kind
from weft.lang.core.element_types import text_of, time_of
from weft.lang.core.values import Group, Known
from weft.lang.reader import expressions  # noqa: F401 - adds the kinds of arrays
from weft.lang.values import iterators, strings, times


def kinds_below(base):
    for one in base.__subclasses__():
        yield one
        yield from kinds_below(one)


def test_each_kind_is_in_a_table():
    """A kind that is in none would never be asked; rare ones are there as their modules."""
    listed = [v for table in (kind.VALUES, kind.GROUPS, kind.THINGS) for v in table.values()]
    found = {type(v if isinstance(v, kind.Kind) else v.KIND) for v in listed}
    own = {one for one in kinds_below(kind.Kind) if one.__module__.startswith("weft.")}
    assert len(own) > 12
    assert own <= found


def test_values_have_the_kinds_of_their_types():
    count = ex.index(3)
    assert kind.kind_of(Group((count,), (), time_of("M", "s"))) is times.KIND
    assert kind.kind_of(Group((ex.const(65, dt.uint32),), (), text_of("U", 1))) is strings.KIND
    assert kind.kind_of(Known(np.complex64(1j))) is kind.kind_of(Known(1j))
    assert kind.kind_of(Known(2)) is kind.kind_of(Known("x")) is kind.kind_of(Known(None))
    assert kind.kind_of(Known(iterators.Walk(()))) is iterators.KIND
    plain = kind.kind_of(Group((count, count)))
    assert plain is kind.kind_of(Group((count,), ("x",), type("Point", (tuple,), {})))
    assert kind.deciding(Group((count,), (), time_of("M", "s")), Group((count,)))[0] is times.KIND


@cuda.jit
def by_index(out, k):
    values = (1.5, 2j, 3)
    for i in range(k.size):
        out[i] = values[k[i]] * 2


def test_an_index_chooses_among_real_and_complex_numbers():
    out, k = np.zeros(5, complex), np.array([0, 1, 2, -1, -3])
    by_index[1, 1](out, k)
    np.testing.assert_array_equal(out, [2 * (1.5, 2j, 3)[i] for i in k])


@cuda.jit
def or_none(out, x):
    for i in range(x.size):
        z = complex(x[i], 1) if x[i] > 0 else None
        out[i] = 0 if z is None else z * z


def test_a_choice_gives_a_complex_number_or_none():
    out, x = np.zeros(4, complex), np.array([1.0, -1.0, 0.5, 0.0])
    or_none[1, 1](out, x)
    np.testing.assert_array_equal(out, [complex(v, 1) ** 2 if v > 0 else 0 for v in x])


@weft.kernel
def searched(a, b, out):
    c = a
    if out[0] > 0:
        c = b
    out[gpu.threadIdx.x] = 1 if 3 in c else 0


def test_nothing_is_searched_in_one_of_several_arrays():
    """Each array alone refuses it, too."""
    a, b, out = (np.zeros(4, np.int64) for _ in range(3))
    with pytest.raises(KernelError, match="unsupported operands for in"):
        searched[1, 4](a, b, out)
