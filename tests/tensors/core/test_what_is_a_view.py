"""What shares memory with a tensor: every method that gives a view in PyTorch gives one here."""

import copy

import numpy as np
import pytest

import weft
from capabilities import module
from weft.errors import ShapeError

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

VIEWS = {
    "getitem": lambda L, x: x[1:],
    "ellipsis": lambda L, x: x[...],
    "empty tuple": lambda L, x: x[()],
    "none": lambda L, x: x[None, :, None],
    "int": lambda L, x: x[1],
    "numpy int": lambda L, x: x[np.int64(1)],
    "0-d tensor": lambda L, x: x[L.tensor(1)],
    "lazy 0-d tensor": lambda L, x: x[L.arange(4).sum() - 5],
    "0-d tensors": lambda L, x: x[L.tensor(1), L.tensor(-2)],
    "0-d array": lambda L, x: x[np.array(1)],
    "mixed": lambda L, x: x[L.tensor(1), None, ::2],
    "step": lambda L, x: x[::2, 1::2],
    "detach": lambda L, x: x.detach(),
    "data": lambda L, x: x.data,
    "view": lambda L, x: x.view(-1),
    "view of a type": lambda L, x: x.view(L.int32),
    "view of its type": lambda L, x: x.view(L.float32),
    "view_as": lambda L, x: x.view_as(L.zeros(6, 4)),
    "reshape": lambda L, x: x.reshape(2, 12),
    "reshape_as": lambda L, x: x.reshape_as(L.zeros(2, 12)),
    "flatten": lambda L, x: x.flatten(),
    "ravel": lambda L, x: x.ravel(),
    "unflatten": lambda L, x: x.unflatten(1, (3, 2)),
    "squeeze": lambda L, x: x[:1].squeeze(),
    "squeeze none": lambda L, x: x.squeeze(),
    "unsqueeze": lambda L, x: x.unsqueeze(1),
    "permute": lambda L, x: x.permute(1, 0),
    "transpose": lambda L, x: x.transpose(0, 1),
    "swapaxes": lambda L, x: x.swapaxes(0, 1),
    "t": lambda L, x: x.t(),
    "T": lambda L, x: x.T,
    "mT": lambda L, x: x.mT,
    "movedim": lambda L, x: x.movedim(0, 1),
    "moveaxis": lambda L, x: x.moveaxis(0, -1),
    "narrow": lambda L, x: x.narrow(1, 2, 3),
    "select": lambda L, x: x.select(1, -1),
    "split": lambda L, x: x.split(2)[0],
    "chunk": lambda L, x: x.chunk(2, 1)[1],
    "tensor_split": lambda L, x: x.tensor_split(3, 1)[2],
    "unbind": lambda L, x: x.unbind(1)[3],
    "diagonal": lambda L, x: x.diagonal(),
    "diagonal above": lambda L, x: x.diagonal(1),
    "diagonal below": lambda L, x: x.diagonal(-2),
    "diagonal as a row": lambda L, x: x.diagonal().view(1, 4),
    "diagonal of axes": lambda L, x: x.view(2, 2, 6).diagonal(1, 2, 0).view(2, -1),
    "diagonal of a part": lambda L, x: x[1:, ::2].diagonal().view(3),
    "unfold": lambda L, x: x.unfold(1, 2, 2),
    "unfold apart": lambda L, x: x.unfold(1, 2, 3),
    "unfold a column": lambda L, x: x.unfold(0, 2, 2)[:, 1],
    "unfold and unfold": lambda L, x: x.unfold(0, 2, 2).unfold(1, 3, 3),
    "one window": lambda L, x: x.unfold(1, 5, 3)[:, :1],
    "expand to its shape": lambda L, x: x.expand(4, 6),
    "expand by an axis": lambda L, x: x.expand(1, 4, 6),
    "expand_as": lambda L, x: x.expand_as(L.zeros(4, 6)),
    "broadcast_to": lambda L, x: x.broadcast_to((4, 6)),
    "to its type": lambda L, x: x.to(L.float32),
    "float": lambda L, x: x.float(),
    "contiguous": lambda L, x: x.contiguous(),
    "cpu": lambda L, x: x.cpu(),
    "requires_grad_": lambda L, x: x.requires_grad_(False),
    "of a view": lambda L, x: x[1:].T[::2].reshape(3, 3).diagonal(),
    "copy": lambda L, x: x.clone(),
    "copy of a transpose": lambda L, x: x.T.reshape(-1),
    "list": lambda L, x: x[[0, 1]],
    "mask": lambda L, x: x[x > 0],
    "true": lambda L, x: x[True],
    "flip": lambda L, x: x.flip(0),
    "roll": lambda L, x: x.roll(1, 0),
}


def _written(lib, name, double):
    x = lib.tensor(np.arange(24, dtype=np.float32).reshape(4, 6))
    if double:  # not realized when the view is made
        x = x * 1
    part = VIEWS[name](lib, x)
    part.add_(3)
    if part.ndim:
        part[..., :1] = 2
    return x.tolist(), part.tolist()


@pytest.mark.parametrize("name", VIEWS)
def test_writes_reach_the_same_elements(name):
    for double in (False, True):
        assert _written(weft, name, double) == _written(torch, name, double)


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("mask", "true")])
def test_writes_reach_the_same_elements_in_a_capture(name):
    @weft.jit
    def written(x):
        y = x * 1
        part = VIEWS[name](weft, y)
        part.add_(3)
        if part.ndim:
            part[..., :1] = 2
        return y, part

    found = written(weft.tensor(np.arange(24, dtype=np.float32).reshape(4, 6)))
    assert tuple(t.tolist() for t in found) == _written(torch, name, True)


def _copies(lib, name, order, kind):
    x = lib.tensor(np.arange(24, dtype=np.float32).reshape(4, 6))
    if kind == "parameter":
        x = lib.nn.Parameter(x)
    with lib.no_grad():
        part, other = VIEWS[name](lib, x.detach()), x.detach()[1]
        given = (x, part, other)
        made = copy.deepcopy([given[i] for i in order])
        one, view, row = (made[order.index(i)] for i in range(3))
        view.add_(100)
        row.mul_(2)
        one.sub_(7)
        return [t.tolist() for t in (one, view, row, *given)]


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["tensor", "parameter"])
@pytest.mark.parametrize("name", VIEWS)
def test_copies_share_what_their_originals_share(name, kind):
    for order in ((0, 1, 2), (2, 1, 0)):
        assert _copies(weft, name, order, kind) == _copies(torch, name, order, kind)


def test_elements_that_share_memory_are_not_written():
    x = weft.zeros(6)
    for view in (x.unfold(0, 3, 1), x.expand(2, 6), x[:1].expand(3)):
        with pytest.raises(ShapeError, match="one place in memory for each element"):
            view.add_(1)
    assert x.tolist() == [0] * 6


def test_gradients_pass_what_became_views():
    for read in (lambda x: x.unfold(1, 2, 2), lambda x: x.diagonal(1).view(3), lambda x: x[:, 1:4]):
        grads = []
        for lib in (torch, weft):
            x = lib.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), requires_grad=True)
            y = x * x
            read(y)[:1].mul_(2)
            (read(y) ** 2).sum().backward()
            grads.append(x.grad.tolist())
        assert grads[0] == grads[1]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_in_place_wrap(kind):
    values = (300, -1, -300, 70_000, 2**31, -(2**40), 2**62)
    for name in ("add_", "sub_", "mul_", "__iadd__", "__ixor__", "__iand__", "__ior__"):
        results = []
        for lib in (torch, weft):
            made = [lib.tensor([1, 100, 0], dtype=getattr(lib, kind)) for _ in values]
            results.append([getattr(t, name)(v).tolist()
                            for t, v in zip(made, values, strict=True)])  # fmt: skip
        assert results[0] == results[1], name


def test_what_has_no_elements_has_a_gradient():
    for join, shapes in (("cat", ((0, 3), (2, 3))), ("cat", ((0,), (2,))), ("stack", ((0,), (0,)))):
        grads = []
        for lib in (torch, weft):
            parts = [lib.ones(s, requires_grad=True) for s in shapes]
            (getattr(lib, join)(parts) * 2).sum().backward()
            grads.append([(tuple(p.grad.shape), p.grad.tolist()) for p in parts])
        assert grads[0] == grads[1]
