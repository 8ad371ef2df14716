"""Gradients through tensors over arrays of NumPy are those of tensors with memory of their own."""

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")

N = 4


def own(array):
    return weft.tensor(array)


def both(program):
    """Return what a program gives with memory of NumPy, and with memory of Weft."""
    return program(weft.from_numpy), program(own)


def add(x, w):
    x.add_(w)


def multiply(x, w):
    x.mul_(w)


def copy(x, w):
    x.copy_(w * w)


def leaf(x, w):
    x.copy_(w)


def leaf_twice(x, w):
    x.copy_(w)
    x.copy_(w)


def element(x, w):
    x[1] = w[2] * 3


def view(x, w):
    x[1:].mul_(w[:-1])


def detached_view(x, w):
    x.detach().add_(w)


def two(x, w):
    x.add_(w)
    x.mul_(w + 1)


def value_alone(x, w):
    x.mul_(w)
    with weft.no_grad():
        x.add_(1)


WRITES = [add, multiply, copy, leaf, leaf_twice, element, view, detached_view, two, value_alone]


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_recorded_write(write, looked_at):
    def program(made):
        array = np.arange(1, N + 1, dtype=np.float32)
        x, w = made(array), weft.tensor([2.0, 3.0, 4.0, 5.0], requires_grad=True)
        before = x * w
        write(x, w)
        if looked_at:
            x.tolist()
        (x * x + before).sum().backward()
        assert made is own or array.tolist() == x.tolist()
        return w.grad.tolist(), x.tolist(), x.requires_grad

    shared, expected = both(program)
    assert shared == expected


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("write", [
    lambda x: x.mul_(3), lambda x: x.copy_(x * x), lambda x: x[1:].zero_(),
    lambda x: x.detach().add_(2), lambda x: setattr(x, "data", weft.ones(N)),
], ids=["whole", "copy", "view", "detached", "data"])  # fmt: skip
def test_backward_reads_what_was_there_before_a_write(write, looked_at):
    def program(made):
        x = made(np.arange(1, N + 1, dtype=np.float32))
        w = weft.tensor([2.0, 3.0, 4.0, 5.0], requires_grad=True)
        y = (x * w).exp()
        if looked_at:
            y.tolist()
        write(x)
        y.sum().backward()
        return w.grad.tolist(), x.tolist()

    shared, expected = both(program)
    assert shared == expected


def test_another_name_of_the_memory():
    array = np.arange(1, N + 1, dtype=np.float32)
    x, twin = weft.from_numpy(array), weft.from_numpy(array[1:])
    w = weft.ones(N - 1).requires_grad_()
    y = (twin * w).realize()
    x.mul_(10)
    y.sum().backward()
    assert w.grad.tolist() == [2, 3, 4]
    assert twin.tolist() == [20, 30, 40]
    twin.add_(1)
    x.sub_(1)
    assert array.tolist() == x.tolist() == [9, 20, 30, 40]
    array[1] = 7
    assert (twin[0].item(), x[1].item()) == (7, 7)


def test_parameters_over_arrays_are_learned():
    def program(made):
        x = weft.arange(6.0).reshape(2, 3) / 6
        w = made(np.linspace(-1, 1, 3, dtype=np.float32)).requires_grad_()
        optimised = made(np.ones(3, np.float32)).requires_grad_()
        optimizer = weft.optim.SGD([optimised], lr=0.1, momentum=0.5)
        found = []
        for _ in range(4):
            loss = ((x @ w).tanh() ** 2).sum() + ((x @ optimised) ** 2).sum()
            found.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with weft.no_grad():
                w -= 0.5 * w.grad
            w.grad = None
        loss.backward()  # of the last step, once more
        return [*found, *w.tolist(), *w.grad.tolist(), *optimised.tolist()]

    shared, expected = both(program)
    np.testing.assert_allclose(shared, expected, rtol=1e-5)


def test_random_programs(rng):
    for _ in range(40):
        choices = rng.integers(0, 7, 7).tolist()
        places = rng.integers(0, 2, 7).tolist()

        def program(made, choices=choices, places=places):
            tensors = [made(np.arange(1, N + 1, dtype=np.float32) / (4 + i)) for i in range(2)]
            w = weft.tensor([0.5, 1.0, -1.0, 2.0], requires_grad=True)
            kept = []
            for choice, place in zip(choices, places, strict=True):
                x, y = tensors[place], tensors[1 - place]
                if choice == 0:
                    x.add_(w)
                elif choice == 1:
                    x.mul_(y)
                elif choice == 2:
                    kept.append((x * w * y).sin())
                elif choice == 3:
                    with weft.no_grad():
                        x.mul_(0.5)
                elif choice == 4:
                    x[1:] = y[:-1] * w[0]
                elif choice == 5:
                    (kept[-1] if kept else y).tolist()
                else:
                    x.detach().sub_(0.25)
            total = sum((k.sum() for k in kept), tensors[0].sum() + (tensors[1] * w).sum())
            total.backward()
            return [*w.grad.tolist(), *tensors[0].tolist(), *tensors[1].tolist()]

        shared, expected = both(program)
        np.testing.assert_allclose(shared, expected, rtol=1e-4, atol=1e-5, err_msg=str(
            [*zip(choices, places, strict=True)]))  # fmt: skip


@pytest.mark.parametrize("made", [weft.from_numpy, own], ids=["NumPy", "Weft"])
def test_the_gradient_of_a_copy_is_its_own(made):
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    written = made(np.zeros(2, np.float32)).copy_(w)
    one, two, power = w.clone(), w.clone(), w ** 1
    for t in (written, one, two, power):
        t.retain_grad()
    (written * 2 + one * 3 + two * 5 + power * 7 + w * 11).sum().backward()
    found = [t.grad.tolist() for t in (written, one, two, power, w)]
    assert found == [[2, 2], [3, 3], [5, 5], [7, 7], [28, 28]]
    copied = w.clone()
    (gradient,) = weft.grad((copied * copied).sum() + w.sum(), [copied])
    assert gradient.tolist() == [2, 4]
