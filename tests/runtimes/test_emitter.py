"""The emitter of LLVM IR text: what it writes computes what the Python that wrote it says."""

import ctypes

import pytest

from weft.compilers import llvm
from weft.runtimes.native.common.emitter import Module

I64 = ctypes.c_int64


def loaded(module, name, *kinds):
    text = llvm.compiler().compile(module.text)
    links = {"labs": ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value}
    links = {key: value for key, value in links.items() if key in module.functions}
    library = llvm.session().load(text, (name,), links)
    function = ctypes.CFUNCTYPE(*kinds)(library[name])
    function.library = library
    return function


def test_loops_branches_and_variables():
    """The sum of |x| over a table, of which items above a bound are left out; -1 for a zero."""
    m = Module()
    c = m.define("i64 @total(ptr %table, i64 %n, i64 %bound)")
    table, n, bound = c.params
    total = c.variable(0)
    with c.loop(n) as i:
        item = c.word(table, i)
        c.need(item.ne(0), "zero")
        size = c.alloca("i64")
        with c.when(item < 0) as otherwise:
            c.store(size, 0, c.constant(0, "i64") - item)
            otherwise()
            c.store(size, 0, item)
        with c.unless(c.load(size, 0, "i64") > bound):
            c.store(total, 0, c.load(total, 0, "i64") + c.load(size, 0, "i64"))
    c.ret(c.load(total, 0, "i64"))
    c.begin("zero")
    c.ret(-1, "i64")
    function = loaded(m, "total", I64, ctypes.POINTER(I64), I64, I64)
    for items in ([], [3], [3, -4, 5], [1, 0, 2], list(range(-50, 0))):
        want = -1 if 0 in items else sum(abs(x) for x in items if abs(x) <= 40)
        assert function((I64 * len(items))(*items), len(items), 40) == want


def test_loops_inside_of_loops():
    m = Module()
    c = m.define("i64 @pairs(i64 %n)")
    count = c.variable(0)
    with c.loop(c.params[0]) as i, c.loop(c.params[0], i + 1):
        c.store(count, 0, c.load(count, 0, "i64") + 1)
    c.ret(c.load(count, 0, "i64"))
    function = loaded(m, "pairs", I64, I64)
    assert [function(n) for n in range(6)] == [0, 0, 1, 3, 6, 10]


def test_calls_of_the_module_and_from_outside():
    """Who calls a function needs no declaration: it follows from the call."""
    m = Module({"second": 8})
    half = m.define("internal double @half(double %x) alwaysinline")
    half.ret(half.params[0] / half.constant("2.0", "double"))
    c = m.define("double @mean(ptr %pair)")
    first, second = c.load(c.params[0], 0, "i64"), c.load(c.params[0], "second", "i64")
    total = (c.call("labs", first).cast("ptrtoint", "i64") + second).cast("sitofp", "double")
    c.ret(c.call("half", total))
    assert m.functions == {"labs": "declare ptr @labs(i64)"}
    function = loaded(m, "mean", ctypes.c_double, ctypes.POINTER(I64))
    assert function((I64 * 2)(-3, 4)) == 3.5


def test_objects_from_outside_and_of_the_module():
    m = Module()
    m.hold("kept", "internal global i64 7")
    c = m.define("i64 @swap(i64 %x)")
    old = c.load(c.symbol("kept"), 0, "i64", order="monotonic")
    c.store(c.symbol("kept"), 0, c.params[0], order="release")
    c.ret(old)
    assert "external" not in m.text
    function = loaded(m, "swap", I64, I64)
    assert [function(n) for n in (1, 2, 3)] == [7, 1, 2]


def test_slots_are_null_whichever_way_the_function_is_left():
    m = Module()
    c = m.define("i64 @filled(ptr %table, i64 %n)")
    table, n = c.params
    slots = []
    for k in range(2):
        c.need(n > k, "short")
        slots.append(c.slot())
        c.store(slots[-1], 0, c.word(table, k, "ptr"))
    c.begin("short")
    first, second = (c.load(slot).ne(None).cast("zext", "i64") for slot in slots)
    c.ret(first + (second << 1))
    function = loaded(m, "filled", I64, ctypes.POINTER(I64), I64)
    assert [function((I64 * 2)(5, 5), n) for n in range(3)] == [0, 1, 3]


@pytest.mark.parametrize(("test", "python"), [
    ("eq", lambda a, b: a == b), ("ne", lambda a, b: a != b), ("lt", lambda a, b: a < b),
    ("le", lambda a, b: a <= b), ("gt", lambda a, b: a > b), ("ge", lambda a, b: a >= b)])
@pytest.mark.parametrize("kind", ["i64", "double"])
def test_comparisons(test, python, kind):
    """Signed, and of floats false for NaN, but for `ne`."""
    m = Module()
    c = m.define(f"i64 @compare({kind} %a, {kind} %b)")
    a, b = c.params
    found = {"eq": a.eq, "ne": a.ne}.get(test) or getattr(a, f"__{test}__")
    c.ret(found(b).cast("zext", "i64"))
    argument = ctypes.c_double if kind == "double" else I64
    function = loaded(m, "compare", I64, argument, argument)
    values = [-3, 0, 1, 2] + ([float("nan"), float("inf")] if kind == "double" else [])
    for x in values:
        for y in values:
            assert function(x, y) == python(x, y), (x, y)
