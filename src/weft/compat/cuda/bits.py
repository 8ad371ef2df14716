"""Numbers with the bits of other numbers, for kernels."""

from __future__ import annotations

from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType

__all__ = ["Bits", "double_as_longlong", "float_as_int", "half_as_short", "int_as_float",
           "longlong_as_double", "short_as_half"]  # fmt: skip


class Bits:
    """A number with the bits of another one."""

    def __init__(self, name: str, source: DType, target: DType) -> None:
        self.__name__, self._source, self._target = name, source, target

    def __weft_call__(self, reader: Any, args: list[Any], node: Any) -> Any:
        """Return what a call in a kernel gives."""
        if len(args) != 1:
            raise reader.wrong(node, f"{self.__name__} takes one argument, found {len(args)}")
        from weft.lang.core import scalars

        x = scalars.convert(reader.scalar(args[0], node), self._source)
        return ex.bitcast(x, self._target)


float_as_int: Final[Any] = Bits("float_as_int", dt.float32, dt.int32)
int_as_float: Final[Any] = Bits("int_as_float", dt.int32, dt.float32)
double_as_longlong: Final[Any] = Bits("double_as_longlong", dt.float64, dt.int64)
longlong_as_double: Final[Any] = Bits("longlong_as_double", dt.int64, dt.float64)
half_as_short: Final[Any] = Bits("half_as_short", dt.float16, dt.int16)
short_as_half: Final[Any] = Bits("short_as_half", dt.int16, dt.float16)
