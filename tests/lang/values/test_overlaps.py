"""Assignments between parts of one array: as if all elements were read before any is written."""

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import LaunchError

REVERSED = "own elements in reverse order"
RECORD = np.dtype([("x", np.float32), ("y", np.int64), ("z", np.complex64)])

MOVES = {
    "rows down": ((6, 5), "a[1:, :] = a[:-1, :]"),
    "rows up": ((6, 5), "a[:-1, :] = a[1:, :]"),
    "both axes": ((6, 5), "a[1:, :-1] = a[:-1, 1:]"),
    "three axes": ((3, 4, 5), "a[1:, :-2, 1:] = a[:-1, 2:, :-1]"),
    "backwards": ((6, 5), "a[:0:-1, ::-1] = a[-2::-1, ::-1]"),
    "every second to all": ((9,), "a[0:6:2] = a[1:4]"),
    "all to every second": ((9,), "a[1:4] = a[0:6:2]"),
    "steps two and three": ((20,), "a[1:17:3] = a[4:16:2]"),
    "steps down": ((20,), "a[16:0:-3] = a[13:1:-2]"),
    "steps by axis": ((9, 9), "a[1:4, 0:6:2] = a[0:6:2, 1:4]"),
    "a row for all": ((4, 5), "a[:, 1:] = a[2, :-1]"),
    "a row seen as one": ((4, 5), "a[:, 1:] = a[2, None, :-1]"),
    "a column for all": ((4, 5), "a[1:, :] = a[:-1, 3, None]"),
    "a row from a column": ((5, 5), "a[3, 1:] = a[1:, 0]"),
    "a column from a row": ((5, 5), "a[1:, 4] = a[2, 1:]"),
    "a function": ((9,), "np.add(a[1:], a[:-1], a[1:])"),
    "a function of rows": ((5, 4), "np.multiply(a[:-1], a[1:], a[1:])"),
    "a function of one row": ((5, 4), "np.subtract(a[2, ::1], a, a)"),
}
UNORDERED = {"steps by axis", "a row for all", "a row seen as one", "a column for all"}
LAYOUTS = {
    "rows": lambda x: x,
    "columns": np.asfortranarray,
    "turned": lambda x: x[::-1],
    "spread": lambda x: np.repeat(x, 2, axis=0)[::2],
}


def made(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).fields is None:
        return (100 * rng.normal(size=shape) + (1j if dtype is complex else 0)).astype(dtype)
    x = np.zeros(shape, dtype)
    for name in dtype.names:
        x[name] = made(rng, shape, dtype[name].type)
    return x


def read_first(statement: str, a: Any, *numbers: int) -> None:
    """Run an assignment in NumPy, which itself mistakes unlike steps along one axis (2.3)."""
    target, equals, value = statement.partition(" = ")
    names = dict(zip("nm", numbers, strict=False))
    exec(f"{target} = ({value}).copy()" if equals else statement, {"np": np, "a": a, **names})


def kernel_of(statement: str, *names: str) -> Any:
    space: dict[str, Any] = {"np": np, "weft": weft}
    text = f"def kernel({', '.join(('a', *names))}):\n    {statement}\n"
    exec(text, space)
    return weft.kernel(space["kernel"])


def held_against_numpy(statement: str, a: np.ndarray[Any, Any], *numbers: int) -> None:
    kernel = kernel_of(statement, *"nm"[:len(numbers)])
    wanted, before = a.copy(), a.copy()
    read_first(statement, wanted, *numbers)
    for run in (kernel[1, 1], weft.sanitize(kernel, 1, 1)):
        a[...] = before
        run(a, *numbers)
        np.testing.assert_array_equal(a, wanted)


@pytest.mark.grid
@pytest.mark.parametrize(("move", "dtype"), [
    (move, dtype) for move in MOVES for dtype in (np.float64, np.int8, complex, RECORD)
    if dtype is not RECORD or "np." not in MOVES[move][1]], ids=str)
def test_parts_move_over_each_other(move: str, dtype: Any) -> None:
    shape, statement = MOVES[move]
    x = made(np.random.default_rng(3), shape, dtype)
    if dtype is RECORD and move in UNORDERED:
        with pytest.raises(LaunchError, match=REVERSED):
            kernel_of(statement)[1, 1](x)
    else:
        held_against_numpy(statement, x)


@pytest.mark.grid
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("move", ["rows down", "rows up", "both axes", "three axes", "backwards"])
def test_parts_move_in_arrays_of_any_strides(move: str, layout: str) -> None:
    """In memory of one axis the places go by their addresses."""
    shape, statement = MOVES[move]
    x = made(np.random.default_rng(4), shape, np.float64)
    held_against_numpy(statement, LAYOUTS[layout](x))


@pytest.mark.grid
@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("m", [0, 1, 3])
def test_parts_move_by_distances_of_the_launch(n: int, m: int) -> None:
    x = made(np.random.default_rng(5), (7, 6), np.float32)
    held_against_numpy("a[n:, :6 - m] = a[:7 - n, m:]", x, n, m)
    held_against_numpy("a[:7 - n, m:] = a[n:, m:]", x, n, m)


@weft.kernel
def turned_in_place(a, z):
    mine = weft.gpu.local.array((4, 4), np.float64)
    rotated = weft.gpu.local.array(5, np.complex128)
    for i in range(4):
        for j in range(4):
            mine[i, j] = a[i, j]
    for i in range(5):
        rotated[i] = z[i]
    mine[:, :] = mine.T
    mine[0, :] = mine[0, ::-1]
    rotated[:] = rotated[::-1]
    for i in range(4):
        for j in range(4):
            a[i, j] = mine[i, j]
    for i in range(5):
        z[i] = rotated[i]


def test_what_no_order_serves_goes_through_a_copy_if_it_is_small() -> None:
    rng = np.random.default_rng(6)
    a, z = made(rng, (4, 4), np.float64), made(rng, (5,), complex)
    for run in (turned_in_place[1, 1], weft.sanitize(turned_in_place, 1, 1)):
        x, y = a.copy(), z.copy()
        run(x, y)
        wanted = a.T.copy()
        wanted[0] = wanted[0, ::-1].copy()
        np.testing.assert_array_equal(x, wanted)
        np.testing.assert_array_equal(y, z[::-1])


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("statement", [
    "a[:, :] = a.T", "a[:, ::-1] = a[:, :]", "a[:] = a[0, ::-1]", "np.exp(a.T, a)"])
def test_what_is_not_known_to_be_small_is_refused(statement: str, dtype: Any) -> None:
    kernel = kernel_of(statement)
    kernel[1, 1](np.ones((1, 1), dtype))
    with pytest.raises(LaunchError, match=REVERSED):
        kernel[1, 1](np.ones((4, 4), dtype))


def test_one_of_several_arrays_may_not_be_what_is_set() -> None:
    kernel = kernel_of("row = a if n > 0 else b\n    np.add(row[1:], b[1:], a[:-1])", "b", "n")
    a, b = made(np.random.default_rng(7), (2, 6), np.float64)
    wanted = np.append(b[1:] + b[1:], a[-1])
    with pytest.raises(LaunchError, match=REVERSED):
        kernel[1, 1](a, b, 1)
    kernel[1, 1](a, b, 0)
    np.testing.assert_array_equal(a, wanted)


def _slice(rng: np.random.Generator, n: int, count: int, step: int) -> str:
    span = (count - 1) * abs(step) + 1
    low = int(rng.integers(0, n - span + 1))
    if step > 0:
        return f"{low}:{low + span}:{step}"
    return f"{low + span - 1}:{low - 1 if low else ''}:{step}"


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(40))
def test_random_parts(seed: int) -> None:
    """Steps of one sign, of one to three axes, some of one row for all."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 4)))
    written, read = [], []
    for n in shape:
        steps = rng.integers(1, 3, 2) * rng.choice([1, -1])
        count = int(rng.integers(1, 2 + (n - 1) // max(abs(steps))))
        written.append(_slice(rng, n, count, int(steps[0])))
        read.append(_slice(rng, n, 1 if rng.random() < 0.15 else count, int(steps[1])))
    space: dict[str, Any] = {"weft": weft, "np": np}
    loops = "".join(f"{'    ' * (k + 1)}for i{k} in range({n}):\n" for k, n in enumerate(shape))
    inner, place = "    " * (len(shape) + 1), ", ".join(f"i{k}" for k in range(len(shape)))
    text = f"""def kernel(b):
    a = weft.gpu.shared.array({shape}, np.float64)
{loops}{inner}a[{place}] = b[{place}]
    a[{', '.join(written)}] = a[{', '.join(read)}]
{loops}{inner}b[{place}] = a[{place}]
"""
    exec(text, space)
    x = made(rng, shape, np.float64)
    wanted = x.copy()
    parts = [tuple(slice(*(int(t) if t else None for t in s.split(":"))) for s in side)
             for side in (written, read)]
    wanted[parts[0]] = wanted[parts[1]].copy()
    kernel = weft.kernel(space["kernel"])
    for run in (kernel[1, 1], weft.sanitize(kernel, 1, 1)):
        found = x.copy()
        run(found)
        np.testing.assert_array_equal(found, wanted)
