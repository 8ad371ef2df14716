"""What `weft.build` says of wrong programs and wrong calls, with the other language's lines."""

import numpy as np
import pytest

import weft
from weft import build
from weft.errors import (
    BoundsError,
    CompileError,
    DTypeError,
    KernelError,
    LaunchError,
    RangeError,
    ShapeError,
    UnsupportedError,
)

SOURCE = "first line\n  y = x +* 3\nthird line\n"
AT = ("prog.img", 2, 7, 9)


@pytest.fixture(autouse=True)
def _source():
    build.source_text("prog.img", SOURCE)


def begin(kind=build.function):
    f = kind("f", at=("prog.img", 1))
    x = f.array("x", weft.float32, 2)
    y = f.array("y", weft.int32, (4,), writable=True)
    return f, x, y


def _closed_body(f, x, y):
    with f.loop(3, at=("prog.img", 1)):
        v = f.let("v", f.call("sqrt", x[0, 0]))
    f.cast(v, weft.int32, at=AT)


def _closed_variable(f, x, y):
    with f.loop(3):
        v = f.variable("v", weft.int32, 1)
    v.set(3, at=AT)


def _index_of(open_loop):
    def make(f, x, y):
        with open_loop(f) as opened:
            if hasattr(opened, "indices"):
                opened.update(1.0)
                opened = opened.indices
        f.op("+", opened[0] if isinstance(opened, tuple) else opened, 1, at=AT)
    return make


def _foreign(f, x, y):
    _, a, _ = begin()
    f.op("+", a[0, 0], 1, at=AT)


def _after_the_end(f, x, y):
    with f:
        y[0] = 1
    f.store(y, 1, 2, at=AT)


def _recursive(f, x, y):
    @build.device("down", {"n": weft.int64}, weft.int64)
    def down(n):
        return f.call(down, n, at=AT)

    f.call(down, 3)


def _no_result(f, x, y):
    @build.device("some", {"n": weft.int64}, weft.int64)
    def some(n):
        with f.if_(n > 3):
            f.return_(n)

    f.call(some, 3, at=AT)


def _twice(f, x, y):
    with f.reduce("sum", weft.float32, 3) as r:
        r.update(1.0)
        r.update(2.0, at=AT)


def _under_a_condition(f, x, y):
    with f.reduce("sum", weft.float32, 3) as r, f.if_(r.indices[0] > 1):
        r.update(1.0, at=AT)


def _break_in(kind):
    def make(f, x, y):
        with f.loop(4, kind=kind):
            f.break_(at=AT)
    return make


def _return_in_parallel(f, x, y):
    with f.parallel(3):
        f.return_(at=AT)


def _parallel_in_loop(f, x, y):
    with f.loop(3), f.parallel(3, at=AT):
        pass


def _second_else(f, x, y):
    with f.if_(x[0, 0] > 0):
        pass
    with f.else_():
        pass
    with f.else_(at=AT):
        pass


def _continue_in_a_reduction(f, x, y):
    with f.reduce("sum", weft.float32, 3), f.if_(x[0, 0] > 0):
        f.continue_(at=AT)


def _jump_in_a_condition(f, x, y):
    def condition():
        with f.if_(x[0, 0] > 0):
            f.return_()
        return x[0, 0] < 3

    f.while_(condition, at=AT).__enter__()


def _shared_variable(loop):
    def make(f, x, y):
        v = f.variable("v", weft.int32, 0)
        with loop(f):
            v.set(1, at=AT)
    return make


def _shared_array(f, x, y):
    table = f.local("table", weft.int32, 4)
    with f.parallel(4) as (i,):
        f.store(table, i, 1, at=AT)


def _else(f, x, y):
    with f.if_(x[0, 0] > 0):
        pass
    y[0] = 1
    with f.else_(at=AT):
        pass


WRONG = {
    "unsupported operands for &": lambda f, x, y: f.op("&", x[0, 0], y[0], at=AT),
    "no operator '+*'": lambda f, x, y: f.op("+*", x[0, 0], 1, at=AT),
    "no operator 'not' of 2": lambda f, x, y: f.op("not", 1, 2, at=AT),
    "no such operator for float32": lambda f, x, y: f.op("~", x[0, 0], at=AT),
    "1 indices into x": lambda f, x, y: f.load(x, 0, at=AT),
    "3 indices into x": lambda f, x, y: f.store(x, (0, 0, 0), 1, at=AT),
    "an index of float32": lambda f, x, y: f.load(y, x[0, 0], at=AT),
    "index 4 is out of bounds": lambda f, x, y: f.load(y, 4, at=AT),
    "index -1 is out of bounds": lambda f, x, y: f.load(y, -1, at=AT),
    "x is read-only": lambda f, x, y: f.store(x, (0, 0), 1, at=AT),
    "'float99' is not a dtype": lambda f, x, y: f.cast(1, "float99", at=AT),
    "the name 'x' is used already": lambda f, x, y: f.scalar("x", weft.int32, at=AT),
    "a shape of ()": lambda f, x, y: f.array("z", weft.int32, (), at=AT),
    "a size of -3": lambda f, x, y: f.array("z", weft.int32, (-3,), at=AT),
    "known only inside": lambda f, x, y: f.array("z", weft.int32, (y[0],), at=AT),
    "a parameter of float8": lambda f, x, y: f.scalar("z", weft.float8_e5m2, at=AT),
    "300 does not fit uint8": lambda f, x, y: f.constant(300, weft.uint8, at=AT),
    "1.5 does not fit int32": lambda f, x, y: f.constant(1.5, weft.int32, at=AT),
    "is not a number": lambda f, x, y: f.constant("3", weft.int32, at=AT),
    "a value of float32 where int32": lambda f, x, y: f.variable("v", weft.int32, x[0, 0], at=AT),
    "no function 'nothing'": lambda f, x, y: f.call("nothing", 1, at=AT),
    "syncthreads in a function": lambda f, x, y: f.call("syncthreads", at=AT),
    "math.sqrt of 3 arguments": lambda f, x, y: f.call("sqrt", 1, 2, 3, at=AT),
    "no atomic operation 'frob'": lambda f, x, y: f.atomic("frob", y, 0, 1, at=AT),
    "x is read-only ": lambda f, x, y: f.atomic("add", x, (0, 0), 1, at=AT),
    "break outside of a loop": lambda f, x, y: f.break_(at=AT),
    "continue outside of a loop": lambda f, x, y: f.continue_(at=AT),
    "f returns a value": lambda f, x, y: f.return_(3, at=AT),
    "break in a loop that is vector": _break_in("vector"),
    "break in a loop that is unrolled": _break_in("unrolled"),
    "a loop of kind 'sideways'": lambda f, x, y: f.loop(3, kind="sideways", at=AT).__enter__(),
    "a number of turns that is not known": lambda f, x, y: f.loop(
        y[0], kind="unrolled", at=AT).__enter__(),
    "a vector of 3 lanes": lambda f, x, y: f.loop(3, kind="vector", at=AT).__enter__(),
    "2000 unrolled turns": lambda f, x, y: f.loop(2000, kind="unrolled", at=AT).__enter__(),
    "a range with step 0": lambda f, x, y: f.loop(0, 3, 0, at=AT).__enter__(),
    "a condition that is computed once": lambda f, x, y: f.while_(x[0, 0] > 0, at=AT).__enter__(),
    "return in a loop that cannot": _return_in_parallel,
    "a parallel loop in a loop that is serial": _parallel_in_loop,
    "a parallel loop over no axes": lambda f, x, y: f.parallel(at=AT).__enter__(),
    "else without an if": _else,
    "else without an if ": _second_else,
    "continue in a reduction": _continue_in_a_reduction,
    "a jump in the condition": _jump_in_a_condition,
    "v belongs to all turns of a parallel loop": _shared_variable(lambda f: f.parallel(3)),
    "v belongs to all turns of a loop that is vector": _shared_variable(
        lambda f: f.loop(4, kind="vector")),
    "table belongs to all turns": _shared_array,
    "sqrt takes arguments by position": lambda f, x, y: f.call("sqrt", 3.0, q=1, at=AT),
    "bytes of local memory": lambda f, x, y: f.local("t", weft.int32, 10**9, at=AT),
    "no reduction 'mean'": lambda f, x, y: f.reduce("mean", weft.float32, 3, at=AT).__enter__(),
    "all of float32": lambda f, x, y: f.reduce("all", weft.float32, 3, at=AT).__enter__(),
    "a reduction over no axes": lambda f, x, y: f.reduce("sum", weft.float32, at=AT).__enter__(),
    "a second update": _twice,
    "update under a condition": _under_a_condition,
    "made in a body which is closed": _closed_body,
    "in a body which is closed": _index_of(lambda f: f.loop(3)),
    "in a body which is closed ": _index_of(lambda f: f.parallel(3)),
    " in a body which is closed": _index_of(lambda f: f.parallel(3, 4)),
    " in a body which is closed ": _index_of(lambda f: f.reduce("sum", weft.float32, 3)),
    "an integer of 16610 bits": lambda f, x, y: f.op("+", x[0, 0], 10**5000, at=AT),
    "t has a size that is known only": lambda f, x, y: f.local("t", weft.int32, y[0], at=AT),
    "v was declared in a body": _closed_variable,
    "it is used in f": _foreign,
    "f has ended": _after_the_end,
    "down calls itself": _recursive,
    "some may end without a result": _no_result,
    "expected a value of the program": lambda f, x, y: f.op("+", object(), 1, at=AT),
    "an array of shape (0,)": lambda f, x, y: f.local("t", weft.int32, 0, at=AT),
    "a size must be an integer that is known": lambda f, x, y: f.local(
        "t", weft.int32, (y[0],), at=AT),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_misuse_names_the_line_of_the_other_language(message):
    f, x, y = begin()
    with pytest.raises(KernelError) as caught:
        WRONG[message](f, x, y)
    (problem,) = caught.value.problems
    assert message.strip() in f"{problem.message} ({problem.hint})"
    assert (problem.file, problem.line, problem.column) == ("prog.img", 2, 6)
    assert "y = x +* 3\n" in str(caught.value)
    assert "    " + " " * 4 + "^^" in str(caught.value)
    assert caught.value.where[:2] == ("prog.img", 2)


def test_a_builder_goes_on_after_an_error():
    errors = build.Errors("prog.img")
    with build.function("f") as f:
        y = f.array("y", weft.int32, (4,), writable=True)
        with errors, f.loop(4) as i:
            with errors, f.if_(i > 1):
                y[i, 0] = 1
            y[i] = 7
            with errors:
                f.load(y, 9, at=("prog.img", 3, 1))
        with errors:
            f.break_(at=("prog.img", 1, 1))
    assert [p.line for p in errors.found if p.file == "prog.img"] == [3, 1]
    errors.note("and more", AT, "so there")
    with pytest.raises(KernelError, match="4 errors") as caught:
        errors.check()
    assert len(caught.value.problems) == 4
    out = np.zeros(4, np.int32)
    f.program(out)
    assert out.tolist() == [7] * 4


def test_errors_of_other_kinds_pass_through():
    errors = build.Errors("x")
    with pytest.raises(ZeroDivisionError), errors:
        1 / 0  # noqa: B018
    errors.check()


@pytest.mark.parametrize("at", [("f",), ("f", 0), ("f", 1, 0), (3, 4), "f:3", ("f", 1, 2, 3, 4),
                                ("f", True), ("f", 1.0)])
def test_places_that_are_none(at):
    with pytest.raises(KernelError, match="a place"):
        build.function("f", at=at)


def test_names_and_conditions_of_python():
    with pytest.raises(KernelError, match="the name"):
        build.function("no name")
    f, x, _ = begin()
    with pytest.raises(KernelError, match="condition of Python"):
        bool(x[0, 0] > 1)
    with pytest.raises(KernelError, match="walk of Python"):
        list(x)
    with pytest.raises(KernelError, match="not finished"):
        _ = f.program


def test_a_size_that_no_array_has():
    with pytest.raises(KernelError, match="no array has the size n"), build.function("f") as f:
        f.size("n", at=AT)


def test_a_body_that_is_open():
    f, _, _ = begin()
    opened = f.loop(3)
    opened.__enter__()
    with pytest.raises(KernelError, match="still open"):
        f.build()


def test_without_a_place_the_line_of_python_counts():
    f, x, _ = begin()
    with pytest.raises(KernelError) as caught:
        f.load(x, 0)
    assert caught.value.problems[0].file == __file__


def test_the_place_around_counts_where_there_is_no_other():
    f, x, _ = begin()
    with pytest.raises(KernelError) as caught, f.at("prog.img", 3, 2):
        x[0]
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (3, 1)


# ---- calls ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def added():
    with build.function("added") as f:
        n = f.size("n")
        x = f.array("x", weft.float32, (n, 3))
        y = f.array("y", weft.float32, (n * 2,), writable=True)
        a = f.scalar("a", weft.int8)
        b = f.scalar("b", weft.bool)
        c = f.scalar("c", weft.float32)
        with f.parallel(n, at=("prog.img", 2, 3)) as (i,):
            f.check(x[i, 0] < 100, "too large", at=("prog.img", 3, 1))
            f.store(y, f.cast(a, weft.int64) + i, f.select(b, c, x[i, 1]), at=AT)
    return f.program


X, Y = np.zeros((5, 3), np.float32), np.zeros(10, np.float32)
CALLS = [
    ((X, Y, 1, True), LaunchError, "no c"),
    ((X, Y, 1, True, 1, 2), LaunchError, "6 arguments"),
    ((X, Y, 200, True, 1), RangeError, "a = 200"),
    ((X, Y, 1.0, True, 1), DTypeError, "float for parameter a"),
    ((X, Y, 1, 1, 1), DTypeError, "int for parameter b"),
    ((X, Y, 1, True, "2"), DTypeError, "str for parameter c"),
    ((X, Y, 1, True, 10**400), RangeError, "c, an int"),
    ((X.astype(float), Y, 1, True, 1), DTypeError, "float64 for parameter x"),
    ((X[0], Y, 1, True, 1), ShapeError, "parameter x"),
    ((X[:, :2].copy(), Y, 1, True, 1), ShapeError, "parameter x"),
    ((X, Y[:9], 1, True, 1), ShapeError, "9 along axis 0 of y"),
    ((X.T.copy().T, Y, 1, True, 1), ShapeError, "strides"),
    ((3, Y, 1, True, 1), LaunchError, "int for x"),
    ((X, Y[::1].reshape(-1)[:], 6, True, 1), BoundsError, "index 10"),
    ((X + 100, Y, 1, True, 1), LaunchError, "too large"),
]


@pytest.mark.parametrize(("args", "kind", "message"), CALLS)
@pytest.mark.parametrize("interpreted", [False, True])
def test_wrong_calls(added, args, kind, message, interpreted):
    run = added.interpret if interpreted else added
    with pytest.raises(kind, match=message) as caught:
        run(*args)
    if kind is BoundsError:
        assert caught.value.where[:2] == ("prog.img", 2)
    if "large" in message:
        assert caught.value.where[:2] == ("prog.img", 3)


def test_arguments_by_name_and_from_elsewhere(added):
    y = np.zeros(10, np.float32)
    added(X, a=np.int64(2), c=np.float64(1.5), b=np.True_, y=y)
    assert y[2:7].tolist() == [1.5] * 5
    with pytest.raises(LaunchError, match="'d'"):
        added(X, Y, 1, True, 1, d=3)


def test_what_is_written_must_not_overlap(added):
    memory = np.zeros(60, np.float32)
    x, y = memory[:15].reshape(5, 3), memory[14:24]
    with pytest.raises(LaunchError, match="same memory"):
        added(x, y, 1, True, 1)
    added(x, memory[15:25], 1, True, 1)
    y = np.zeros(10, np.float32)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        added(X, y, 1, True, 1)


def test_the_sanitiser_names_the_lines(added):
    report = added.sanitize(X + 100, Y, 6, True, 1)
    assert {(f.kind, f.file, f.line) for f in report.findings} == {
        ("assertion", "prog.img", 3)}
    report = added.sanitize(X, np.zeros(10, np.float32), 8, True, 1)
    assert {(f.kind, f.file, f.line) for f in report.findings} == {("out-of-bounds", "prog.img", 2)}
    assert len(report.findings[0].threads) == 3


def test_the_sanitiser_finds_races_between_turns_and_threads():
    with build.function("race") as f:
        x = f.array("x", weft.int32, (8,), writable=True)
        with f.parallel(8) as (i,):
            f.store(x, f.call("min", i, 5), f.cast(i, weft.int32), at=("prog.img", 2, 3))
    (finding,) = f.program.sanitize(np.zeros(8, np.int32)).findings
    assert (finding.kind, finding.line) == ("race", 2)
    with build.kernel("shift") as k:
        x = k.array("x", weft.int32, 1, writable=True)
        tile = k.shared("tile", weft.int32, 64)
        t = k.thread("x")
        k.store(tile, t, x[t], at=("prog.img", 1, 1))
        v = k.load(tile, (t + 1) % 64, at=("prog.img", 2, 5))
        k.store(x, t, v, at=("prog.img", 3, 1))
    report = weft.sanitize(k.program, 1, 64)(np.zeros(64, np.int32))
    assert {(f.kind, f.file, f.line) for f in report.findings} == {
        ("missing-barrier", "prog.img", 2)}


def test_launches_of_kernels(added):
    with build.kernel("k") as k:
        x = k.array("x", weft.float32, 1, writable=True)
        k.store(x, k.grid(1), 1, at=("prog.img", 2, 3))
    with pytest.raises(LaunchError, match="without a grid"):
        k.program(np.zeros(3, np.float32))
    with pytest.raises(LaunchError, match="block"):
        k.program[1, 2048]
    with pytest.raises(LaunchError, match="1 value"):
        k.program[3]
    with pytest.raises(BoundsError) as caught:
        k.program[1, 4](np.zeros(3, np.float32))
    assert caught.value.where[:2] == ("prog.img", 2)
    (finding,) = weft.sanitize(k.program, 1, 4)(np.zeros(3, np.float32)).findings
    assert (finding.kind, finding.file, finding.line) == ("out-of-bounds", "prog.img", 2)
    k.program.launch(np.zeros(4, np.float32), grid=2, block=2)


def test_languages():
    with pytest.raises(UnsupportedError, match="the suffix"):
        build.register("img", print)
    with pytest.raises(UnsupportedError, match="a function of the path"):
        build.register(".img2", 3)
    with pytest.raises(UnsupportedError, match=r"the suffix '\.nothing'"):
        build.language_of("a.nothing")
    build.register(".words", len)
    assert build.language_of("b/a.words") is len


def test_a_language_of_an_installed_package(monkeypatch):
    import importlib.metadata

    entry = importlib.metadata.EntryPoint(".installed", "os.path:basename", "weft.languages")
    monkeypatch.setattr(importlib.metadata, "entry_points",
                        lambda group: (entry,) if group == "weft.languages" else ())
    assert build.language_of("x/y.installed")("x/y.installed") == "y.installed"
    with pytest.raises(UnsupportedError, match="installed"):
        build.language_of("a.other")


def test_device_functions_that_are_none():
    with pytest.raises(KernelError, match=r"a name and a dict of types"):
        build.device("twice", ["x"])
    with pytest.raises(KernelError, match=r"found None, expected a Python function"):
        build.device("twice", {"x": weft.int64})(None)


def test_files_that_cannot_be_written(tmp_path):
    f, _, y = begin()
    with f:
        y[0] = 1
    with build.kernel("k") as k:
        k.array("y", weft.int32, 1, writable=True)[0] = 1
    with pytest.raises(UnsupportedError, match=r"with its launch: k\[grid, block\]"):
        build.save([k.program], tmp_path / "k.so")
    with pytest.raises(UnsupportedError, match="what a builder has as its program"):
        build.save([f], tmp_path / "f.so")
    (tmp_path / "taken.h").mkdir()
    (tmp_path / "taken.so").mkdir()
    for name in ("taken.h", "taken.so", "none/f.so", "none/f.h", "none/f.o"):
        with pytest.raises(CompileError, match="in a folder that exists and can be written"):
            build.save([f.program], tmp_path / name)


def test_headers_name_parameters_by_no_word_of_c(tmp_path):
    with build.function("e") as f:
        n = f.size("int")
        out = [f.array(name, weft.float32, (n,), writable=True)
               for name in ("for", "class", "a-b", "a_2db", "3d", "failure")]
        for a in out:
            a[0] = 1
    (header,) = build.save(f.program, tmp_path / "e.h")
    for name in ("int64_t int_", "*for_", "*class_", "*a_2db", "*a_2db_", "*_3d", "*failure_",
                 "weft_failure *failure"):
        assert f"    {'float ' if name[0] == '*' else ''}{name}" in header.read_text()
