"""Words of twice the width of a float, for exact sums of products: one of 64 bits, or two."""

from __future__ import annotations

from weft.renderers.spirv.function import Term
from weft.renderers.spirv.integers import clz, high

__all__ = ["Pair", "Single"]


class Single:
    """A word of 64 bits; shifts to the right leave in the last bit whether others were lost."""

    def __init__(self, low: Term) -> None:
        self.low = low

    @classmethod
    def of(cls, word: Term) -> Single:
        """Return a word."""
        return cls(word)

    @classmethod
    def product(cls, x: Term, y: Term) -> Single:
        """Return the product of two words that have half the bits."""
        return cls(x * y)

    def left(self, count: int) -> Single:
        """Return it shifted to the left by a constant."""
        return Single(self.low << count)

    def left_by(self, count: Term) -> Single:
        """Return it shifted to the left; by 64 and more it is anything."""
        return Single(self.low << (count & 63))

    def right(self, count: Term) -> Single:
        """Return it shifted to the right by any count that is not negative."""
        n = count.lt(63).choose(count, 63)
        return Single(_jammed(self.low, n))

    def plus(self, other: Single) -> Single:
        """Return a sum."""
        return Single(self.low + other.low)

    def negated_where(self, condition: Term) -> Single:
        """Return its negative where a condition holds."""
        return Single(condition.choose(-self.low, self.low))

    def is_negative(self) -> Term:
        """Return its first bit."""
        return self.low.slt(0)

    def is_zero(self) -> Term:
        """Return whether no bit is set."""
        return self.low.eq(0)

    def zeros(self) -> Term:
        """Return how many zeros lead."""
        return clz(self.low.f, self.low).to("u64")

    def split(self, bits: int) -> tuple[Term, Term, Term]:
        """Return the first bits, the rest of them, and what half of the last one is there."""
        f = self.low.f
        drop = 64 - bits
        return (self.low >> drop, self.low & ((1 << drop) - 1),
                f.const("u64", 1 << (drop - 1)))  # fmt: skip


class Pair(Single):
    """Two words: 128 bits."""

    def __init__(self, low: Term, top: Term | None = None) -> None:
        super().__init__(low)
        self.top = low.f.const("u64", 0) if top is None else top

    @classmethod
    def product(cls, x: Term, y: Term) -> Pair:
        """Return the product of two words."""
        return cls(x * y, high(x, y))

    def left(self, count: int) -> Pair:
        """Return it shifted to the left by a constant."""
        if count >= 64:
            return Pair(self.low.f.const("u64", 0), self.low << (count - 64))
        return Pair(self.low << count, (self.top << count) | (self.low >> (64 - count)))

    def left_by(self, count: Term) -> Pair:
        """Return it shifted to the left by less than 128."""
        n = count & 63
        moved = (self.top << n) | ((self.low >> 1) >> (n ^ 63))
        far = count.lt(64)
        return Pair(far.choose(self.low << n, 0), far.choose(moved, self.low << n))

    def right(self, count: Term) -> Pair:
        """Return it shifted to the right by any count that is not negative."""
        near = count.lt(64)
        n = count.lt(127).choose(count, 127) & 63
        f = self.low.f
        mask = (f.const("u64", 1) << n) - 1
        moved = (self.low >> n) | ((self.top << 1) << (n ^ 63))
        lost = near.choose(self.low & mask, self.low | (self.top & mask))
        low = near.choose(moved, self.top >> n) | lost.ne(0).choose(f.const("u64", 1), 0)
        return Pair(low, near.choose(self.top >> n, 0))

    def plus(self, other: Single) -> Pair:
        """Return a sum."""
        assert isinstance(other, Pair)
        low = self.low + other.low
        carry = low.lt(self.low).choose(low.f.const("u64", 1), 0)
        return Pair(low, self.top + other.top + carry)

    def negated_where(self, condition: Term) -> Pair:
        """Return its negative where a condition holds."""
        low = -self.low
        top = ~self.top + low.eq(0).choose(low.f.const("u64", 1), 0)
        return Pair(condition.choose(low, self.low), condition.choose(top, self.top))

    def is_negative(self) -> Term:
        """Return its first bit."""
        return self.top.slt(0)

    def is_zero(self) -> Term:
        """Return whether no bit is set."""
        return (self.low | self.top).eq(0)

    def zeros(self) -> Term:
        """Return how many zeros lead."""
        f = self.low.f
        return self.top.ne(0).choose(clz(f, self.top), clz(f, self.low) + 64).to("u64")

    def split(self, bits: int) -> tuple[Term, Term, Term]:
        """Return the first bits, the rest of them, and what half of the last one is there."""
        f = self.low.f
        drop = 64 - bits
        lost = self.low.ne(0).choose(f.const("u64", 1), 0)
        return (self.top >> drop, (self.top & ((1 << drop) - 1)) | lost,
                f.const("u64", 1 << (drop - 1)))  # fmt: skip


def _jammed(x: Term, count: Term) -> Term:
    mask = (x.f.const("u64", 1) << count) - 1
    return (x >> count) | (x & mask).ne(0).choose(x.f.const("u64", 1), 0)
