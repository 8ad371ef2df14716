"""Texts in kernels: ``U`` and ``S`` as elements of arrays, fields of records, and constants."""

import operator
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda, types
from weft.compat.numba_types import from_dtype
from weft.errors import BoundsError, KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")

ORDERS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
WORDS = np.array(["", "a", "ab", "abc", "abd", "b", "zz", "äöü", "日本", "😀x", "ab c", "A"])


def words(rng: np.random.Generator, letter: str, width: int, size: int) -> Any:
    """Return texts that are often equal, or begin alike."""
    if letter == "U":
        return rng.choice(WORDS, size).astype(f"U{width}")
    plain = [w for w in WORDS.tolist() if w.isascii()]
    return rng.choice(plain, size).astype(f"S{width}")


def check(kernel: Any, threads: int, *args: Any, expected: Any) -> None:
    """Run a kernel, compiled and under the sanitiser, on copies of its arguments."""
    for run in (kernel[1, threads], weft.sanitize(kernel, 1, threads)):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        report = run(*copies)
        assert report is None or not report.findings
        np.testing.assert_array_equal(copies[-1], expected)


@weft.kernel
def compared(a, b, out):
    i = gpu.grid(1)
    if i < a.size:
        out[i, 0] = a[i] == b[i]
        out[i, 1] = a[i] != b[i]
        out[i, 2] = a[i] < b[i]
        out[i, 3] = a[i] <= b[i]
        out[i, 4] = a[i] > b[i]
        out[i, 5] = a[i] >= b[i]
        out[i, 6] = len(a[i])
        out[i, 7] = bool(a[i])
        out[i, 8] = not a[i]


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("letter", "first", "second"), [
    ("U", 4, 4), ("U", 3, 7), ("U", 1, 2), ("S", 4, 4), ("S", 9, 2)])
def test_comparisons(letter: str, first: int, second: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = words(rng, letter, first, 40), words(rng, letter, second, 40)
    expected = np.stack([*(op(a, b) for op in ORDERS), np.strings.str_len(a), a != a.dtype.type(),
                         a == a.dtype.type()], 1)
    check(compared, 64, a, b, np.zeros(expected.shape, np.int64), expected=expected)


@weft.kernel
def compared_with_known(a, out):
    i = gpu.grid(1)
    if i < a.size:
        out[i, 0] = a[i] == "ab"
        out[i, 1] = "ab" != a[i]  # noqa: SIM300
        out[i, 2] = a[i] < "abcdefgh"
        out[i, 3] = "ab" <= a[i]  # noqa: SIM300
        out[i, 4] = a[i] > ""
        out[i, 5] = a[i] == "ab\0"
        out[i, 6] = a[i] < "ab\0"
        out[i, 7] = a[i] >= "ab\0"
        out[i, 8] = a[i] == b"ab"
        out[i, 9] = a[i] in ("ab", "zz")


def test_comparisons_with_texts_that_are_known() -> None:
    a = WORDS.astype("U4")
    held = [str(w) for w in a]
    expected = [[w == "ab", w != "ab", w < "abcdefgh", w >= "ab", w > "", False, w < "ab\0",
                 w >= "ab\0", False, w in ("ab", "zz")] for w in held]
    check(compared_with_known, 16, a, np.zeros((len(a), 10), bool), expected=expected)


@weft.kernel
def moved(a, out):
    i = gpu.grid(1)
    if i < a.size:
        out[i] = a[a.size - 1 - i]


@pytest.mark.parametrize(("letter", "first", "second"), [
    ("U", 4, 4), ("U", 3, 7), ("U", 5, 1), ("S", 4, 4), ("S", 2, 9), ("S", 9, 2)])
def test_copies_are_cut_off_and_filled(letter: str, first: int, second: int) -> None:
    a = words(np.random.default_rng(first), letter, first, 20)
    expected = a[::-1].astype(f"{letter}{second}")
    check(moved, 32, a, np.full(20, "?", f"{letter}{second}"), expected=expected)


def test_strided_texts() -> None:
    a = words(np.random.default_rng(5), "U", 4, 60).reshape(6, 10)
    for turned in (a[::2, 3], a[1, ::-1], a.T[2, 1:]):
        check(moved, 16, turned, np.zeros(turned.shape, "U4"), expected=turned[::-1])


@weft.kernel
def stored(a, s):
    a[0] = "longer than there is room"
    a[1] = "ab"
    a[2] = ""
    a[3:] = "end"
    s[0] = b"bytes"
    s[1:3] = b"x"
    s[3] = s[1]


def test_known_texts_are_stored() -> None:
    a, s = np.full(6, "????????"), np.full(5, b"????")
    stored[1, 1](a, s)
    assert a.tolist() == ["longer t", "ab", "", "end", "end", "end"]
    assert s.tolist() == [b"byte", b"x", b"x", b"x", b"????"]


RECORDS = np.dtype([("flag", "i1"), ("name", "U3"), ("tags", "S2", (2,)), ("x", "f4")])


@weft.kernel
def of_records(records, other, out):
    i = gpu.grid(1)
    if i < records.size:
        if records[i].name == "abc":
            records[i]["name"] = "new name"
            records[i].tags[1] = b"yz"
        else:
            records[i] = other[i]
        out[i] = len(records[i].name) + records[i].x


@pytest.mark.parametrize("align", [False, True])
def test_fields_of_records(align: bool) -> None:
    rng = np.random.default_rng(7)
    kind = np.dtype(RECORDS.descr, align=align)
    records, other = np.zeros(30, kind), np.zeros(30, kind)
    for array in (records, other):
        array["name"], array["x"] = rng.choice(["abc", "x", ""], 30), rng.integers(0, 9, 30)
        array["tags"] = rng.choice([b"p", b"qq"], (30, 2))
    expected = np.where(records["name"] == "abc", records, other)
    found = records["name"] == "abc"
    expected["name"][found], expected["tags"][found, 1] = "new", b"yz"
    for run in (of_records[1, 32], weft.sanitize(of_records, 1, 32)):
        held, out = records.copy(), np.zeros(30)
        run(held, other, out)
        np.testing.assert_array_equal(held, expected)
        np.testing.assert_array_equal(out, np.strings.str_len(held["name"]) + held["x"])


def test_other_fields_of_records_with_texts() -> None:
    @weft.kernel
    def scaled(records):
        records[gpu.grid(1)].x *= 2

    records = np.zeros(8, RECORDS)
    records["name"], records["x"] = "abc", np.arange(8)
    scaled[1, 8](records)
    assert records["x"].tolist() == list(range(0, 16, 2))
    assert (records["name"] == "abc").all()


@weft.func
def longer(a, b):
    if len(a) > len(b):
        return a
    return b


@weft.func
def spoken(n):
    if n == 0:
        return "zero"
    if n < 0:
        return "less"
    return "more"


@weft.kernel
def through_names(a, b, n, out):
    i = gpu.grid(1)
    if i < a.size:
        least = "~"
        for k in range(i + 1):
            if a[k] < least:
                least = a[k]
        out[i, 0] = least
        held = a[i]
        if n[i] > 0:
            held = b[i]
        out[i, 1] = held
        out[i, 2] = b[i] if n[i] < 0 else "else"
        out[i, 3] = longer(a[i], b[i])
        out[i, 4] = spoken(n[i])


@pytest.mark.parametrize("seed", range(2))
def test_names_that_hold_texts(seed: int) -> None:
    """Texts of two lengths meet in the longer one, behind branches, in loops and functions."""
    rng = np.random.default_rng(seed)
    a, b = words(rng, "U", 3, 20), words(rng, "U", 5, 20)
    n = rng.integers(-1, 2, 20)
    expected = np.zeros((20, 5), "U6")
    for i in range(20):
        expected[i] = (min(["~", *a[: i + 1].tolist()]), b[i] if n[i] > 0 else a[i],
                       b[i] if n[i] < 0 else "else", a[i] if len(a[i]) > len(b[i]) else b[i],
                       {0: "zero", -1: "less", 1: "more"}[int(n[i])])
    check(through_names, 32, a, b, n, np.zeros((20, 5), "U6"), expected=expected)


@weft.kernel
def sorted_in_place(a):
    for i in range(1, a.size):
        k = i
        while k > 0 and a[k] < a[k - 1]:
            a[k], a[k - 1] = a[k - 1], a[k]
            k -= 1


@pytest.mark.parametrize("letter", ["U", "S"])
def test_elements_that_change_places(letter: str) -> None:
    """A text that was read stays what it was when its element gets another one."""
    a = words(np.random.default_rng(11), letter, 4, 15)
    check(sorted_in_place, 1, a, expected=np.sort(a))


@weft.kernel
def character_by_character(a, s, out):
    i = gpu.grid(1)
    if i < a.size:
        for one in a[i]:
            out[i, 0] = out[i, 0] * 31 + ord(one)
        for byte in s[i]:
            out[i, 1] = out[i, 1] * 31 + byte
        for k in range(len(a[i])):
            out[i, 2] += a[i][k] == "b"
        if len(s[i]) > 1:
            out[i, 3] = s[i][1] + 1000 * s[i][-1]
        out[i, 4] = a[i][:2] == "ab"


def test_characters_and_bytes() -> None:
    rng = np.random.default_rng(13)
    a, s = words(rng, "U", 4, 40), words(rng, "S", 5, 40)
    expected = np.zeros((40, 5), np.int64)
    for i, (text, code) in enumerate(zip(a.tolist(), s.tolist(), strict=True)):
        for one in text:
            expected[i, 0] = expected[i, 0] * 31 + ord(one)
        for byte in code:
            expected[i, 1] = expected[i, 1] * 31 + byte
        expected[i, 2] = text.count("b")
        expected[i, 3] = code[1] + 1000 * code[-1] if len(code) > 1 else 0
        expected[i, 4] = text[:2] == "ab"
    check(character_by_character, 64, a, s, np.zeros_like(expected), expected=expected)


NAMES = np.array(["north", "east", "south", "west"])


@weft.kernel
def turned(way, out):
    near = gpu.shared.array(4, "U2")
    own = gpu.local.array(2, "S3")
    i = gpu.threadIdx.x
    if i < 4:
        near[i] = NAMES[3 - i]
    gpu.syncthreads()
    own[0], own[1] = b"odd", b"even"
    found = -1
    for k in range(4):
        if way[i] == NAMES[k]:
            found = k
    out[i] = (found, near[i % 4], own[1 - i % 2])


def test_constants_and_arrays_of_the_block_and_the_thread() -> None:
    rng = np.random.default_rng(17)
    way = rng.choice([*NAMES.tolist(), "up"], 40)
    kind = np.dtype([("found", "i8"), ("near", "U4"), ("own", "S4")])
    expected = np.zeros(40, kind)
    for i in range(40):
        expected[i] = (NAMES.tolist().index(way[i]) if way[i] in NAMES else -1,
                       NAMES[3 - i % 4][:2], b"odd" if i % 2 else b"eve")
    check(turned, 40, way, np.zeros(40, kind), expected=expected)


@weft.kernel
def of_bytes_and_texts(a, s, name, out, n):
    i = gpu.grid(1)
    if i < a.size:
        held = s[i]
        if len(held) < 2:
            held = b"short"
        out[i] = (max(a[i], "b"), min(a[i], a[0], "zz"), held, s[i] if n else b"none")
        if isinstance(a[i], str) and isinstance(s[i], bytes) and a[i] == name:
            out[i].most = name


@pytest.mark.parametrize("name", ["abc", np.str_("abc"), np.array("abc")], ids=repr)
def test_the_larger_one_and_known_bytes(name: Any) -> None:
    a, s = WORDS.astype("U4"), np.array([b"", b"x", b"xyz"] * 4)
    kind = np.dtype([("most", "U4"), ("least", "U4"), ("held", "S5"), ("other", "S4")])
    expected = np.zeros(12, kind)
    for n in range(2):
        for i in range(12):
            expected[i] = (max(a[i], "b") if a[i] != "abc" else "abc", min(a[i], a[0], "zz"),
                           s[i] if len(s[i]) > 1 else b"short", s[i] if n else b"none")
        for run in (of_bytes_and_texts[1, 16], weft.sanitize(of_bytes_and_texts, 1, 16)):
            out = np.zeros(12, kind)
            run(a, s, name, out, n)
            np.testing.assert_array_equal(out, expected)


def test_what_no_text_can_hold_is_an_error() -> None:
    @weft.kernel
    def wrong(a, s):
        a[0] = 3
        a[0] = b"bytes"
        s[0] = "text"
        s[0] = a[0]
        a[1] = a[0] + 1
        a[1] = s[0] < a[0]

    with pytest.raises(KernelError, match="6 errors"):
        wrong[1, 1](np.zeros(2, "U3"), np.zeros(2, "S3"))

    @weft.kernel
    def beyond(a, out):
        out[0] = ord(a[0][out[0]])

    with pytest.raises(BoundsError, match="index 3"):
        beyond[1, 1](np.array(["abc"], "U8"), np.array([3]))
    with pytest.raises((LaunchError, KernelError)):
        stored[1, 1](np.zeros(6, ">U8"), np.zeros(5, "S4"))


def test_names_of_numba() -> None:
    assert from_dtype(np.dtype("U12")) == types.UnicodeCharSeq(12)
    assert from_dtype(np.dtype("S5")) == types.CharSeq(5)
    assert str(types.UnicodeCharSeq(12)) == "[unichr x 12]"
    assert types.CharSeq(4).count == 4

    text = from_dtype(np.dtype("U4"))

    @cuda.jit((types.Array(types.UnicodeCharSeq(4), 1, "C"), types.CharSeq(3)[:]))
    def signed(a, s):
        i = cuda.grid(1)
        own = cuda.local.array(1, text)
        own[0] = a[-1]
        a[i] = own[0]
        s[i] = b"abc"

    a, s = np.array(["x", "y", "zzzz"], "U4"), cuda.to_device(np.zeros(3, "S3"))
    signed[1, 3](a, s)
    assert a.tolist() == ["zzzz"] * 3
    assert s.copy_to_host().tolist() == [b"abc"] * 3


BYTES = b"ab"


@cuda.jit
def last_after_text(b, out):
    y = "a"
    for k in range(out.shape[0]):
        y = b[k]
    out[0] = len(y)


@cuda.jit
def last_after_bytes(b, out):
    y = BYTES
    for k in range(out.shape[0]):
        y = b[k]
    out[0] = len(y)


@pytest.mark.parametrize(("kernel", "letter"), [(last_after_text, "U"), (last_after_bytes, "S")])
def test_known_texts_meet_elements_of_their_kind_in_loops(kernel, letter):
    items = np.array(["abc", "defg"]).astype(f"{letter}4")
    out = np.zeros(2, np.int64)
    kernel[1, 1](items, out)
    assert out[0] == 4
    with pytest.raises(KernelError, match=r"y changes from .* in a loop"):
        kernel[1, 1](items.astype("S4" if letter == "U" else "U4"), out)
