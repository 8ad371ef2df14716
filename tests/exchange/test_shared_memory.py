"""Memory shared with NumPy, both ways: no copy where strides can say what lies where."""

import threading

import ml_dtypes
import numpy as np
import pytest

import weft


def address(array):
    return array.__array_interface__["data"][0]


def base(dtype=np.float32):
    return np.arange(24).reshape(2, 3, 4).astype(dtype)


LAYOUTS = {
    "plain": lambda a: a,
    "transposed": lambda a: a.T,
    "permuted": lambda a: a.transpose(1, 0, 2),
    "reversed": lambda a: a[::-1, :, ::-1],
    "reversed and permuted": lambda a: a[::-1].transpose(2, 0, 1),
    "fortran": np.asfortranarray,
    "new axes": lambda a: a[:, None, ::-1, None],
    "steps": lambda a: a[:, ::2, ::-2],
    "column": lambda a: a[:, 1, 2],
    "one": lambda a: a[1, 2, 3:],
    "one row": lambda a: a[1:, ::5, 1:3],
    "inner": lambda a: a[:, 1:, 1:3].T,
}


@pytest.fixture(params=["oracle", "compiled"], autouse=True)
def both(request):
    if request.param == "compiled":
        request.getfixturevalue("compiled")


@pytest.mark.grid
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.bool_, np.float16,
                                   ml_dtypes.bfloat16])  # fmt: skip
def test_arrays_are_read_where_they_lie(layout, dtype):
    a = LAYOUTS[layout](base(dtype))
    t = weft.from_numpy(a)
    out = t.numpy()
    assert (address(out), out.shape, out.dtype) == (address(a), a.shape, a.dtype)
    assert [s for n, s in zip(a.shape, out.strides, strict=True) if n > 1] == [
        s for n, s in zip(a.shape, a.strides, strict=True) if n > 1]
    assert out.flags.writeable
    assert np.array_equal(out, a)
    assert (t.bool() == t.bool()).all().item()
    a[...] = a[::-1].copy()  # NumPy writes: all that looks at the memory sees it
    assert np.array_equal(t.numpy(), a)
    assert np.array_equal(t.astype("float32").numpy(), a.astype(np.float32))
    assert np.array_equal(weft.asarray(a, copy=False).numpy(), a)


@pytest.mark.grid
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16])
def test_writes_reach_the_array_and_nothing_else(layout, dtype):
    whole, expected = base(dtype), base(dtype)
    a, b = LAYOUTS[layout](whole), LAYOUTS[layout](expected)
    if layout == "fortran":
        whole, expected = a, b
    t = weft.from_numpy(a)
    reader = t.astype("float32") * 2
    before = b.astype(np.float32) * 2
    t.add_(1)
    t.realize()
    b[...] += 1
    assert np.array_equal(whole, expected)
    assert np.array_equal(reader.numpy(), before)  # it had been asked for before the write
    t[0] = 7
    t.numpy()
    b[0] = 7
    assert np.array_equal(whole, expected)
    t[(-1,) * t.ndim] = 3
    weft.realize(t)
    b[tuple(n - 1 for n in b.shape)] = 3
    assert np.array_equal(whole, expected)
    assert np.array_equal(t.numpy(), b)
    assert np.array_equal((t + 0).numpy(), b)


def test_what_lies_between_is_left_alone():
    whole = np.zeros((1000, 8), np.int64)
    columns = [weft.from_numpy(whole[:, i]) for i in range(8)]
    columns[0].add_(1)
    whole[:, 1] = 5
    columns[0].realize()
    assert whole[0].tolist() == [1, 5, 0, 0, 0, 0, 0, 0]
    failures = []

    def work(i):
        try:
            for _ in range(20):
                columns[i].add_(1).realize()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (whole == [21, 25, 20, 20, 20, 20, 20, 20]).all()


@pytest.mark.parametrize("make", [
    lambda a: np.broadcast_to(a[0], (5, 3, 4)),
    lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 2),
])  # fmt: skip
def test_elements_that_overlap(make):
    a = base()
    windows = make(a)
    t = weft.from_numpy(windows)
    a[...] += 1
    assert np.array_equal(t.numpy(), windows)
    t = weft.from_numpy(windows)
    t.add_(1)  # has no memory to go to
    assert np.array_equal(t.numpy(), windows + 1)
    assert np.array_equal(a, base() + 1)


def test_read_only_arrays_are_shared_and_never_written():
    a = base()
    a.flags.writeable = False
    for view in (a, a.T, a[:, ::2]):
        t = weft.from_numpy(view)
        assert address(t.numpy()) == address(view)
        assert not t.numpy().flags.writeable
        t.add_(1)
        assert np.array_equal(t.numpy(), view + 1)
    assert np.array_equal(a, base())


def test_memory_that_must_be_copied():
    swapped = np.arange(4).astype(">i4")
    odd = np.zeros(4 * 5, np.uint8)[1:17].view(np.int32)
    packed = np.zeros(4, [("a", "u1"), ("b", "i4")])["b"]
    for a in (swapped, odd, packed):
        t = weft.from_numpy(a)
        assert t.tolist() == a.tolist()
        with pytest.raises(weft.DTypeError, match="copy"):
            weft.asarray(a, copy=False)


def test_fields_of_records():
    records = np.zeros(4, [("a", "f4"), ("b", "i4")])
    t = weft.from_numpy(records["b"])
    records["b"] = 3
    assert t.tolist() == [3] * 4
    t.mul_(2).realize()
    assert records.tolist() == [(0.0, 6)] * 4


def test_empty_and_single_arrays():
    for a in (np.zeros((0, 3)).T, np.zeros((2, 3))[:, 3:], np.zeros(())[...],
              np.zeros((1, 4))[:, ::-4]):  # fmt: skip
        t = weft.from_numpy(a)
        assert t.shape == a.shape
        assert np.array_equal((t + 1).numpy(), a + 1)


VIEWS = [
    lambda t: t[2:4], lambda t: t[3], lambda t: t.T, lambda t: t[:, ::-1], lambda t: t[::2, 1::3],
    lambda t: t.reshape(5, 24), lambda t: t.T[1:3, 2], lambda t: t.unsqueeze(1).detach(),
    lambda t: t[1:2].expand(4, 12), lambda t: t[None],
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_computed_tensors_are_looked_at_in_place(view):
    t = (weft.arange(120).reshape(10, 12) + 0).realize()
    whole = t.numpy()
    out = view(t).numpy()
    first, last = address(whole), address(whole) + whole.nbytes
    assert first <= address(out) < last
    assert not out.flags.writeable
    assert np.shares_memory(out, whole)
    t.add_(1)  # values are immutable: the old memory stays
    assert np.array_equal(out, view(weft.arange(120).reshape(10, 12)).contiguous().numpy())
    assert np.array_equal(view(t).numpy(), out + 1)


def test_a_view_of_all_elements_is_computed_with_its_base():
    t = weft.arange(12) * 2
    view = t.reshape(3, 4).T.realize()
    assert np.shares_memory(view.numpy(), t.numpy())
    part = (weft.arange(12) * 3)[2:5]
    assert part.realize().tolist() == [6, 9, 12]


def test_a_view_without_strides_follows_numpy():
    a = np.arange(6.0).reshape(2, 3)
    t = weft.from_numpy(a)
    row, flat = t[1], t.T.reshape(-1)
    assert (row.tolist(), flat.tolist()) == ([3, 4, 5], [0, 3, 1, 4, 2, 5])
    row.realize()
    a[1] = 7
    assert row.tolist() == [7, 7, 7]
    assert (row + 0).tolist() == [7, 7, 7]
    assert t.T.reshape(-1).tolist() == [0, 7, 1, 7, 2, 7]


def test_views_of_shared_memory_may_be_written_by_numpy():
    a = np.zeros((3, 4))
    t = weft.from_numpy(a)
    t[1].numpy()[:] = 5
    t.T.numpy()[0] = 6
    assert a.tolist() == [[6, 0, 0, 0], [6, 5, 5, 5], [6, 0, 0, 0]]
    assert t.tolist() == a.tolist()
    assert not t[:1].expand(3, 4).numpy().flags.writeable


def test_gradients_through_strided_memory():
    a = np.arange(6.0).reshape(2, 3)
    for view in (a.T, a[:, ::2], a[::-1]):
        t = weft.from_numpy(view).requires_grad_()
        (t * t).sum().backward()
        assert np.array_equal(t.grad.numpy(), 2 * view)


def test_jit_reads_and_writes_strided_memory():
    double = weft.jit(lambda x: x * 2)

    @weft.jit
    def add(x):
        x.add_(1)
        return x * 1

    for make in (lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1, 1]):
        whole, expected = base(), base()
        view, other = make(whole), make(expected)
        t = weft.from_numpy(view)
        for _ in range(3):
            assert np.array_equal(double(t).numpy(), 2 * other)
            assert np.array_equal(add(t).numpy(), other + 1)
            t.realize()
            other += 1
            assert np.array_equal(whole, expected)
            whole += 1
            expected += 1


def test_the_buffer_protocol():
    t = weft.arange(6, dtype="int32").reshape(2, 3)
    memory = t.__buffer__(0)
    assert (memory.tolist(), memory.readonly) == ([[0, 1, 2], [3, 4, 5]], True)
    assert t.T.__buffer__(0).strides == (4, 12)
    with pytest.raises(BufferError, match="read-only"):
        t.__buffer__(1)
    a = np.zeros(3, np.int32)
    weft.from_numpy(a).__buffer__(1)[1] = 4
    assert a.tolist() == [0, 4, 0]
    with pytest.raises(BufferError, match="bfloat16"):
        weft.ones(2, dtype="bfloat16").__buffer__(0)


def test_dlpack_of_views():
    t = (weft.arange(12).reshape(3, 4) + 0).realize()
    for view in (t.T, t[1:], t[:, ::2]):
        out = np.from_dlpack(view)
        assert np.array_equal(out, view.numpy())
        assert np.shares_memory(out, t.numpy())
    back = t[::-1]
    assert np.array_equal(np.from_dlpack(back), back.numpy())  # some consumers crash: a copy
    with pytest.raises(BufferError, match="negative"):
        back.__dlpack__(copy=False)
    a = np.arange(12.0).reshape(3, 4)
    shared = weft.from_dlpack(a.T)
    shared.add_(1).realize()
    assert a[0, 0] == 1


@pytest.mark.parametrize("layout", ["transposed", "reversed", "steps", "inner", "overlapping"])
def test_products_of_strided_memory(layout):
    a = np.arange(120 * 130, dtype=np.float32).reshape(120, 130) % 7
    view = {
        "transposed": lambda: a.T, "reversed": lambda: a[::-1, ::-1], "steps": lambda: a[:, ::2],
        "inner": lambda: a[3:, 10:90],
        "overlapping": lambda: np.lib.stride_tricks.sliding_window_view(a[0], 40),
    }[layout]()  # fmt: skip
    other = np.ones((view.shape[1], 64), np.float32)
    expected = view @ other
    assert np.array_equal((weft.from_numpy(view) @ weft.from_numpy(other)).numpy(), expected)
    assert np.array_equal(weft.jit(lambda x, y: x @ y)(view, other).numpy(), expected)
