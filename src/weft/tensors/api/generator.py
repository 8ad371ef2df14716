"""Random numbers: counter-based, the same on every device and for every number of threads.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) maps a key
and a counter to 128 random bits without any state, so element i of a draw depends only on the seed,
on how many blocks were drawn before, and on i. A block gives four numbers of 32 bits or two of 64,
one after the other; a draw takes whole blocks. Key and counter enter the graph as a small buffer:
one plan serves every draw, and a captured function advances at each replay.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.expr import Expr, needs_size
from weft.ir.node import Dim, Node
from weft.ir.op import Op, Operation
from weft.locks import mutex
from weft.tensors.core.arguments import describe
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Generator", "default_generator", "initial_seed", "integers", "manual_seed",
           "normal_numbers", "permutation", "stream_of", "uniform_numbers"]  # fmt: skip

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_MASK64: Final = (1 << 64) - 1


class Generator:
    """A stream of random numbers (Philox-4x32-10): a 64-bit key, and how many blocks were drawn.

    Parameters
    ----------
    seed : int, optional
        The key, modulo 2**64; from the system's entropy if left out.

    Examples
    --------
    >>> a, b = weft.Generator(7), weft.Generator(7)
    >>> weft.rand(2, generator=a).tolist() == weft.rand(2, generator=b).tolist()
    True
    """

    __slots__ = ("_lock", "count", "key")

    def __init__(self, seed: int | None = None) -> None:
        self._lock = mutex()
        self.key = int.from_bytes(os.urandom(8), "little") if seed is None else seed & _MASK64
        self.count = 0

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed anew, and return the generator.

        Parameters
        ----------
        seed : int
            The key, modulo 2**64.

        Returns
        -------
        Generator
            This one.

        Raises
        ------
        CaptureError
            Inside of a captured function.

        Examples
        --------
        >>> weft.Generator().manual_seed(7).initial_seed()
        7
        """
        if state.capture is not None:
            state.capture.refuse("manual_seed()")
        self.key, self.count = infer.as_int(seed, "manual_seed") & _MASK64, 0
        return self

    def initial_seed(self) -> int:
        """Return the seed that the stream began with.

        Returns
        -------
        int
            The key.

        Examples
        --------
        >>> weft.Generator(7).initial_seed()
        7
        """
        return self.key

    def advance(self, blocks: int) -> int:
        """Take a number of blocks and return the first one's counter."""
        with self._lock:
            first = self.count
            self.count = first + blocks & _MASK64
        return first

    def state_array(self) -> np.ndarray[Any, Any]:
        """Return key and counter as two uint64."""
        return np.array([self.key, self.count], np.uint64)

    def _draw(self, blocks: Dim) -> tuple[Node, Node]:
        """Return the key and the counters of `blocks` blocks, as uint64 nodes."""
        if state.capture is not None:
            base, start = state.capture.draw(self, blocks)
        else:
            if isinstance(blocks, Expr):  # before the stream goes on by a number that nobody knows
                raise needs_size(f"the size {blocks!r}")
            first = self.advance(blocks)
            array = np.array([self.key, first], np.uint64)
            base, start = host.store(array, dt.uint64, ""), 0
        key = infer.expand(infer.slice_(base, [0], [1]), (blocks,))
        counter = infer.expand(infer.slice_(base, [1], [1]), (blocks,))
        offset = infer.iota(blocks, dt.uint64)
        if isinstance(start, Expr) or start:
            offset = _op(Op.ADD, offset, _full(offset, start))
        return key, _op(Op.ADD, counter, offset)

    def words(self, count: Dim, each: int) -> tuple[Node, Node, Node, Node]:
        """Return the four uint32 of as many blocks as give `count` numbers of `each` words."""
        per = 4 // each
        if not isinstance(count, Expr):  # a wrong kind would spoil all numbers that follow
            count = infer.as_int(count, "random")
        blocks = (count + (per - 1)) // per
        key, counter = self._draw(blocks)
        return philox(_low(counter), _high(counter), _low(key), _high(key))


def _op(op: Operation, *args: Node) -> Node:
    return infer.elementwise(op, *args)


def _full(like: Node, value: Scalar | Expr) -> Node:
    return infer.full(like.shape, value, like.dtype)


def _low(x: Node) -> Node:
    return infer.cast(x, dt.uint32)


def _high(x: Node) -> Node:
    return infer.cast(_op(Op.SHR, x, _full(x, 32)), dt.uint32)


def philox(c0: Node, c1: Node, k0: Node, k1: Node) -> tuple[Node, Node, Node, Node]:
    """Return the words of Philox-4x32-10 at the counter (c0, c1, 0, 0)."""
    c2 = c3 = _full(c0, 0)
    for i in range(_ROUNDS):
        if i:
            k0 = _op(Op.ADD, k0, _full(k0, _WEYL[0]))
            k1 = _op(Op.ADD, k1, _full(k1, _WEYL[1]))
        m0, m1 = (_full(c0, m) for m in _MULTIPLIERS)
        high0, low0 = _op(Op.MULHI, m0, c0), _op(Op.MUL, m0, c0)
        high1, low1 = _op(Op.MULHI, m1, c2), _op(Op.MUL, m1, c2)
        c0, c1 = _op(Op.XOR, _op(Op.XOR, high1, c1), k0), low1
        c2, c3 = _op(Op.XOR, _op(Op.XOR, high0, c3), k1), low0
    return c0, c1, c2, c3


def _spread(parts: Sequence[Node], count: Dim) -> Node:
    """Return the first `count` of the numbers of all blocks, those of a block side by side.

    They are kept in memory: whatever reads single ones would compute their block again.
    """
    blocks, m = parts[0].shape[0], len(parts)
    shape = (blocks, m)
    which = infer.expand(infer.iota(m), shape)
    wide = [infer.expand(infer.reshape(p, (blocks, 1)), shape) for p in parts]
    chosen = wide[-1]
    for i in range(m - 2, -1, -1):
        chosen = _op(Op.WHERE, _op(Op.EQ, which, _full(which, i)), wide[i], chosen)
    flat = infer.reshape(infer.contiguous(chosen), (blocks * m,))
    return infer.slice_(flat, [0], [count])


default_generator: Final = Generator()


def stream_of(generator: Generator | None) -> Generator:
    """Return the stream to draw from."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise DTypeError("random numbers", found=f"generator={describe(generator)}",
                         expected="a weft.Generator")
    return generator


def manual_seed(seed: int) -> Generator:
    """Start the default stream of random numbers anew.

    Parameters
    ----------
    seed : int
        Modulo 2**64.

    Returns
    -------
    Generator
        The default stream.

    Raises
    ------
    CaptureError
        Inside of a captured function.

    Examples
    --------
    >>> weft.manual_seed(7).initial_seed()
    7
    """
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """Return the seed of the default stream.

    Returns
    -------
    int
        What `manual_seed` was given, or a number from the system's entropy.

    Examples
    --------
    >>> _ = weft.manual_seed(7)
    >>> weft.initial_seed()
    7
    """
    return default_generator.initial_seed()


def _pair(high: Node, low: Node) -> Node:
    """Return the 64 bits of two words."""
    high, low = infer.cast(high, dt.uint64), infer.cast(low, dt.uint64)
    return _op(Op.OR, _op(Op.SHL, high, _full(high, 32)), low)


def _pairs(words: tuple[Node, Node, Node, Node]) -> list[Node]:
    return [_pair(words[0], words[1]), _pair(words[2], words[3])]


def uniform_numbers(stream: Generator, count: Dim, kind: DType) -> Node:
    """Return floats in [0, 1): every multiple of 2**-(precision) is equally likely."""
    bits = kind.mantissa + 1
    if kind is dt.float64:
        draws, wide = _pairs(stream.words(count, 2)), dt.float64
    else:
        draws, wide = list(stream.words(count, 1)), dt.float32
    found = []
    for draw in draws:
        whole = infer.cast(_op(Op.SHR, draw, _full(draw, draw.dtype.bits - bits)), wide)
        found.append(infer.cast(_op(Op.MUL, whole, _full(whole, 2.0**-bits)), kind))
    return _spread(found, count)


_SINE: Final = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)  # Cephes, single precision
_COSINE: Final = (-0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)


def _series(x: Node, factors: Sequence[float]) -> Node:
    """Return ``factors[0] * x + factors[1] * x**2 + ...``."""
    total = _full(x, factors[-1])
    for factor in reversed(factors[:-1]):
        total = _op(Op.ADD, _op(Op.MUL, total, x), _full(x, factor))
    return _op(Op.MUL, total, x)


def _circle(draw: Node, wide: DType) -> tuple[Node, Node]:
    """Return cosine and sine of an angle given in turns, as all bits of a word.

    The nearest quarter of a turn is the top bits: nothing has to be reduced, and the rest of the
    angle is at most an eighth.
    """
    bits = draw.dtype.bits
    signed = infer.cast(draw, dt.int64 if bits == 64 else dt.int32)
    quarter = _op(Op.ADD, signed, _full(signed, 1 << (bits - 3)))
    quarter = _op(Op.SHR, quarter, _full(signed, bits - 2))
    rest = _op(Op.SUB, signed, _op(Op.SHL, quarter, _full(signed, bits - 2)))
    x = infer.cast(rest, wide)
    x = _op(Op.MUL, x, _full(x, 2 * math.pi * 2.0**-bits))
    if wide is dt.float64:
        sine, cosine = _op(Op.SIN, x), _op(Op.COS, x)
    else:
        square = _op(Op.MUL, x, x)
        sine = _op(Op.ADD, x, _op(Op.MUL, x, _series(square, _SINE)))
        cosine = _op(Op.ADD, _full(x, 1.0), _series(square, _COSINE))

    def bit(value: Node, which: int) -> Node:
        return _op(Op.NE, _op(Op.AND, value, _full(value, which)), _full(value, 0))

    odd = bit(quarter, 1)
    first, second = _op(Op.WHERE, odd, sine, cosine), _op(Op.WHERE, odd, cosine, sine)
    left = bit(_op(Op.ADD, quarter, _full(quarter, 1)), 2)
    return (_op(Op.WHERE, left, _op(Op.NEG, first), first),
            _op(Op.WHERE, bit(quarter, 2), _op(Op.NEG, second), second))


def normal_numbers(stream: Generator, count: Dim, kind: DType) -> Node:
    """Return normal numbers, two for each point of the unit square.

    Ref: Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    if kind is dt.float64:
        words: list[Node] = _pairs(stream.words(count, 2))
        words[0] = _op(Op.SHR, words[0], _full(words[0], 11))
        wide, bits = dt.float64, 53
    else:
        words, wide, bits = list(stream.words(count, 1)), dt.float32, 32
    found = []
    for first, second in zip(words[::2], words[1::2], strict=True):
        u = infer.cast(first, wide)
        u = _op(Op.MUL, _op(Op.ADD, u, _full(u, 1.0)), _full(u, 2.0**-bits))  # (0, 1]
        radius = _op(Op.SQRT, _op(Op.MUL, _op(Op.LOG, u), _full(u, -2.0)))
        found += [infer.cast(_op(Op.MUL, radius, side), kind) for side in _circle(second, wide)]
    return _spread(found, count)


def integers(stream: Generator, count: Dim, low: int, span: int) -> Node:
    """Return int64 numbers from `low` on, `span` of them equally likely."""
    # The bias of the multiplication is below span / 2**32.
    draws = (list(stream.words(count, 1)) if span <= 1 << 20 else
             _pairs(stream.words(count, 2)))  # fmt: skip
    chosen = _spread([infer.cast(_op(Op.MULHI, d, _full(d, span)), dt.int64) for d in draws], count)
    return chosen if low == 0 else _op(Op.ADD, chosen, _full(chosen, low))


def permutation(stream: Generator, n: int) -> Node:
    """Return 0 to n - 1 in the order of 64 random bits each."""
    return infer.sort(_spread(_pairs(stream.words(n, 2)), n), 0)[1]


fill_docstrings(globals())
