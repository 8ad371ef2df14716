"""numba's types where NumPy is told them: functions under ``njit`` stay Python on the host."""

from typing import Any

import numpy as np
import pytest

import weft.compat as numba

NAMES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
         "float32", "float64", "complex64", "complex128", "boolean", "intp", "uintp")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_numpy_takes_the_types(name: str) -> None:
    kind: Any = getattr(numba, name)

    @numba.njit
    def made(x: Any) -> Any:
        a = np.zeros(3, dtype=kind)
        a[:] = x.astype(kind)
        return a

    found = made(np.array([0.0, 1.0, 3.0]))
    expected = np.dtype({"boolean": "bool"}.get(name, name))
    assert found.dtype == expected
    np.testing.assert_array_equal(found, np.array([0.0, 1.0, 3.0]).astype(expected))
