"""What a device can do, as data: passes and strategies ask it and never the device's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.op import BY_NAME, Op, Operation
from weft.ir.record import Record
from weft.store.digest import blake2b

__all__ = ["ARRAY_BYTES", "ASSUMED", "LARGE_BYTES", "MEASURED", "PRIVATE_BYTES", "REPORTED",
           "STACK_BYTES", "Target", "native_operations"]

REPORTED: Final = "reported"  # by the driver, the operating system or the processor
MEASURED: Final = "measured"  # by us
ASSUMED: Final = "assumed"  # nobody says; a safe value
ARRAY_BYTES: Final = 512 << 10  # of one private array
PRIVATE_BYTES: Final = 1 << 20  # of all private arrays of one function
LARGE_BYTES: Final = 12 << 20  # of all, where large panels are worth as much
STACK_BYTES: Final = 64 << 10  # of them on a stack; threads of other programs may have 128 KiB


class Target(Record):
    """One kind of device.

    Attributes
    ----------
    name : str
        Family that a user writes (``cpu``).
    arch : str
        Instruction set (``x86_64``, ``sm_90``).
    cpu : str
        Processor as LLVM names it; empty for a generic one.
    features : tuple of str
        LLVM features with their sign, sorted.
    vector_bytes : int
        Width of the vector registers that code should use, in bytes.
    vector_registers : int
        How many of them.
    whole_vectors : bool
        Whether a unit takes a vector of 512 bits whole, and half of one as long as that; where it
        does not, a vector is worked on in two halves.
    line_bytes, l1_bytes, l2_bytes, l3_bytes : int
        Cache line and capacities in bytes: L1 data and L2 of one core, L3 as shared; 0 for none.
    cores : int
        Cores that this process may use.
    memory_bytes : int
        Device memory in bytes; 0 if nobody says.
    operations : frozenset of (str, str)
        Names of the (op, dtype) that need no decomposition.
    native_conversions : frozenset of str
        Narrow floats (short names) that instructions convert from and to float32.
    ieee_extremes : bool
        Whether one instruction gives the IEEE 754 maximum, NaN and signed zeros included.
    sources : tuple of (str, str)
        For each figure, who says so: `REPORTED`, `MEASURED` or `ASSUMED`.
    """

    name: str
    arch: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    vector_bytes: int = 16
    vector_registers: int = 16
    whole_vectors: bool = False
    line_bytes: int = 64
    l1_bytes: int = 32 << 10
    l2_bytes: int = 256 << 10
    l3_bytes: int = 0
    cores: int = 1
    memory_bytes: int = 0
    operations: frozenset[tuple[str, str]] = frozenset()
    native_conversions: frozenset[str] = frozenset()
    ieee_extremes: bool = False
    sources: tuple[tuple[str, str], ...] = ()

    def supports(self, op: Operation, dtype: DType) -> bool:
        """Return whether `op` on operands of `dtype` needs no decomposition.

        For a CAST, `dtype` is the narrower float of the two if there is one below 32 bits, and
        the partner is float32; every other pair goes by way of float32.
        """
        return (op.name, dtype.text) in self.operations

    def without(self, operations: Iterable[Operation], dtype: DType) -> Target:
        """Return the target with operations on a type to be decomposed."""
        left = self.operations - {(op.name, dtype.text) for op in operations}
        return self.replace(operations=left)

    def lanes(self, dtype: DType) -> int:
        """Return how many elements fill a vector register."""
        return max(self.vector_bytes // dtype.itemsize, 1)

    def source(self, field: str) -> str:
        """Return who says what `field` is: reported, measured or assumed."""
        return dict(self.sources).get(field, ASSUMED)

    def fingerprint(self) -> str:
        """Return a digest of everything that changes the code made for this target.

        Memory and core counts are left out: code depends on the threads it is made for, which
        callers add.
        """
        parts = [self.name, self.arch, self.cpu, ",".join(self.features), str(self.vector_bytes),
                 str(self.vector_registers), str(self.whole_vectors),
                 ",".join(sorted(self.native_conversions)),
                 f"{self.line_bytes},{self.l1_bytes},{self.l2_bytes},{self.l3_bytes}"]
        parts += [f"{op}:{d}" for op, d in sorted(self.operations)]
        return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


_EVERYWHERE: Final = (Op.CONST, Op.VAR, Op.VARIABLE, Op.WHERE, Op.CAST, Op.BITCAST, Op.BROADCAST,
                      Op.EXTRACT, Op.HALF, Op.REVERSE, Op.SLIDE, Op.SHUFFLE,
                      Op.BITS, Op.WORDS, Op.UNLIKELY)  # fmt: skip
# Rows that hardware with IEEE floats and the usual integer units has.
_FLOAT: Final = (Op.NEG, Op.ABS, Op.SQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.ADD, Op.SUB,
                 Op.MUL, Op.DIV, Op.COPYSIGN, Op.MIN, Op.MAX, Op.LT, Op.LE, Op.EQ, Op.NE, Op.MAD,
                 Op.FMOD, Op.RAMP)  # fmt: skip
_INTEGER: Final = (Op.NEG, Op.NOT, Op.ABS, Op.POPCOUNT, Op.CLZ, Op.ADD, Op.SUB, Op.MUL,
                   Op.FLOORDIV, Op.MOD, Op.FMOD, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.SHL,
                   Op.SHR, Op.MULHI, Op.LT, Op.LE, Op.EQ, Op.NE, Op.RAMP, Op.PLACES)  # fmt: skip
_BOOL: Final = (Op.NOT, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.LT, Op.LE, Op.EQ, Op.NE)


def native_operations(
    floats: Iterable[DType] = (dt.float32, dt.float64), without: Iterable[Operation] = (),
    dots: Iterable[Operation] = (), scales: bool = False, packs: Iterable[DType] = (),
    numbers: bool = False, tables: bool = False,
) -> frozenset[tuple[str, str]]:
    """Return the table of an ordinary processor: integers of every width, and `floats`.

    What is left to decompositions on every device: the transcendental functions, integer POW,
    FLOORDIV and MOD of floats, RSQRT, RECIPROCAL, SIGMOID and arithmetic on narrow floats. The
    dot products that instructions of the processor compute are given as `dots`;
    `scales` says whether one multiplies by a power of two, `packs` of which elements one brings
    chosen lanes to the front of a vector, `numbers` whether some choose between numbers and NaN,
    `tables` whether one finds numbers in tables that are in registers.
    """
    table = {(op.name, d.text) for op in _EVERYWHERE for d in dt.ALL}
    table |= {(op.name, d.text) for op in _INTEGER for d in dt.ALL if d.is_integer}
    table |= {(op.name, d.text) for op in _FLOAT for d in floats}
    table |= {(op.name, "bool") for op in _BOOL}
    table |= {(op.name, dt.uint32.text) for op in dots}
    table |= {(Op.SCALB.name, d.text) for d in floats if scales}
    table |= {(op.name, d.text) for op in (Op.MAXNUM, Op.MINNUM, Op.NANOF) for d in floats
              if numbers}
    table |= {(Op.LOOKUP.name, dt.uint32.text)} if tables else set()
    table |= {(Op.COMPRESS.name, d.text) for d in packs}
    table -= {(op.name, d.text) for op in without for d in dt.ALL}
    assert all(name in BY_NAME for name, _ in table)
    return frozenset(table)
