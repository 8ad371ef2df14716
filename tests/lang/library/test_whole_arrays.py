"""Arrays as a whole in kernels: sums, steps, axes turned, all indices, axes of one element."""

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import BoundsError, KernelError, WeftError

SHAPES = [(1,), (7,), (3, 5), (2, 3, 7), (0, 4)]
rng = np.random.default_rng(23)


def made(shape, dtype):
    if np.dtype(dtype).kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)


@cuda.jit
def sums(a, out):
    out[0] = a.sum()
    out[1] = np.sum(a)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint32, np.bool_,
                                   np.complex64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_add_one_element_behind_the_other(shape, dtype):
    a = made(shape, dtype)
    wide = {"f": dtype, "c": dtype, "u": np.uint64}.get(np.dtype(dtype).kind, np.int64)
    total = wide(0)
    for value in a.ravel():
        total = wide(total + value)
    out = np.zeros(2, wide)
    sums[1, 1](a, out)
    if np.dtype(dtype).kind == "c":
        assert np.allclose(out, total, rtol=1e-5)
    else:
        assert (out == total).all()


def test_sums_of_integers_do_not_wrap_at_their_own_width():
    out = np.zeros(2, np.int64)
    sums[1, 1](np.full(1000, 127, np.int8), out)
    assert (out == 127000).all()


def test_sums_go_through_arrays_of_any_steps_and_local_ones():
    @cuda.jit
    def kernel(a, out):
        mine = cuda.local.array(5, np.float64)
        mine[:] = 1.5
        out[0] = a.sum()
        out[1] = a[:, 1].sum()
        out[2] = a[0, ::-2].sum()
        out[3] = mine.sum()

    a = rng.normal(size=(7, 11))[::2, ::3]
    out = np.zeros(4)
    kernel[1, 1](a, out)
    assert np.allclose(out, [a.sum(), a[:, 1].sum(), a[0, ::-2].sum(), 7.5])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex128], ids=str)
def test_transposed_arrays_share_their_elements(dtype):
    @cuda.jit
    def kernel(a, out):
        b = a.transpose()
        c = np.transpose(b)
        for i in range(b.shape[0]):
            for j in range(b.shape[1]):
                out[i, j] = b[i, j]
        c[0, 0] = 9

    a = made((3, 5), dtype)
    wanted = a.T.copy()
    out = np.zeros((5, 3), dtype)
    kernel[1, 1](a, out)
    assert (out == wanted).all()
    assert a[0, 0] == 9


def test_a_product_with_a_transposed_local_array():
    @cuda.jit(device=True)
    def matmul(a, b, c):
        for i in range(c.shape[0]):
            for j in range(c.shape[1]):
                total = 0.0
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

    @cuda.jit
    def kernel(a, out):
        mine = cuda.local.array((3, 2), np.float64)
        found = cuda.local.array((2, 2), np.float64)
        for i in range(3):
            for j in range(2):
                mine[i, j] = a[i, j]
        matmul(mine.transpose(), mine, found)
        for i in range(2):
            for j in range(2):
                out[i, j] = found[i, j]

    a = rng.normal(size=(3, 2))
    out = np.zeros((2, 2))
    kernel[1, 1](a, out)
    assert np.allclose(out, a.T @ a)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_indices_come_in_order(shape):
    @cuda.jit
    def kernel(a, out, sums):
        for k, place in enumerate(np.ndindex(a.shape)):
            out[k] = a[place]
        for place, value in np.ndenumerate(a):
            sums[0] += value * (1 + place[-1])

    a = made(shape, np.float64)
    out, total = np.zeros(max(a.size, 1)), np.zeros(1)
    kernel[1, 1](a, out, total)
    assert (out[:a.size] == a.ravel()).all()
    assert np.allclose(total[0], sum(v * (1 + p[-1]) for p, v in np.ndenumerate(a)))


def test_indices_of_sizes():
    @cuda.jit
    def kernel(out):
        for i, j in np.ndindex(3, 4):
            out[i, j] += 10 * i + j

    out = np.zeros((3, 4))
    kernel[1, 1](out)
    assert (out == 10 * np.arange(3)[:, None] + np.arange(4)).all()


def test_flat_reads_and_writes_elements():
    @cuda.jit
    def kernel(a, out):
        for value in a.flat:
            out[0] += value
        a.flat[7] = -1.0

    a = made((3, 5), np.float64)
    wanted = a.sum()
    out = np.zeros(1)
    kernel[1, 1](a, out)
    assert np.allclose(out, wanted)
    assert a[1, 2] == -1.0


@cuda.jit
def flat_ways(a, out, place):
    k = 0
    for value in a.flat:
        out[k] = value
        k += 1
    for i, value in enumerate(a.T.flat):
        out[k + i] = value
    k *= 2
    for value in a[1:, ::2].flat:
        out[k] = value
        k += 1
    a.flat[place] = 5
    a.T.flat[place + 1] += 7
    a.flat[-1] = a.flat[place] + 1


@pytest.mark.grid
@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.complex64], ids=str)
@pytest.mark.parametrize("order", ["C", "F", "steps", "turned", "deep"])
def test_flat_goes_row_by_row_whatever_the_strides(dtype, order, run):
    a = made((4, 5, 6) if order == "deep" else (6, 10), dtype)
    a = {"C": a, "F": np.asfortranarray(a), "steps": a[::2, ::-3], "turned": a.T,
         "deep": a[::-1, ..., ::2]}[order]
    wanted = np.array([*a.flat, *a.T.flat, *a[1:, ::2].flat])
    out = np.zeros(len(wanted), dtype)
    changed = a.copy(order="K")
    changed.flat[3] = 5
    changed.T.flat[4] += 7
    changed.flat[-1] = changed.flat[3] + 1
    run(flat_ways)(a, out, 3)
    assert (out == wanted).all()
    assert (a == changed).all()


def test_flat_of_a_turned_array_is_checked():
    @cuda.jit
    def beyond(a, place):
        a.T.flat[place] = 1

    @cuda.jit
    def of_floats(a, place):
        a.T.flat[1.5] = a.T.flat["x"]

    with pytest.raises(BoundsError, match="found index 15, expected an index from 0 to 14"):
        beyond[1, 1](np.zeros((3, 5)), 15)
    with pytest.raises(KernelError, match=r"expected an integer index, found str 'x'"):
        of_floats[1, 1](np.zeros((3, 5)), 15)


MIDDLE = slice(1, 3)


def by_slices(x, z, out):
    for i in range(out.shape[0]):
        every, first, back = slice(1, None, 2), slice(3), slice(None, None, -1)
        rows = slice(0, 2) if i > 1 else slice(x.shape[0] - 2, None)
        if i == 3:
            rows = MIDDLE
        out[i, 0] = x[0, every][1] * 1000 + x[first].size * 100 + x[back, back][0, 0]
        out[i, 1] = x[rows, MIDDLE][0, 1] + (4, 5, 6)[MIDDLE][1] + z[first][i % 3].imag
        out[i, 2] = every.step + every.start + first.stop
        x[rows, i] = i + 50


@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
def test_slices_as_values(run):
    x, z, out = np.arange(20.0).reshape(4, 5), np.arange(4) * (1 + 2j), np.zeros((4, 3))
    wanted, y = out.copy(), x.copy()
    by_slices(y, z, wanted)
    run(cuda.jit(by_slices))(x, z, out)
    assert (out == wanted).all()
    assert (x == y).all()


def test_wrong_slices_are_told_at_once():
    @weft.kernel
    def kernel(x):
        x[0:3:0] = 1
        x[0] = slice(1, 2)
        x[slice(0.5, 1)] = 1
        x[:2.0] = 1
        x[1] = slice(1, 2, 3, 4)

    with pytest.raises(KernelError) as caught:
        kernel[1, 1](np.zeros(4))
    told = str(caught.value)
    for text in ("5 errors", "a slice with step 0",
                 "expected a number, found slice(int 1, int 2, int 1)",
                 "a slice with an end of float64", "slice: too many positional arguments"):
        assert text in told
    assert told.count("a slice with an end of float64") == 2


def stepping(x, z, ends, out):
    for k in range(ends.shape[0]):
        first, last, step = ends[k, 0], ends[k, 1], ends[k, 2]
        part, tail, head = x[first:last:step], x[first::step], z[:last:step]
        out[k, 0], out[k, 1], out[k, 2] = part.size, tail.size, head.size
        for i in range(part.size):
            out[k, 3] += part[i] * (i + 1)
        for i in range(tail.size):
            out[k, 4] += tail[i] * (i + 1)
        for i in range(head.size):
            out[k, 5] += head[i].imag * (i + 1)
        y = x[::step]
        y[0] += 1


@pytest.mark.grid
@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 7])
def test_slices_with_steps_that_are_known_when_a_kernel_runs(run, size):
    places = [-9, -7, -1, 0, 1, 3, 6, 9]
    ends = np.array([(a, b, s) for a in places for b in places for s in (-9, -2, -1, 1, 2, 3)])
    x = np.arange(size) + 0.5
    z = x + 2j * x
    wanted, y = np.zeros((len(ends), 6)), x.copy()
    stepping(y, z, ends, wanted)
    out = np.zeros_like(wanted)
    run(cuda.jit(stepping))(x, z, ends, out)
    assert (out == wanted).all()
    assert (x == y).all()


def test_slices_of_floats_are_cut_off_as_in_numba():
    @cuda.jit
    def kernel(x, first, last, step, out):
        part = x[first:last:step]
        out[0] = part.size
        out[1] = part[1]

    out = np.zeros(2)
    kernel[1, 1](np.arange(9.0), 1.9, np.float32(6.5), 2.75, out)
    assert tuple(out) == (3, 3)
    with pytest.raises(WeftError, match="a slice with step 0"):
        kernel[1, 1](np.arange(9.0), 1.9, np.float32(6.5), 0.75, out)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.float64], ids=str)
def test_extremes_and_sums_of_arrays_by_pythons_functions(dtype):
    @cuda.jit
    def kernel(x, out):
        out[0] = min(x)
        out[1] = max(x[1:3])
        out[2] = sum(x) / 2
        out[3] = sum(x[:0])

    x = np.array([5, 3, 9, 1, 7], dtype)
    out = np.full(4, -1.0)
    kernel[1, 1](x, out)
    assert tuple(out) == (1, 9, 12.5, 0)
    with pytest.raises(WeftError, match="expected an index"):
        kernel[1, 1](x[:0], out)


@pytest.mark.parametrize("dtype", [np.int16, np.float64, np.complex64], ids=str)
@pytest.mark.parametrize("order", ["C", "steps", "turned"])
def test_strides_and_bytes_are_those_of_numpy(dtype, order):
    @cuda.jit
    def kernel(a, out):
        out[0] = a.strides[0]
        out[1] = a.strides[1]
        out[2] = a.nbytes

    a = made((6, 10), dtype)
    a = {"C": a, "steps": a[::2, ::-3], "turned": a.T}[order]
    out = np.zeros(3, np.int64)
    kernel[1, 1](a, out)
    assert tuple(out) == (*a.strides, a.nbytes)


def test_an_axis_of_one_element():
    @cuda.jit
    def kernel(a, z, out):
        b = a[np.newaxis, 1]
        c = a[:, None, ::2]
        d = z[None, ...]
        out[0] = b.ndim * 100 + b.shape[0] * 10 + c.ndim
        out[1] = b[0, 2]
        out[2] = c[1, 0, 1]
        out[3] = d[0, 3].imag
        b[0, 0] = 5.0

    a, z = made((2, 5), np.float64), made((5,), np.complex128)
    out = np.zeros(4)
    kernel[1, 1](a, z, out)
    assert tuple(out) == (213, a[1, 2], a[1, 2], z[3].imag)
    assert a[1, 0] == 5.0


def test_numbers_tell_their_type():
    @cuda.jit
    def kernel(a, i, out):
        out[0] = type(a[0])(1) / 3
        out[1] = a.dtype.type(1) / type(a[0])(3)
        out[2] = type(i[0])(3.7)
        out[3] = a[1].item() + i[0].item() + i.item()
        out[4] = a.real[1]

    a = made((3,), np.float32)
    out = np.zeros(5)
    kernel[1, 1](a, np.array([4], np.int8), out)
    third = float(np.float32(1) / np.float32(3))
    assert tuple(out[:3]) == (1 / 3, third, 3.0)  # an integer beside float32 makes float64
    assert np.allclose(out[3:], [a[1] + 8, a[1]])


def test_item_of_many_elements_is_found_when_the_kernel_runs():
    @cuda.jit(debug=True, opt=False)
    def kernel(a, out):
        out[0] = a.item()

    with pytest.raises(weft.WeftError):
        kernel[1, 1](np.ones(3), np.zeros(1))


def test_tuples_are_repeated():
    @cuda.jit
    def kernel(out):
        sizes = (1, 2) * 2 + 2 * (5,)
        for k, size in enumerate(sizes):
            out[k] = size
        out[6] = len(sizes)

    out = np.zeros(7)
    kernel[1, 1](out)
    assert tuple(out) == (1, 2, 1, 2, 5, 5, 6)


@pytest.mark.parametrize("limit", [0, 3, 9])
def test_names_of_a_loop_live_in_its_else_branch(limit):
    @cuda.jit
    def kernel(n, out):
        i = 0
        while i < n:
            i += 1
        else:
            out[0] = i
        for k in range(n):
            last = k
            if k == 5:
                break
        else:
            last = i + 100
        out[1] = last

    out = np.zeros(2)
    kernel[1, 1](limit, out)
    assert tuple(out) == (limit, 5 if limit > 5 else limit + 100)


def test_sums_with_arguments_are_errors_of_one_line():
    @cuda.jit
    def kernel(a, out):
        out[0] = a.sum(axis=0)[0]

    with pytest.raises(KernelError, match="sum with arguments"):
        kernel[1, 1](np.ones((2, 2)), np.zeros(1))


@cuda.jit
def flat_sizes(a, out):
    out[0] = len(a.T.flat)
    out[1] = a.T.flat.size


@cuda.jit
def chosen_steps(a, out, early):
    steps = slice(None, 7, 3) if early else slice(1, None, 3)
    for k, value in enumerate(a[steps]):
        out[k] = value


@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
def test_flat_tells_how_many_it_has(run):
    out = np.zeros(2, np.int64)
    run(flat_sizes)(made((3, 5), np.float32), out)
    assert out.tolist() == [15, 15]


@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
@pytest.mark.parametrize("early", [True, False])
def test_slices_that_leave_an_end_out_are_chosen(early, run):
    a = made((11,), np.float32)
    wanted = a[:7:3] if early else a[1::3]
    out = np.zeros(5, np.float32)
    run(chosen_steps)(a, out, early)
    assert out[:len(wanted)].tolist() == wanted.tolist()
    assert not out[len(wanted):].any()
