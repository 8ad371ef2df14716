"""Tensors that are written in place again and again stay small, whatever is read of them."""

import numpy as np
import pytest

import weft
from weft.ir import node as nd

READS = {
    "a part": lambda x: x[1:].numpy(), "an element": lambda x: x[0, 0].item(),
    "a list": lambda x: x[0].tolist(), "a diagonal": lambda x: x.diagonal().numpy(),
    "a sum": lambda x: x.sum().item(), "a product": lambda x: (x * 2).numpy(),
    "a text": lambda x: repr(x[0]), "a realized view": lambda x: x[:2].realize(),
    "a detached part": lambda x: x.detach()[::2].numpy(), "all": lambda x: x.numpy(),
}  # fmt: skip
WRITES = {
    "all": lambda x: x.add_(1), "a row": lambda x: x[0].add_(1),
    "an item": lambda x: x.__setitem__((1, 2), 3.0), "a view": lambda x: x.T[1:].mul_(0.5),
}  # fmt: skip
WIDE = 400  # nodes: some sixteen writes have fewer


@pytest.mark.parametrize("write", WRITES)
def test_graphs_stay_small(write):
    for name, read in READS.items():
        x, again = weft.ones(4, 4), np.ones((4, 4), np.float32)
        for _ in range(70):
            WRITES[write](x)
            read(x)
            nodes = 0 if x._node is None else len(nd.toposort([x._node]))
            assert nodes < WIDE, f"{name} after {write}: {nodes} nodes"
        for _ in range(70):
            if write == "all":
                again += 1
            elif write == "a row":
                again[0] += 1
            elif write == "an item":
                again[1, 2] = 3
            else:
                again.T[1:] *= 0.5
        np.testing.assert_allclose(x.numpy(), again, 1e-6)
