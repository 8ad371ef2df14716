"""Exceptions of the program's own: the same class wherever code runs, alone or in a capture."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import LaunchError


class TooLarge(Exception):
    """Raised by what is compiled."""




@weft.kernel
def in_kernel(x):
    i = gpu.grid(1)
    if x[i] > 2:
        raise TooLarge("more than two")
    x[i] = x[i] + 1


@weft.compute
def in_loop(x):
    for i in range(x.shape[0]):
        if x[i] > 2:
            raise TooLarge("more than two")
        x[i] = x[i] + 1


@weft.critical
def alone(x: int) -> int:
    if x > 2:
        raise TooLarge("more than two")
    return x + 1


def launched(x):
    in_kernel[1, 4](x)


def interpreted(x):
    weft.interpret(in_kernel, 1, 4)(x)


def captured(function):
    return lambda x: weft.jit(lambda t: function(t) or t * 2)(weft.tensor(x)).numpy()


@pytest.mark.parametrize(
    "run",
    [launched, interpreted, captured(launched), in_loop, captured(in_loop),
     lambda x: alone(int(x[0]))],
    ids=["kernel", "interpreter", "captured", "loop", "captured loop", "critical"],
)  # fmt: skip
@pytest.mark.usefixtures("compiled")
def test_the_class_is_the_programs(run):
    for _ in range(4):  # also by native paths
        run(np.ones(4, np.float32))
        with pytest.raises(TooLarge, match="more than two") as caught:
            run(np.full(4, 3, np.float32))
        assert isinstance(caught.value, LaunchError)


def test_loops_on_the_interpreter_device(monkeypatch):
    monkeypatch.setattr(type(in_loop), "_is_interpreted", lambda function: True)
    with pytest.raises(TooLarge, match="more than two"):
        weft.compute(in_loop.__weft_function__)(np.full(4, 3, np.float32))


def test_kernels_that_know_different_names():
    def local():
        class Other(Exception):
            pass

        @weft.kernel
        def second(x, y):
            i = gpu.grid(1)
            if x[i] < 0:
                raise Other("less than none")
            y[i] = x[i]

        return second, Other

    second, other = local()

    def both(x, y):
        with weft.fuse():
            in_kernel[1, 4](x)
            second[1, 4](x, y)

    with pytest.raises(other, match="less than none"):
        both(np.full(4, -3, np.float32), np.zeros(4, np.float32))


@weft.kernel
def kernel_asserts(x, plain):
    i = gpu.grid(1)
    if plain:
        assert x[i] <= 2
    assert x[i] <= 2, "KeyError x is TooLarge: TooLarge"
    x[i] = x[i] + 1


@weft.compute
def loop_asserts(x, plain):
    for i in range(x.shape[0]):
        if plain:
            assert x[i] <= 2
        assert x[i] <= 2, "KeyError x is TooLarge: TooLarge"
        x[i] = x[i] + 1


@weft.critical
def critical_asserts(x: int, plain: bool) -> int:
    if plain:
        assert x <= 2
    assert x <= 2, "KeyError x is TooLarge: TooLarge"
    return x + 1


@pytest.mark.parametrize(
    ("run", "thread"),
    [(lambda x, plain: kernel_asserts[1, 4](x, plain), "thread (1, 0, 0)"),
     (lambda x, plain: weft.interpret(kernel_asserts, 1, 4)(x, plain), "thread (1, 0, 0)"),
     (lambda x, plain: captured(lambda t: kernel_asserts[1, 4](t, plain))(x), "thread (1, 0, 0)"),
     (loop_asserts, ""), (lambda x, plain: critical_asserts(int(x[1]), plain), "")],
    ids=["kernel", "interpreter", "captured", "loop", "critical"],
)  # fmt: skip
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.usefixtures("compiled")
def test_an_assert_is_an_assertion_error_whatever_it_says(run, thread, plain):
    for _ in range(4):
        x = np.array([1.0, 7, 1, 1])
        with pytest.raises(AssertionError) as found:
            run(x, plain)
        assert isinstance(found.value, LaunchError)
        assert not isinstance(found.value, KeyError | TooLarge)
        assert thread in str(found.value)


@weft.kernel
def without_words(x):
    if x[gpu.grid(1)] > 2:
        raise ValueError


@pytest.mark.parametrize("made", [without_words[1, 4], weft.interpret(without_words, 1, 4)],
                         ids=["kernel", "interpreter"])  # fmt: skip
def test_a_class_without_words(made):
    with pytest.raises(ValueError, match=r"ValueError in thread \(1, 0, 0\)") as found:
        made(np.array([1.0, 7, 1, 1]))
    assert isinstance(found.value, LaunchError)
