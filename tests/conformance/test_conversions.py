"""Casts between all pairs of types and bitcasts, exhaustively where a type has few values."""

import numpy as np
import pytest
from values import assert_same, random, special

import oracle
from graphs import el
from weft.driver.check import scalars
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op


def all_values(d, rng):
    """Return every value of a type of at most 16 bits; else special, tied and random ones."""
    if d.is_bool:
        return np.array([False, True, True])
    if d.bits <= 16:
        return np.arange(1 << d.bits, dtype=f"u{d.itemsize}").view(d.numpy)
    values = [special(d), random(d, (1500,), rng)]
    if d.is_float:
        values += [v.astype(d.numpy) for v in boundaries()]
    else:
        edges = [1 << b for b in range(d.bits - 1)]
        near = {sign * e + k for e in edges for k in (-1, 0, 1) for sign in (1, -1)}
        values.append(np.array([v for v in sorted(near) if d.min <= v <= d.max], d.numpy))
        # halfway between neighbours of float32, bfloat16 and float16
        bits = rng.integers(12, d.bits - 1, 300)
        ties = [(1 << int(b)) + (1 << (int(b) - m - 1)) * int(k) + int(e)
                for b, m, k, e in zip(bits, rng.choice([7, 10], 300), rng.choice([1, 3], 300),
                                      rng.choice([-1, 0, 1], 300), strict=True)]
        values.append(np.array([v for v in ties if d.min <= v <= d.max], d.numpy))
    return np.concatenate(values)


def boundaries():
    """Yield doubles at and beside the ends of integer types, and ties of narrow floats."""
    ends = np.array([e for d in dt.ALL if d.is_integer for e in (d.min, d.max)], np.float64)
    steps = np.concatenate([ends - 1, ends - 0.5, ends, ends + 0.5, ends + 1])
    yield np.concatenate([np.nextafter(steps, -np.inf), steps, np.nextafter(steps, np.inf)])
    for d in dt.ALL:
        if not d.is_float or d.bits > 16:
            continue
        codes = np.arange(1 << (d.bits - 1), dtype=f"u{d.itemsize}")[:: 1 if d.bits == 8 else 97]
        with np.errstate(all="ignore"):
            low = codes.view(d.numpy).astype(np.float64)
            high = (codes + codes.dtype.type(1)).view(d.numpy).astype(np.float64)
            middle = (low + high) / 2
        middle = middle[np.isfinite(middle)]
        for sign in (1, -1):
            yield sign * middle
            yield sign * np.nextafter(middle, np.inf)
            yield sign * np.nextafter(middle, 0)


@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.name)
def test_casts(source, device, rng):
    column = all_values(source, rng)
    x = device.leaf(column)
    targets = [d for d in dt.ALL if d is not source]
    nodes = [infer.cast(x, d) for d in targets]
    wanted = [scalars.cast(column, d) if d.is_bool else _cast(column, d) for d in targets]
    for got, want, d in zip(device.compute(*nodes), wanted, targets, strict=True):
        assert_same(got, want, column, what=f"{source.name} to {d.name}")


def _cast(column, d):
    with np.errstate(all="ignore"):
        return scalars.cast(column, d)


@pytest.mark.grid
@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.name)
def test_cast_of_an_operation(source, device, rng):
    """A cast that is fused rounds and wraps like one on its own."""
    a, b = random(source, (1003,), rng), random(source, (1003,), rng)
    x = el(Op.XOR if source.is_bool else Op.SUB, device.leaf(a), device.leaf(b, shift=1))
    nodes = [infer.cast(infer.cast(x, d), e) for d in dt.ALL for e in (source, dt.float32)]
    for got, want, node in zip(device.compute(*nodes), oracle.evaluate(nodes), nodes, strict=True):
        assert_same(got, want, a, b, what=repr(node.args[:1]))


def test_bitcasts(device, rng):
    for source in dt.ALL[1:]:
        column = all_values(source, rng)
        x = device.leaf(column)
        twins = [d for d in dt.ALL[1:] if d.itemsize == source.itemsize and d is not source]
        made = device.compute(*(infer.bitcast(x, d) for d in twins))
        for got, d in zip(made, twins, strict=True):
            raw = np.dtype(f"u{d.itemsize}")  # a bitcast keeps even the payload of a NaN
            alike = [np.isnan(got.view(t).astype(float)) & np.isnan(column.view(t).astype(float))
                     for t in (d.numpy, source.numpy) if not device.keeps_payloads(d)]
            kept = ~np.any([np.zeros(got.shape, bool), *alike], axis=0)
            np.testing.assert_array_equal(got.view(raw)[kept], column.view(raw)[kept])


@pytest.mark.parametrize("source", [dt.float8_e5m2, dt.float16, dt.float32, dt.float64])
def test_single_quotients_become_float16(device, source):
    """LLVM computes one quotient in double, and has no library that rounds double to float16."""
    for size in (1, 3, 17):
        x = device.leaf(np.linspace(1, 3, size).astype(source.numpy))
        whole = infer.cast(infer.cast(el(Op.FLOORDIV, x, x), dt.float8_e5m2), dt.float16)
        plain = infer.cast(el(Op.FLOORDIV, x, x), dt.float16)
        for found in device.compute(whole, plain):
            assert_same(found, np.ones(size, np.float16))
