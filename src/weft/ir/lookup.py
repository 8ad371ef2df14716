"""LOOKUP: a number from a small constant table, which some targets keep in registers.

A table has 16 or 32 float32 numbers. An expression carries it as its bytes in hexadecimal, little
end first, so that the text of a kernel is complete and equal tables are one.
"""

import struct
from collections.abc import Sequence
from typing import Final

from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir.expr import Expr, make
from weft.ir.op import Op

__all__ = ["SIZES", "is_table", "lookup", "values_of"]

SIZES: Final = (16, 32)  # numbers of a table: one register of AVX-512, or two


def lookup(index: Expr, values: Sequence[float]) -> Expr:
    """Return ``values[index % len(values)]`` as float32, for words and 16 or 32 numbers.

    Raises
    ------
    DTypeError
        If the index is not of uint32 or the table of another length.
    """
    if index.dtype is not dt.uint32 or len(values) not in SIZES:
        raise DTypeError("lookup", found=f"{index.dtype.text} and {len(values)} numbers",
                         expected="an index of u32 and 16 or 32 numbers")
    table = struct.pack(f"<{len(values)}f", *values).hex()
    return make(Op.LOOKUP, dt.float32, (index,), table, index.lanes)


def is_table(attr: object) -> bool:
    """Return whether the attribute of a LOOKUP is a table."""
    if not isinstance(attr, str) or len(attr) // 8 not in SIZES or len(attr) % 8:
        return False
    return all(c in "0123456789abcdef" for c in attr)


def values_of(attr: str) -> tuple[float, ...]:
    """Return the numbers of the table of a LOOKUP."""
    return struct.unpack(f"<{len(attr) // 8}f", bytes.fromhex(attr))
