"""Names that hold one of several members of an enumeration, or of several texts."""

import enum
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import KernelError


class Colour(enum.Enum):
    """Members of any kind; the last one is another name of the first."""

    RED = 1
    BLUE = 2.5
    GREEN = True
    CRIMSON = 1

    @property
    def warm(self) -> bool:
        """Whether it is."""
        return self is Colour.RED


class Level(enum.IntEnum):
    """Members that are numbers."""

    LOW = 3
    HIGH = 8


class Word(enum.Enum):
    """Members whose values are texts."""

    YES = "yes"
    NO = ""


MODE = "fast"


def of_colour(x: float) -> Any:
    """Return a member on each way."""
    if x > 5:
        return Colour.BLUE
    if x > 2:
        return Colour.RED
    return Colour.GREEN


def told(x: Any, i: int) -> Any:
    """Return what names that hold members tell; as Python, and in a kernel."""
    colour = Colour.RED if x > 4 else Colour.BLUE
    found = 10.0 if colour == Colour.CRIMSON else 20.0
    if x > 6:
        colour = Colour.GREEN
    elif x == 1:
        colour = of_colour(x + 2)
    found += colour.value * 100
    if colour is not Colour.RED and colour != Colour.BLUE:
        found += 1
    if colour in (Colour.RED, Colour.GREEN):
        found += 2
    level = Level.LOW if i % 2 else Level.HIGH
    for k in range(i):
        if level == Level.LOW:
            level = Level.HIGH
        elif k % 3:
            level = Level.LOW
        colour = Colour.BLUE if colour is Colour.RED else Colour.RED
    found += level.value * 1000 + level * 3
    if of_colour(x) is colour:
        found += 0.25
    if colour == level:
        found = -1
    return found


def texts(x: Any, i: int) -> Any:
    """Return what names that hold texts tell."""
    mode = MODE if x > 3 else "slow"
    found = 1 if mode == "fast" else 2
    word = Word.YES if i % 2 else Word.NO
    if word.value:
        found += 10
    name = word.name
    for _ in range(i % 3):
        name = mode
        mode = "last"
    if name == "NO" or name == "last":
        found += 100
    if mode != "fast":
        found += 1000 * len(name)
    return found


@weft.kernel
def members(x, out, words):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = told(x[i], i)
        words[i] = texts(x[i], i)


@pytest.mark.parametrize("n", [1, 7, 37])
def test_members_and_texts(n):
    x = np.arange(n) % 9.0
    for run in (members[1, 64], weft.interpret(members, 1, 64), weft.sanitize(members, 1, 64)):
        out, words = np.zeros(n), np.zeros(n, np.int64)
        report = run(x, out, words)
        assert report is None or not report.findings
        assert out.tolist() == [told(v, i) for i, v in enumerate(x)]
        assert words.tolist() == [texts(v, i) for i, v in enumerate(x)]


def test_members_as_arguments_and_properties():
    @weft.kernel
    def mixed(kind, x, out):
        i = gpu.grid(1)
        held = kind
        if x[i] > 1:
            held = Colour.RED
        out[i] = held.warm + 2 * (held is kind)

    for kind in (Colour.BLUE, Colour.RED):
        out = np.zeros(4)
        mixed[1, 4](kind, np.arange(4.0), out)
        held = [kind, kind, Colour.RED, Colour.RED]
        assert out.tolist() == [h.warm + 2 * (h is kind) for h in held]


class Pair(NamedTuple):
    """Two numbers, with methods of every kind."""

    first: Any
    second: Any

    @classmethod
    def both(cls, value):
        """Return a pair of one number."""
        return cls(value, value)

    @staticmethod
    def twice(value):
        """Return it twice."""
        return value * 2

    def __call__(self, factor):
        """Return the sum, scaled."""
        return (self.first + self.second) * factor


@weft.kernel
def structs(x, rows, out):
    i = gpu.grid(1)
    pair = Pair.both(x[i])
    out[i, 0] = pair(3) + Pair.twice(i)
    other = pair._replace(second=i)
    out[i, 1] = other.first - other(1)
    again = other.both(4)
    out[i, 2] = again.second
    zeros = (0, 1) * 2
    out[i, 3] = len(zeros) + (3 * (x[i],))[i % 3] + zeros[i % 4]
    out[i, 4] = rows[i % 2][i] + (pair, again)[i % 2].first


def test_structs_and_tuples():
    """Methods of classes, calls, `_replace`, repeated tuples, tuples of arrays by number."""
    x = np.arange(5) * 1.5
    rows = (np.arange(5.0), np.arange(5.0) * -2)
    for run in (structs[1, 5], weft.interpret(structs, 1, 5), weft.sanitize(structs, 1, 5)):
        out = np.zeros((5, 5))
        report = run(x, rows, out)
        assert report is None or not report.findings
        for i in range(5):
            assert out[i].tolist() == [
                6 * x[i] + 2 * i, x[i] - (x[i] + i), 4, 4 + x[i] + (0, 1, 0, 1)[i % 4],
                rows[i % 2][i] + (x[i], 4)[i % 2]]


@pytest.mark.parametrize(("line", "message"), [
    ("x[0] = Pair(1, 2)._replace(third=3).first", "_replace of third"),
    ("x[0] = len((x[0],) * 100000)", "a tuple of 100000 items"),
    ("x[0] = Colour.RED if x[0] > 1 else 2", "expected values of one kind, found Colour or int 2"),
    ("x[0] = ('a' if x[0] > 1 else 'b') < 'c'", "unsupported operands for <"),
    ("x[0] = (Colour.RED if x[0] > 1 else Colour.BLUE).other", "has no field 'other'"),
])
def test_what_members_are_not(line, message):
    space = {"weft": weft, "Pair": Pair, "Colour": Colour}
    exec(f"@weft.kernel\ndef wrong(x):\n    {line}\n", space)
    with pytest.raises(KernelError, match=message):
        space["wrong"][1, 1](np.zeros(2))


PACKED = np.dtype([("a", np.int32), ("b", np.float64), ("c", np.uint8, (3,)), ("z", np.complex64)])
INNER = np.dtype([("x", np.int16), ("y", np.float32)], align=True)
ALIGNED = np.dtype([("p", INNER, (2,)), ("n", np.int64)], align=True)


@pytest.mark.parametrize("threads", [1, 7, 64])
def test_records_in_dynamic_shared_memory(threads):
    """Aligned or not, with fields that are arrays, records, complex numbers."""

    @cuda.jit
    def turned(out, more):
        i = cuda.grid(1)
        n = cuda.blockDim.x
        held = cuda.shared.array(0, PACKED)
        held[i].a = i
        held[i].b = 2.5 * i
        held[i]["c"][2] = i + 1
        held[i].z = i + 2j
        cuda.syncthreads()
        other = held[n - 1 - i]
        out[i] = other.a + other.b + other.c[2] + other.z.imag
        cuda.syncthreads()
        nested = cuda.shared.array(0, ALIGNED)
        nested[i].p[1].y = i / 2
        nested[i].n = -i
        cuda.syncthreads()
        more[i] = nested[n - 1 - i].p[1].y + nested[n - 1 - i].n

    bytes_ = threads * max(PACKED.itemsize, ALIGNED.itemsize)
    back = np.arange(threads)[::-1]
    for run in (turned[1, threads, 0, bytes_],
                weft.interpret(turned, 1, threads, shared=bytes_),
                weft.sanitize(turned, 1, threads, shared=bytes_)):
        out, more = np.zeros(threads), np.zeros(threads)
        report = run(out, more)
        assert report is None or not report.findings
        np.testing.assert_array_equal(out, back * 4.5 + 3)
        np.testing.assert_array_equal(more, -back / 2)


class Couple(NamedTuple):
    """Two numbers."""

    x: Any
    y: Any


class Other(NamedTuple):
    """Two other numbers."""

    a: Any
    b: Any


class Tone(enum.Enum):
    """Another class of members than Colour."""

    HIGH = 7


def of_two_classes(x: float) -> Any:
    """Return things of two classes."""
    if x > 1:
        return Couple(x, 1)
    return Other(x, 2)


UNLIKE = {
    "expected values of one kind, found Couple(int 1, int 2) or Other(int 3, int 4)": """
    p = Couple(1, 2) if x[0] > 1 else Other(3, 4)
    x[1] = p.x
""",
    "expected values of one kind, found Colour or Tone": """
    p = Colour.RED if x[0] > 1 else Tone.HIGH
    x[1] = p.value
""",
    "expected values of one kind, found str 'fast' or Colour": """
    p = MODE if x[0] > 1 else Colour.RED
    x[1] = p == MODE
""",
    "expected values of one kind, found tuple(int 1, int 2) or float64": """
    v = None if x[0] > 1 else x[1]
    p = (1, 2) if x[1] > 1 else v
    x[1] = p[0]
""",
    "p changes from Couple(int64, int64) to Other(int 3, int 4) in a loop": """
    p = Couple(1, 2)
    for k in range(int(x[0])):
        p = Other(3, 4)
    x[1] = p.x
""",
    "v changes from float64 to tuple(int 1, int 2) in a loop": """
    v = None if x[0] > 1 else x[1]
    for k in range(int(x[0])):
        v = (1, 2)
    x[1] = v is None
""",
    "of_two_classes returns Other(float64, int 2) here and something else elsewhere": """
    x[1] = of_two_classes(x[0]).x
""",
}


@pytest.mark.parametrize("told", UNLIKE)
def test_things_of_two_classes_do_not_meet(told: str, tmp_path: Any) -> None:
    """They have as many items, but one must not be taken for the other."""
    file = tmp_path / "unlike.py"
    file.write_text("def unlike(x):" + UNLIKE[told])
    names = dict(globals())
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(KernelError) as caught:
        cuda.jit(names["unlike"])[1, 1](np.ones(3))
    assert told in str(caught.value)
    assert "^^^" in str(caught.value)


def chosen_at_once(x: Any, out: Any) -> None:
    """Choose between tuples in tuples, with texts and None in them."""
    for i in range(len(x)):
        nested = ((x[i], 2), 3) if x[i] > 1 else ((5, 6.5), 7)
        word = "ab" if x[i] > 2 else "c"
        named = (word, 1) if x[i] > 1 else ("d", 2)
        maybe = (x[i], None) if x[i] > 1 else (x[i] * 2, 3)
        out[i, 0] = nested[0][0] + nested[0][1] * nested[1]
        out[i, 1] = len(named[0]) * named[1] + (10 if named[0] == "d" else 0)
        out[i, 2] = maybe[0] if maybe[1] is None else maybe[1] + len("abc")


@pytest.mark.parametrize("run", [lambda k: k[1, 1], lambda k: weft.interpret(k, 1, 1)],
                         ids=["cpu", "interpreter"])  # fmt: skip
def test_what_holds_more_than_numbers_is_chosen_in_one_expression(run: Any) -> None:
    """As it is where two branches set a name."""
    x, out, wanted = np.arange(5.0), np.zeros((5, 3)), np.zeros((5, 3))
    chosen_at_once(x, wanted)
    run(cuda.jit(chosen_at_once))(x, out)
    np.testing.assert_array_equal(out, wanted)
