"""Errors: classes, messages, and the user's line."""

import builtins
import contextlib
import copy
import linecache
import pickle
import sys
import types

import pytest

from weft import errors
from weft.errors import LaunchError, ShapeError, WeftError, Where, user_line, user_location

CLASSES = [
    value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, WeftError)
]
BUILTIN = {
    "ShapeError": [ValueError],
    "DTypeError": [TypeError],
    "RangeError": [ValueError],
    "BoundsError": [IndexError],
    "AxisError": [IndexError, ValueError],
    "ParseError": [ValueError],
    "VerifyError": [ValueError],
    "ScheduleError": [ValueError],
    "UnsupportedError": [TypeError],
    "CompileError": [RuntimeError],
    "KernelError": [RuntimeError, TypeError],
    "LaunchError": [RuntimeError],
    "VariableError": [ValueError],
    "CaptureError": [RuntimeError],
    "CheckError": [RuntimeError],
    "GradientError": [RuntimeError],
    "CacheError": [RuntimeError],
    "TuningError": [RuntimeError],
    "AllocationError": [MemoryError],
    "DeviceError": [RuntimeError],
}
OF_A_DEVICE = {
    "InitializationError",
    "LibraryNotFoundError",
    "EnumerationError",
    "QueryError",
    "DeallocationError",
    "CopyError",
    "SyncError",
    "HandleError",
}


def run_in(filename, text, **names):
    """Execute source under a file name of its own, as if it belonged to that file."""
    exec(compile(text, filename, "exec"), names)
    return names


def test_every_class_is_listed_once():
    assert {c.__name__ for c in CLASSES} == set(BUILTIN) | OF_A_DEVICE | {"WeftError"}
    assert len(errors.__all__) == len(set(errors.__all__))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_class_is_caught_as_its_builtin(cls):
    bases = BUILTIN.get(cls.__name__, [RuntimeError] if cls.__name__ in OF_A_DEVICE else [])
    for base in [WeftError, *bases]:
        with pytest.raises(base, match="op: found 1, expected 2") as caught:
            raise cls("op", found=1, expected=2)
        assert type(caught.value) is cls
    assert issubclass(cls, errors.DeviceError) == (
        cls.__name__ in OF_A_DEVICE or cls is errors.DeviceError
    )


def test_message_names_all_parts():
    error = ShapeError(
        "matmul", found="(3, 4) @ (5, 6)", expected="inner sizes to agree", hint="transpose one"
    )
    first, second, carets = str(error).splitlines()
    assert first == (
        "matmul: found (3, 4) @ (5, 6), expected inner sizes to agree (transpose one)"
    )
    assert "test_errors.py:" in second
    assert second.endswith("error = ShapeError(")
    assert carets == " " * second.index("ShapeError(") + "^" * len("ShapeError(")
    assert (error.operation, error.found, error.expected, error.hint) == (
        "matmul",
        "(3, 4) @ (5, 6)",
        "inner sizes to agree",
        "transpose one",
    )


@pytest.mark.parametrize(
    ("args", "facts", "message"),
    [
        ((), {}, "ShapeError"),
        (("a sentence",), {}, "a sentence"),
        ((), {"found": 3}, "found 3"),
        (("cat",), {"expected": (2, 3)}, "cat: expected (2, 3)"),
        (("cat",), {"hint": "do"}, "cat (do)"),
        (("cat",), {"found": 0, "expected": ""}, "cat: found 0, expected "),
    ],
)
def test_every_part_is_optional(args, facts, message):
    assert ShapeError(*args, **facts).message == message


def test_where_is_the_first_frame_outside_the_package():
    inner = run_in(errors._PACKAGE + "tensors/x.py", "def fail(cls): raise cls('op')")["fail"]
    with pytest.raises(ShapeError) as caught:
        inner(ShapeError)
    where = caught.value.where
    assert where.file == __file__
    assert where.text == "inner(ShapeError)"
    assert str(where) == f"{__file__}:{where.line}: inner(ShapeError)"


def test_a_sister_package_is_the_users():
    # weft_extra/ begins with the letters of weft/ but is not ours.
    sister = errors._PACKAGE.rstrip("/\\") + "_extra/x.py"
    assert run_in(sister, "at = here()", here=user_location)["at"] == (sister, 1)


def test_standard_library_frames_are_stepped_over():
    @contextlib.contextmanager
    def scope():
        yield user_location()

    with scope() as location:
        assert location[0] != contextlib.__file__

    ours = run_in(
        errors._PACKAGE + "x.py",
        "@contextmanager\ndef scope():\n    yield here()",
        contextmanager=contextlib.contextmanager,
        here=user_location,
    )["scope"]
    with ours() as location:
        assert location == (__file__, sys._getframe().f_lineno - 1)


def test_installed_packages_are_the_users():
    file = errors._INSTALLED[0] + "/model.py"
    assert run_in(file, "at = here()", here=user_location)["at"] == (file, 1)


def test_where_can_be_given(tmp_path):
    source = tmp_path / "user.py"
    source.write_text("first\n    second\n")
    assert ShapeError("op", where=(str(source), 2)).where == (str(source), 2, "second")
    assert ShapeError("op", where=("f.py", 7, "text")).where == Where("f.py", 7, "text")
    assert str(ShapeError("op", where=("gone.py", 7))) == "op\n  at gone.py:7"


def test_no_user_frame(monkeypatch):
    monkeypatch.setattr(errors, "is_foreign", lambda file: True)
    assert user_location() is None
    assert user_line() is None
    assert str(ShapeError("op")) == "op"


def test_location_keeps_no_frame_alive():
    location = user_location()
    assert location == (__file__, sys._getframe().f_lineno - 1)
    assert all(type(part) in (str, int) for part in location)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_copy_keeps_everything(cls):
    # Processes and executors hand exceptions on by the same protocol.
    error = cls("op", found=1, expected=2, hint="h", where=("f.py", 3, "t"))
    again = copy.copy(error)
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_carets_stand_below_what_ran():
    """Columns of Python are bytes of UTF-8; what is marked is the call, not the line."""
    names = {"DTypeError": errors.DTypeError}
    source = "if True:\n    x = 'äöü', DTypeError('a'), 3\n"
    linecache.cache["<carets>"] = len(source), None, source.splitlines(keepends=True), "<carets>"
    exec(compile(source, "<carets>", "exec"), names)
    _, place, carets = str(names["x"][1]).splitlines()
    start = place.index("DTypeError('a')")
    assert carets == " " * start + "^" * len("DTypeError('a')")


@pytest.mark.parametrize("kind", ["ValueError", "KeyError", "ZeroDivisionError", "Unknown"])
def test_what_a_kernel_raises_is_caught_as_such(kind):
    cls = errors.raised(f"{kind}: bad")
    assert issubclass(cls, LaunchError)
    assert issubclass(cls, getattr(builtins, kind, LaunchError))
    error = cls("k", found=f"{kind}: bad", where=("f.py", 3, "t"))
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is cls
        assert str(again) == str(error) == f"k: found {kind}: bad\n  at f.py:3: t"


def test_cells_of_notebooks_have_their_numbers(monkeypatch):
    """Their files have names that nobody sees."""
    cells = {"/tmp/ipykernel_7/123.py": ("Cell", "In[3]")}
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=cells.get))
    module = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert str(Where("/tmp/ipykernel_7/123.py", 3, "t")) == "Cell In[3]:3: t"
    assert str(Where("f.py", 3, "t")) == "f.py:3: t"
    monkeypatch.setattr(module, "get_ipython", lambda: None)  # IPython without a shell
    assert str(Where("/tmp/ipykernel_7/123.py", 3)) == "/tmp/ipykernel_7/123.py:3"
