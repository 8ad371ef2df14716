"""Kernel types of `bench/shapes.py` that are attention: forward, causal, masked, and gradients.

The arrays of a type whose function has the attribute ``bfloat16`` are of that type in all systems;
their values fit it.
"""

import functools

import torch
import torch.nn.functional as F

import weft

LEAST, MOST = 1 << 16, 1 << 27  # products of queries and keys


def make_attention(draw, masked=False, shared=1, same=False):
    batch, heads, rows, keys, size = draw.sizes(
        [(1, 8), (1, 16), (1, 1500), (1, 1500), (16, 256)], LEAST, MOST)
    if same:
        keys = rows
    q = draw.normal(batch, heads * shared, rows, size)
    k, v = (draw.normal(batch, heads, keys, size) for _ in range(2))
    if masked:
        mask = draw.rng.random((rows, keys)) < 0.7
        mask[:, 0] = True
        return (q, k, v, mask), {}
    return (q, k, v), {}


def make_gradient(draw, causal=False):
    (q, k, v), _ = make_attention(draw, same=causal)
    return (q, k, v, draw.normal(*q.shape)), {}


def make_narrow(draw, **options):
    arrays, _ = make_attention(draw, **options)
    return tuple(torch.from_numpy(a).bfloat16().float().numpy() for a in arrays), {}


def make_narrow_gradient(draw, causal=False):
    q, k, v = make_narrow(draw, same=causal)[0]
    return (q, k, v, torch.from_numpy(draw.normal(*q.shape)).bfloat16().float().numpy()), {}


def ours(**options):
    """Return attention in Weft."""
    def run(q, k, v, mask=None):
        return q.scaled_dot_product_attention(k, v, mask, **options)
    return run


def theirs(**options):
    """Return attention in PyTorch."""
    def run(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask, **options)
    return run


def our_gradient(**options):
    def run(q, k, v, g):
        with weft.enable_grad():
            inputs = [t.detach().requires_grad_() for t in (q, k, v)]
            out = inputs[0].scaled_dot_product_attention(*inputs[1:], **options)
            return weft.grad(out, inputs, g)
    return run


def their_gradient(**options):
    def run(q, k, v, g):
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_() for t in (q, k, v)]
            out = F.scaled_dot_product_attention(*inputs, **options)
            return torch.autograd.grad(out, inputs, g)
    return run


def narrow(run):
    run.bfloat16 = True
    return run


TYPES = {
    "attention": (make_attention, ours(), theirs(), None),
    "attention causal": (functools.partial(make_attention, same=True), ours(is_causal=True),
                         theirs(is_causal=True), None),
    "attention masked": (functools.partial(make_attention, masked=True), ours(), theirs(), None),
    "attention grouped": (functools.partial(make_attention, shared=3), ours(enable_gqa=True),
                          theirs(enable_gqa=True), None),
    "attention gradient": (make_gradient, our_gradient(), their_gradient(), None),
    "attention causal gradient": (functools.partial(make_gradient, causal=True),
                                  our_gradient(is_causal=True),
                                  their_gradient(is_causal=True), None),
    "bfloat16 attention": (make_narrow, narrow(ours()), theirs(), None),
    "bfloat16 attention causal": (functools.partial(make_narrow, same=True),
                                  narrow(ours(is_causal=True)), theirs(is_causal=True), None),
    "bfloat16 attention gradient": (make_narrow_gradient, narrow(our_gradient()),
                                    their_gradient(), None),
    "bfloat16 attention causal gradient": (
        functools.partial(make_narrow_gradient, causal=True),
        narrow(our_gradient(is_causal=True)), their_gradient(is_causal=True), None),
}
