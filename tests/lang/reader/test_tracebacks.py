"""Errors show the lines of users, and none of ours, whatever front end they come from."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import build, gpu
from weft.compat import cuda
from weft.errors import BoundsError, KernelError, LaunchError, Opened, WeftError, outermost

pytestmark = pytest.mark.usefixtures("compiled")
PACKAGE = str(Path(weft.__file__).parent)


@weft.kernel
def shifted(x, n):
    i = gpu.grid(1)
    x[i + n] = 1.0


@weft.kernel
def rows(x: weft.float32[:, ::1]):
    x[0, 0] = 1


@weft.kernel
def wrong(x):
    x[0] = unknown(x)  # noqa: F821


@weft.kernel
def asserts(x):
    i = gpu.grid(1)
    assert i < 3, "too far"
    x[i] = 1


@cuda.jit
def under_cuda(x):
    i = cuda.grid(1)
    if i < 100:
        x[i + 100] = 1


@weft.func
def divided(x):
    return 1 / x


@weft.critical
def at(x: weft.float64[::1], i: weft.int64) -> weft.float64:
    return x[i]


@weft.compute
def filled(x, n):
    for i in range(n):
        x[i] = 1.0


def built():
    with build.function("f") as f:
        a = f.array("a", weft.float32, 1, writable=True)
        with f.loop(3) as i:
            a[i] = 1.0
    return f.program


def built_kernel():
    with build.kernel("f") as f:
        a = f.array("a", weft.float32, 1, writable=True)
        a[f.grid()] = 1.0
    return f.program


def building(step):
    with build.function("f") as f:
        step(f, f.array("a", weft.float32, 1, writable=True))


def in_a_loop(f, kind):
    with f.loop(3, kind=kind):
        pass


def fused(x):
    with weft.fuse():
        shifted[1, 8](x, 3)


def again(function, *good):
    """Call what goes well a few times, so that the next call is native."""
    for _ in range(4):
        function(*good)
    return function


def capture(kernel, *args):
    return weft.jit(lambda x: (kernel[1, 8](x, *args), x)[1])(weft.zeros(8))


x = np.zeros(8)
CASES = {
    "bounds": lambda: shifted[1, 8](x, 3),
    "native": lambda: again(shifted[1, 8], x, 0)(x, 3),
    "launch": lambda: shifted.launch(x, 3, grid=1, block=8),
    "grid": lambda: shifted[0, 8],
    "block": lambda: shifted[1, 2048],
    "one value": lambda: shifted[1],
    "no grid": lambda: shifted(x, 0),
    "named": lambda: shifted(x, n=0),
    "count": lambda: shifted[1, 8](x),
    "name": lambda: shifted[1, 8](x, z=2),
    "dtype": lambda: rows[1, 8](x),
    "compile": lambda: wrong[1, 8](x),
    "check": lambda: wrong.check(x, grid=1, block=1),
    "assertion": lambda: asserts[1, 8](x),
    "objects": lambda: shifted[1, 8](np.array([None]), 0),
    "cuda": lambda: under_cuda[1, 16](x),
    "cuda grid": lambda: under_cuda[1](x),
    "cuda forall": lambda: under_cuda.forall(9)(x),
    "cuda forall, text": lambda: under_cuda.forall("q")(x),
    "cuda options": lambda: cuda.jit("void(float32[:], int32)")(lambda x: None),
    "func": lambda: weft.func(3),
    "kernel": lambda: weft.kernel(max_threads=0),
    "critical": lambda: at(x, 9),
    "critical, native": lambda: again(at, x, 3)(x, 9),
    "critical, count": lambda: at(x),
    "critical, options": lambda: weft.critical(level="fast"),
    "critical, pinned": lambda: at.pinned(1 << 20).__enter__(),
    "compute": lambda: filled(x, 9),
    "compute, native": lambda: again(filled, x, 8)(x, 9),
    "compute, count": lambda: filled(x),
    "compute, types": lambda: filled(None, 3),
    "compute, options": lambda: weft.compute(kind="fast"),
    "sanitize": lambda: weft.sanitize(3, 1, 1),
    "interpret": lambda: weft.interpret(asserts, 1, 8)(x),
    "built": lambda: built()(np.zeros(2, np.float32)),
    "built, count": lambda: built()(),
    "built kernel": lambda: built_kernel()[1, 8](np.zeros(2, np.float32)),
    "builder, with": lambda: building(lambda f, a: in_a_loop(f, "fast")),
    "builder, operator": lambda: building(lambda f, a: a[0] << 2.0),
    "builder, method": lambda: building(lambda f, a: f.break_()),
    "jit": lambda: capture(shifted, 3),
    "jit, assertion": lambda: capture(asserts),
    "fuse": lambda: fused(x),
}


def printed(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("case", CASES)
def test_no_frame_of_ours(case):
    with pytest.raises(WeftError) as found:
        CASES[case]()
    files = [f.filename for f in traceback.extract_tb(found.value.__traceback__)]
    assert files[0] == __file__
    assert not [f for f in files if f.startswith(PACKAGE) or "contextlib" in f]
    assert "weft/errors.py" not in printed(found.value)
    assert len(str(found.value).splitlines()) < 10


def test_errors_of_the_users_functions_keep_their_frames():
    with pytest.raises(ZeroDivisionError) as found:
        divided(0)
    names = [f.name for f in traceback.extract_tb(found.value.__traceback__)]
    assert names == ["test_errors_of_the_users_functions_keep_their_frames", "divided"]


def test_frames_between_ours_stay():
    @weft.jit
    def f(x):
        shifted[0, 8](x, 3)
        return x

    with pytest.raises(LaunchError) as found:
        f(weft.zeros(8))
    names = [t.name for t in traceback.extract_tb(found.value.__traceback__)]
    assert names == ["test_frames_between_ours_stay", "f"]


def test_what_was_being_handled_is_told_and_nothing_else():
    def fails():
        try:
            return {}["key"]
        except KeyError:
            return shifted[1, 8](x, "text")

    with pytest.raises(WeftError) as found:
        fails()
    assert isinstance(found.value.__context__, KeyError)
    with pytest.raises(LaunchError) as found:  # arises from a TypeError of Python's binding
        shifted[1, 8](x)
    assert found.value.__context__ is None
    assert found.value.__cause__ is None


def test_mistakes_of_ours_keep_all_frames():
    with pytest.raises(AttributeError) as found:
        outermost(Opened(None).__enter__)()  # what no code of ours does
    files = {f.filename for f in traceback.extract_tb(found.value.__traceback__)}
    assert any(f.endswith("errors.py") for f in files)


def test_a_body_without_with_is_an_error():
    def never_entered(f, a):
        f.parallel(3)

    with pytest.raises(KernelError, match=r"parallel\(\) without a with statement") as found:
        building(never_entered)
    assert "f.parallel(3)" in str(found.value)
    with pytest.raises(KernelError, match=r"loop\(\) without a with statement"):
        building(lambda f, a: f.loop(3, at=("photo.img", 3)))


def test_a_body_may_be_entered_later():
    with build.function("f") as f:
        a = f.array("a", weft.float32, 1, writable=True)
        later = f.loop(3)
        with later as i:
            a[i] = 2.0
    out = np.zeros(4, np.float32)
    f.program(out)
    np.testing.assert_array_equal(out, [2, 2, 2, 0])


def test_fused_launches_name_the_thread():
    with pytest.raises(LaunchError, match=r"too far in thread \(3, 0, 0\) of block \(0, 0, 0\)"), \
            weft.fuse():
        asserts[1, 8](x)
    with pytest.raises(BoundsError):
        fused(x)
