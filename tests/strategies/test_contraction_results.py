"""How results of convolutions leave, and how weights are copied: as memory has them."""

import numpy as np
import pytest
from test_contraction_forms import NARROW, scheduled

import schedule_nests as nests
import weft
import weft.nn.functional as wf
import weft.optim
from schedule_costs import WIDE, costs_on
from weft.driver import counters

RNG = np.random.default_rng(29)


def whole(*shape):
    return RNG.integers(-4, 5, shape).astype(np.float32)


def gradient_of_weights(x, up, kernel, stride, padding):
    """The sums in float64, tap by tap."""
    images = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    rows, columns = up.shape[2:]
    out = np.empty((up.shape[1], x.shape[1], kernel, kernel))
    for p in range(kernel):
        for q in range(kernel):
            seen = images[:, :, p : p + stride * rows : stride, q : q + stride * columns : stride]
            out[:, :, p, q] = np.einsum("noij,ncij->oc", up, seen[:, :, :rows, :columns])
    return out


@pytest.mark.parametrize(("images", "channels", "outputs", "height", "width", "kernel", "stride"), [
    (5, 70, 64, 7, 7, 3, 1), (8, 128, 66, 7, 5, 3, 1), (4, 260, 64, 14, 14, 3, 1),
    (3, 257, 33, 13, 11, 3, 2), (2, 5, 40, 30, 31, 7, 2), (6, 96, 96, 5, 5, 1, 1),
    (2, 67, 32, 9, 6, 2, 1)])
def test_gradients_of_weights_beside_what_they_update(images, channels, outputs, height, width,
                                                      kernel, stride):
    x, w = whole(images, channels, height, width), whole(outputs, channels, kernel, kernel)
    padding = kernel // 2
    sides = [(m + 2 * padding - kernel) // stride + 1 for m in (height, width)]
    up = whole(images, outputs, *sides)
    learned = weft.tensor(w, requires_grad=True)
    optimiser = weft.optim.SGD([learned], lr=1.0, momentum=0.5)

    @weft.jit
    def step(x, up):
        optimiser.zero_grad()
        wf.conv2d(x, learned, stride=stride, padding=padding).backward(up)
        optimiser.step()
        return learned.grad

    wanted = gradient_of_weights(x, up, kernel, stride, padding)
    for moved in (1.0, 2.5, 4.25):
        np.testing.assert_array_equal(step(weft.tensor(x), weft.tensor(up)).numpy(), wanted)
        np.testing.assert_array_equal(learned.detach().numpy(), w - moved * wanted)


def costs_of(call, *arguments):
    """Return what each kernel of a call costs where vectors are wide."""
    with counters.record() as record:
        [t.realize() for t in call(*arguments)]
    return costs_on(WIDE, record)


def test_short_rows_of_gradients_leave_together():
    """Nine taps a pair of channels: alone they would be pieces of lines, each written often."""
    x, w, up = (weft.tensor(whole(*s)) for s in (
        (8, 300, 14, 14), (64, 300, 3, 3), (8, 64, 14, 14)))

    def call(x, w, up):
        w = w.detach().requires_grad_()
        wf.conv2d(x, w, padding=1).backward(up)
        return [w.grad]

    (cost,) = costs_of(weft.jit(call), x, w, up)
    assert cost.stored_at_once("out0") >= 8


@pytest.mark.parametrize("shape", [(5, 4, 1, 1, 4, 8), (7, 7, 1, 0, 5, 15)])
def test_rows_of_results_leave_together(shape):
    cost = scheduled(nests.convolution(*shape), NARROW, window_rows=6, whole_bytes=256,
                     window_bytes=800, sum_bytes=8 << 10)
    assert cost.stored_at_once("y") >= 8


def test_squares_do_not_reach_over_gaps():
    """Weights of a gradient by the images: those of one channel of it are far apart."""
    w, up = weft.tensor(whole(96, 64, 3, 3)), weft.tensor(whole(2, 96, 9, 9))

    def call(w, up):
        x = weft.zeros(2, 64, 9, 9).requires_grad_()
        wf.conv2d(x, w, padding=1).backward(up)
        return [x.grad]

    tests = call(w, up)[0].numpy()
    direct = np.zeros(tests.shape)
    for p in range(3):
        for q in range(3):
            padded = np.pad(up.numpy().astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
            seen = padded[:, :, 2 - p : 11 - p, 2 - q : 11 - q]
            direct += np.einsum("noij,oc->ncij", seen, w.numpy()[:, :, p, q])
    np.testing.assert_array_equal(tests, direct)
