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
