"""Which part of stored memory a copy of a view reads: no more than it shows, where that pays."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.driver.context import context
from weft.errors import DeviceError
from weft.graph.stored_reads import part_of_leaf, read_parts
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import int32
from weft.ir.node import Storage
from weft.ir.op import Op
from weft.runtimes.memory.stored_file import StoredFile

SHAPE = (6, 4, 10)


@pytest.fixture
def leaf(tmp_path):
    """A leaf on disk, and its values."""
    values = np.arange(240, dtype=np.int32)
    values.tofile(tmp_path / "f")
    made = weft.from_file(tmp_path / "f", weft.int32, SHAPE)
    return made._read(), values.reshape(SHAPE)


def moved(rng, node, array):
    """Return a view of a node by a random move, and of an array by the same."""
    kind = rng.choice(["slice", "slice", "permute", "reshape", "expand", "pad", "detach"])
    shape = array.shape
    if kind == "slice" and array.size:
        steps = [int(rng.choice([1, 1, 1, 2, -1, -2])) for _ in shape]
        starts = [int(rng.integers(n)) for n in shape]
        counts = [int(rng.integers(1, ((n - 1 - s) // p if p > 0 else s // -p) + 2))
                  for n, s, p in zip(shape, starts, steps, strict=True)]
        places = [s + p * np.arange(c) for s, p, c in zip(starts, steps, counts, strict=True)]
        return infer.slice_(node, starts, counts, steps), array[np.ix_(*places)]
    if kind == "permute":
        axes = [int(a) for a in rng.permutation(len(shape))]
        return infer.permute(node, axes), array.transpose(axes)
    if kind == "reshape":
        flat = [array.size] if rng.random() < 0.3 else [*shape, 1] if rng.random() < 0.5 else [
            shape[0] * shape[1], *shape[2:]] if len(shape) > 1 else [1, *shape]
        return infer.reshape(node, flat), array.reshape(flat)
    if kind == "expand" and array.size < 500:
        return infer.expand(node, (2, *shape)), np.broadcast_to(array, (2, *shape))
    if kind == "pad" and array.size < 500:
        sides = [(1, 0)] * len(shape)
        return (infer.pad(node, [1] * len(shape), [0] * len(shape), 7),
                np.pad(array, sides, constant_values=7))
    return infer.detach(node), array


@pytest.mark.parametrize("seed", seeds(3))
def test_A11_random_views_are_read_as_numpy_has_them(leaf, seed):
    """By a realize, and by a plan for arrays that are known later, as captured functions have."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        node, array = leaf
        for _ in range(int(rng.integers(1, 6))):
            node, array = moved(rng, node, array)
        view = weft.Tensor._from_node(node)
        np.testing.assert_array_equal(view.numpy(), array)
        run = weft.driver.compile([infer.copy(node, "cpu")], [])
        (made,) = run.call((), [s.buffer for s in run.captured])
        np.testing.assert_array_equal(np.asarray(made.view()[:array.nbytes]).view(np.int32),
                                      array.ravel())


@pytest.mark.parametrize(("cut", "count"), [
    (lambda x: x[2:5], 120), (lambda x: x[3], 40), (lambda x: x[1, 2, 3], 1), (lambda x: x[0:0], 0),
    (lambda x: x[2:4].reshape(80)[7:9], 2), (lambda x: x[::2], 120), (lambda x: x[:, 1:3, 2:4], 24),
    (lambda x: x[::-1], 240), (lambda x: x.permute(1, 0, 2)[0], 60), (lambda x: x[..., 4], 24),
    (lambda x: x.detach()[1:2].contiguous(), 40),
])  # fmt: skip
def test_A11_exactly_what_a_view_shows_is_read(leaf, cut, count, monkeypatch):
    read = []
    inner = StoredFile._fill
    monkeypatch.setattr(StoredFile, "_fill", lambda self, offset, target: (
        read.append(target.nbytes), inner(self, offset, target)))
    view = cut(weft.Tensor._from_node(leaf[0]))
    there = view.to("cpu").realize()
    assert sum(read) == count * 4
    assert there._storage().buffer.nbytes == count * 4
    read.clear()
    if count == 1:
        view.item()
    view.numpy()
    assert sum(read) == count * 4 * (1 + (count == 1))


def test_A11_elements_far_apart_are_read_with_what_is_between(tmp_path):
    """A call of the system for each of them would take longer."""
    values = np.arange(90_000, dtype=np.int32)
    values.tofile(tmp_path / "f")
    x = weft.from_file(tmp_path / "f", weft.int32, (3000, 30))
    np.testing.assert_array_equal(x.T.numpy(), values.reshape(3000, 30).T)
    np.testing.assert_array_equal(x[:, 4].numpy(), values.reshape(3000, 30)[:, 4])
    np.testing.assert_array_equal(x.flip(0)[:, 5:7].numpy(),
                                  values.reshape(3000, 30)[::-1, 5:7])


def test_plans_do_not_depend_on_where_a_part_begins(leaf):
    x = weft.Tensor._from_node(leaf[0])
    (x[0].to("cpu") * 3).numpy()
    before = weft.compile_count()
    for k in range(1, 6):
        np.testing.assert_array_equal((x[k].to("cpu") * 3).numpy(), leaf[1][k] * 3)
    assert weft.compile_count() == before


def test_parts_of_arrays_that_are_known_later(leaf):
    """They are slices of the flat leaf, and what else is there is seen on the other side."""
    flat = nd.base(leaf[0])
    (root,) = read_parts([infer.copy(infer.slice_(leaf[0], (2, 0, 0), (3, 4, 10)), "cpu")])
    copied = nd.base(root)
    assert copied.op is Op.COPY
    assert part_of_leaf(copied.args[0]) == (flat, 80)
    assert copied.args[0].shape == (120,)
    assert part_of_leaf(flat) is None
    (root,) = read_parts([infer.copy(infer.permute(leaf[0], (2, 0, 1)), "cpu")])
    assert nd.toposort([root])[0] is flat


def test_what_is_not_stored_is_left_alone():
    here = nd.buffer(Storage(int32, 12, None, "cpu"))
    roots = [infer.copy(infer.slice_(here, (2,), (3,)), "interpreter"), infer.reshape(here, (3, 4))]
    assert read_parts(roots) == roots


def test_results_stay_where_they_are_stored(leaf):
    context("disk")
    node, array = leaf
    view = infer.slice_(node, (1, 0, 0), (2, 4, 10))
    found, other = weft.driver.realize([view, infer.copy(node, "cpu")])
    assert (found.device, other.device) == ("disk", "cpu")
    np.testing.assert_array_equal(weft.Tensor._from_node(found).numpy(), array[1:3])
    assert read_parts([node]) == [node]
    with pytest.raises(DeviceError, match=r"x\.to\('cpu'\)"):
        read_parts([view])  # a plan has no memory there for it
