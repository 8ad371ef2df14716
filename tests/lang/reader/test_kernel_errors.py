"""What is wrong in a kernel is told at once: file, line, caret, what to do, and nothing of ours."""

import importlib.util
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import DTypeError, KernelError, LaunchError, WeftError

HEAD = '''import math
import random
from typing import NamedTuple
import numpy as np
import weft
from weft import gpu

SCALE = 3
NUMBERS = [1, 2, 3]
TABLE = {"a": 1}

class Pair(NamedTuple):
    a: float
    b: float

class Thing:
    v = 1
    def method(self):
        return 2

thing = Thing()

def of_numpy(v):
    return np.cumsum(v)

def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

def ping(n):
    return pong(n)

def pong(n):
    return ping(n)

@weft.kernel
def other(v):
    v[0] = 1

def kernel(x):
'''

# body of a kernel of one float64 array x: what its message says, and what its hint says
SYNTAX = {
    "with open('f') as f:\n    x[0] = 1": ("with is not supported", "outside"),
    "try:\n    x[0] = 1\nexcept ValueError:\n    x[0] = 2": ("try is not supported", "if"),
    "try:\n    x[0] = 1\nfinally:\n    x[0] = 2": ("try is not supported", "assert"),
    "try:\n    x[0] = 1\nexcept* ValueError:\n    x[0] = 2": ("try is not supported", "if"),
    "yield x[0]": ("yield is not supported", "write results to an array"),
    "v = yield": ("yield is not supported", "write results to an array"),
    "yield from x": ("yield from is not supported", "write results to an array"),
    "f = lambda v: f(v)\nx[0] = f(1)": ("calls itself", "loop"),
    "f = lambda v: v + 1\nx[0] = f()": ("missing a required argument", "lambda(v)"),
    "v = [k for k in range(3)]": ("a list comprehension is not", "gpu.local.array"),
    "v = {k for k in range(3)}": ("a set comprehension is not", "tuples"),
    "v = {k: k for k in range(3)}": ("a dict comprehension is not", "tuples"),
    "x[0] = sum(k for k in range(3))": ("a generator is not", "loop"),
    "v = {1: 2}": ("a dict is not", "tuples"),
    "v = {1, 2}": ("a set is not", "tuples"),
    "print(f'{x[0]}')": ("an f-string is not", "several arguments"),
    "global SCALE\nSCALE = 2": ("global is not", "pass an array"),
    "v = 1\ndel v": ("del is not", "leave it out"),
    "class A:\n    pass": ("a nested class is not", "outside"),
    "def inner(a):\n    return a\nx[0] = inner(1, 2)": ("too many positional", "inner(a)"),
    "@int\ndef inner(a):\n    return a": ("a decorator of a nested", "outside"),
    "async def inner(a):\n    return a": ("an async function is not", "outside"),
    "import math\nx[0] = math.sin(1)": ("import is not", "module"),
    "from math import sin\nx[0] = sin(1)": ("import is not", "module"),
    "match x[0]:\n    case {1: b}:\n        pass": ("match with such patterns is not", "values"),
    "x[0] = max(**{})": ("** in a call is not", ""),
    "v = x[0]\nv[0] = 1": ("float64 cannot be assigned to", "arrays have elements"),
    "b = b'abc'\nb[0] = 1": ("constant is read-only", ""),
    "v = x[0] @ x[1]": ("unsupported operands for @", ""),
}
NAMES_AND_CALLS = {
    "x[0] = treadIdx.x": ("name 'treadIdx' is not defined", "'gpu.threadIdx'"),
    "x[0] = SCAEL": ("name 'SCAEL' is not defined", "did you mean 'SCALE'?"),
    "value = 1\nx[0] = valeu": ("name 'valeu' is not defined", "did you mean 'value'?"),
    "x[0] = SCALE\nSCALE = 2": ("name 'SCALE' has no value here", "further down"),
    "x[0] = gpu.gridd(1)": ("weft.gpu has no 'gridd'", "did you mean 'grid'?"),
    "x[0] = math.sine(1)": ("math has no 'sine'", "did you mean 'sin'?"),
    "x[0] = x.shpae[0]": ("arrays in kernels have no 'shpae'", "did you mean 'shape'?"),
    "x[0] = x.cumsum()": ("arrays in kernels have no 'cumsum'", "shape, size"),
    "gpu.atomic.plus(x, 0, 1)": ("has no 'plus'", ""),
    "x[0] = gpu.threadIdx.w": ("has no 'w'", ""),
    "x[0] = gpu.threadIdx": ("an index of three parts", ""),
    "x[0] = np.cumsum(x)": ("numpy.cumsum is not supported", "loops"),
    "x[0] = np.zeros(3)": ("numpy.zeros is not supported", "loops"),
    "x[0] = weft.zeros(3)": ("weft.zeros is not supported", "outside"),
    "x[0] = open('f')": ("open is not supported", "math, weft.gpu"),
    "x[0] = input()": ("input is not supported", "math, weft.gpu"),
    "x[0] = callable(x)": ("callable is not supported", "math, weft.gpu"),
    "x[0] = isinstance(x, weft)": ("isinstance of float64 array of 1 axis and", "by their classes"),
    "x[0] = str(3)": ("str is not supported", "numbers, tuples"),
    "v = list(x)": ("list is not supported", "numbers, tuples"),
    "v = map(abs, x)": ("map is not supported", "numbers, tuples"),
    "x[0] = random.random()": ("random.random is not supported", "monte_carlo"),
    "x[0] = thing.method()": ("Thing.method is not supported", "plain Python functions"),
    "x[0] = of_numpy(x)": ("numpy.cumsum is not supported", "called at"),
    "x[0] = of_numpy()": ("of_numpy: missing a required argument: 'v'", "of_numpy(v)"),
    "x[0] = factorial(int(x[0]))": ("factorial calls itself", "use a loop"),
    "x[0] = ping(x[0])": ("ping calls itself through pong", "use a loop"),
    "other[1, 1](x)": ("cannot be indexed", "kernels do not launch kernels"),
    "gpu.syncthreads(1)": ("gpu.syncthreads: too many", "gpu.syncthreads()"),
    "s = gpu.shared.array(3)": ("missing a required argument: 'dtype'", "array(shape, dtype"),
    "x[0] = gpu.fma(1, 2)": ("missing a required argument: 'c'", "gpu.fma(a, b, c)"),
    "x[0] = math.sin(1, 2)": ("math.sin of 2 arguments is not", ""),
    'x[0] = x.reshape(4, 8, order="F")[1, 0]': ("reshape with order", "last axis innermost"),
    "x[0] = math.fsum((1.0, 2.0))": ("math.fsum", "a loop"),
    "x[0] = x[0](3)": ("float64 cannot be called", ""),
    "x[0] = (1, 2)(0)": ("cannot be called", "indexed by []"),
    "NUMBERS[0] = 1": ("list cannot be assigned to", "arrays have elements"),
    "x[0] = TABLE['b']": ("dict has no key 'b'", ""),
    "thing.v = 3": ("no field 'v' to assign to", ""),
}
TYPES = {
    "y = x + x": ("unsupported operands for +: float64 array of 1 axis", "index it"),
    "if x > 0:\n    x[0] = 1": ("unsupported operands for >", "index it"),
    "if x:\n    x[0] = 1": ("expected a condition, found float64 array", "index it"),
    "x[0] = any(x[0])": ("any of float64", "arrays of one axis"),
    "print('%d' % x[0])": ("unsupported operands for %: str '%d' and float64", "no text"),
    "x[0] = 'a' < 1": ("unsupported operands for <: str 'a' and int 1", "no text"),
    "x[0] = 'a' + 'b'": ("expected a number, found str 'ab'", ""),
    "x[0] = int('x')": ("invalid literal for int", ""),
    "x[0] = x[0] << 1": ("unsupported operands for <<: float64 and int 1", "int()"),
    "x[0] = 1.5 & 1": ("unsupported operands for &: float 1.5 and int 1", "int()"),
    "x[0] = abs('a')": ("abs: bad operand type", ""),
    "x[0] = max('a', 'b')": ("expected a number, found str 'b'", ""),
    "x[0] = min(1, 'b')": ("min: '<' not supported", ""),
    "x[0] = 2 ** 2000": ("expected a number, found int of 2001 bits", "64 bits"),
    "x[0] = 2 ** 10 ** 10": ("**: a result of more than 4096 bits", ""),
    "x[0] = 1 << 10 ** 12": ("<<: a result of more than 4096 bits", ""),
    "x[0] = 'a' * 10 ** 12": ("*: a result of more than 4096 bits", ""),
    "for k in zip():\n    x[0] = 1": ("a loop over zip of nothing", ""),
    "x[0] = ~x[0]": ("unsupported operand for ~: float64", ""),
    "x[0] = 1 << 70": ("expected a number, found int 1180", "64 bits"),
    "x[0] = 123456789012345678901234567890": ("does not fit 64 bits", ""),
    "x[1.5] = 1": ("an index of float64", "int()"),
    "x[0, 1] = 1": ("2 indices into an array of 1 ax", ""),
    "x[-1] = 1": ("index -1 is out of bounds", "x.shape[0] - 1".replace("x.", "a.")),
    "v: str = 1": ("expected a dtype as the annotation", ""),
    "x.shape = (3,)": ("no field 'shape' to assign to", ""),
    "if x[0] > 0:\n    t = (1, 2)\nelse:\n    t = (1, 2, 3)\nx[0] = t[0]": (
        "t is tuple(int 1, int 2) or tuple(int 1, int 2, int 3)", "keep their length"),
    "if x[0] > 0:\n    t = x\nelse:\n    t = 1\nx[0] = t": (
        "t is float64 array of 1 axis or int 1", "their kind"),
    "t = None\nif x[0] > 0:\n    t = 1.0\nx[0] = t": ("t is float 1.0 or None", "their kind"),
    "t = x\nfor k in range(3):\n    x[k] = t[k]\n    t = 1": (
        "t changes from float64 array of 1 axis to int", "loop"),
    "t = (1, 2)\nfor k in range(3):\n    t = t + (1,)\nx[0] = t[0]": (
        "t changes from tuple(int64, int64) to tuple(int64, int64, int 1)", ""),
    "v = [1, 2]\nv.append(3)": ("has no field 'append'", "gpu.local.array"),
    "v = [1, 2]\nv[0] = 3": ("cannot be assigned to", "gpu.local.array"),
    "a, b, c = (1, 2)": ("cannot unpack 2 values into 3 names", ""),
    "a, b = 1": ("cannot unpack int 1", ""),
    "p = Pair(1, 2)\np.a = 3": ("is immutable", ""),
    "p = Pair(1, 2)\nx[0] = p.c": ("has no field 'c'", "its fields: a, b"),
    "x[0] = Pair(1)[0]": ("Pair: missing a required argument: 'b'", ""),
    "for k in range(1.5):\n    x[0] = k": ("range of float64", "int()"),
    "for k in 3:\n    x[0] = k": ("a loop over int 3", "range"),
    "for k in 'abc':\n    x[0] = 1": ("a loop over str 'abc'", "range"),
    "for k in range(0, 4, 0):\n    x[0] = k": ("a range with step 0", ""),
    "return x[0]": ("a kernel returns float64", "write results to an array"),
    "assert x[0] > 0, x[0]": ("the message of an assert must be known", ""),
    "x[0] = len(3)": ("len of int 3", ""),
    "x[0] = gpu.popc(x[0])": ("bits of float64", "integer"),
    "gpu.atomic.add(1, 0, 1)": ("gpu.atomic.add of int 1", "array"),
    "gpu.atomic.add(x, 0.5, 1)": ("an index of float64", "int()"),
    "gpu.atomic.and_(x, 0, 1)": ("gpu.atomic.and of float64", ""),
}
DEVICE = {
    "s = gpu.shared.array(x.size, weft.float32)": ("a size must be an integer that is known", ""),
    "s = gpu.shared.array(0.5, weft.float32)": ("a size must be an integer that is known", ""),
    "s = gpu.shared.array(-3, weft.float32)": ("an array of shape (-3,)", "at least 1"),
    "s = gpu.shared.array(3, 'floaty')": ("str 'floaty' is not a dtype", "weft.float32"),
    "s = gpu.shared.array((300, 300), weft.float32)": ("360000 bytes of shared", "232448"),
    "for k in range(3):\n    s = gpu.shared.array(9999, weft.float64)\n"
    "t = gpu.shared.array((99, 199), weft.float64)": ("237600 bytes of shared", "232448"),
    "s = gpu.shared.array(0, weft.float32)": ("0 bytes of shared memory", "stream, bytes"),
    "s = gpu.local.array(1 << 40, weft.float32)": ("bytes of local memory", "at most"),
    "x[0] = gpu.grid(4)": ("gpu.grid(4)", "1 to 3 axes"),
    "x[0] = gpu.shfl_sync(1 << 40, x[0], 0)": ("the mask 0x10000000000", "32 threads"),
    "x[0] = gpu.shfl_sync(0, x[0], 0)": ("the mask 0x0", "32 threads"),
    "x[0] = gpu.shfl_sync(1.5, x[0], 0)": ("a mask of float64", "uint32"),
    "x[0] = gpu.shfl_sync(gpu.ALL, x[0], 0, 3)": ("a width of 3", "power of two"),
    "if gpu.threadIdx.x < 5:\n    gpu.syncthreads()": ("a barrier that some threads", "outside"),
    "if gpu.threadIdx.x < 5:\n    x[0] = 1\nelse:\n    gpu.syncthreads()": (
        "a barrier that some threads", "outside"),
    "t = gpu.threadIdx.x\nif x.size > 3:\n    if t % 2 == 0 and t > 7:\n"
    "        x[0] = gpu.syncthreads_count(True)": ("a barrier that some threads", "outside"),
    "for k in range(gpu.threadIdx.x):\n    gpu.syncthreads()": (
        "a barrier that some threads", "outside"),
    "for k in range(3):\n    if gpu.threadIdx.x == k:\n        continue\n"
    "    if gpu.threadIdx.x > 5:\n        continue\n    gpu.syncthreads()": None,
    "if gpu.threadIdx.x >= 16:\n    return\nif gpu.threadIdx.x < 8:\n    gpu.syncthreads()": (
        "a barrier that some threads", "outside"),
}  # fmt: skip
BAD = {k: v for table in (SYNTAX, NAMES_AND_CALLS, TYPES, DEVICE) for k, v in table.items() if v}


def written(folder: Path, body: str) -> Any:
    """Return a kernel of some body, from a file."""
    file = folder / "program.py"
    file.write_text(HEAD + "".join(f"    {line}\n" for line in body.split("\n")))
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        spec.loader.exec_module(module)
    return weft.kernel(module.kernel)


def ours(error: BaseException) -> list[str]:
    """Return the functions of Weft that a traceback shows."""
    package = str(Path(weft.__file__).parent)
    return [f.name for f in traceback.extract_tb(error.__traceback__)
            if f.filename.startswith(package)]


@pytest.mark.grid
@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_message(body: str, tmp_path: Path) -> None:
    """Each says what, where, and what to do; in few lines, with one frame of ours at most."""
    kernel = written(tmp_path, body)
    with pytest.raises(KernelError) as caught:
        kernel[1, 32](np.full(32, 2.0))
    error = caught.value
    said, hint = BAD[body]
    assert len(error.problems) == 1, str(error)
    problem = error.problems[0]
    assert said in problem.message
    assert hint in str(problem)
    assert str(problem).count("\n") < 9
    assert "^" in str(problem)
    text = Path(problem.file).read_text().split("\n")[problem.line - 1]
    assert text.strip()
    assert problem.end > problem.column >= 0
    assert len(ours(error)) <= 1
    with pytest.raises(KernelError):  # and a second launch says it again
        kernel[1, 32](np.full(32, 2.0))


@pytest.mark.parametrize("body", [
    "if gpu.threadIdx.x >= 16:\n    return\nif gpu.threadIdx.x < 16:\n    gpu.syncthreads()",
    "if gpu.threadIdx.x < 32:\n    gpu.syncthreads()",
    "if gpu.threadIdx.x > 32:\n    gpu.syncthreads()",
    "if gpu.blockIdx.x == 0:\n    gpu.syncthreads()",
    "if x.size > 3:\n    gpu.syncthreads()",
    "for k in range(3):\n    if k < 2:\n        gpu.syncthreads()",
    "a, *rest = 1, 2, 3\nx[0] = rest[1] + len(rest)",
    "*first, last = 1, 2, 3\nx[0] = first[0] + last",
    "x[0] = x[0] in (1, 2)\nx[1] = x[0] not in (4, 5)",
    "x[0] = 1.0 / 0\nx[1] = 1 // 0",
])  # fmt: skip
def test_no_message(body: str, tmp_path: Path) -> None:
    """What is right, or may be, is not refused."""
    written(tmp_path, body)[1, 32](np.full(32, 2.0))


def test_all_at_once(tmp_path: Path, golden: Any) -> None:
    """A dozen mistakes in one kernel, by line, each with what to do."""
    kernel = written(tmp_path, """i = gpu.grid(1)
with open('f') as f:
    pass
x[i] = unknwon(i)
x[i, 0] = 1
y = x + 1
z = y + 1
x[0.5] = math.sine(1)
s = gpu.shared.array(x.size, weft.float32)
if gpu.threadIdx.x < 5:
    gpu.syncthreads()
try:
    x[0] = 1
except ValueError:
    pass
total = sum(k for k in range(3))
x[0] = total
x[0] = factorial(3)
x[0] = gpu.shfl_sync(gpu.ALL, x[0], 0, 3)
return x[0]""")
    with pytest.raises(KernelError) as caught:
        kernel[1, 32](np.full(32, 2.0))
    error = caught.value
    assert [p.line for p in error.problems] == sorted(p.line for p in error.problems) or any(
        "factorial" in p.message for p in error.problems)
    golden("kernel_errors.txt", str(error).replace(str(tmp_path) + "/", "") + "\n")


def k_of_two(a: Any, x: Any) -> None:
    x[gpu.grid(1)] = a


def with_stars(**xs: Any) -> None:
    xs["x"][0] = 1


LAUNCHES = {
    "few": (lambda k, x: k[1, 1](1.0), "missing a required argument: 'x'"),
    "many": (lambda k, x: k[1, 1](1.0, x, 3), "too many positional arguments"),
    "keyword": (lambda k, x: k[1, 1](1.0, y=x), "unexpected keyword argument|missing"),
    "list": (lambda k, x: k[1, 1](1.0, [1, 2]), "found list for x"),
    "object": (lambda k, x: k[1, 1](object(), x), "found object for a"),
    "objects": (lambda k, x: k[1, 1](1.0, np.array([None])), "an array of object"),
    "text": (lambda k, x: k[1, 1](1.0, np.array(["a"])), "cannot store float64 in an array of U1"),
    "wide": (lambda k, x: k[1, 1](1 << 70, x), "an integer of 64 bits"),
    "foreign": (lambda k, x: k[1, 1](1.0, np.zeros(3, ">f8")), "byte order"),
    "threads": (lambda k, x: k[1, 2048], "1024"),
    "threads along": (lambda k, x: k[1, (32, 32, 2)], "2048 threads, expected at most 1024"),
    "none": (lambda k, x: k[1, 0], "a block of 0"),
    "negative": (lambda k, x: k[1, -1], "a block of -1"),
    "half": (lambda k, x: k[1, 1.5], "a block of 1.5"),
    "four axes": (lambda k, x: k[1, (1, 1, 1, 1)], "up to 3 sizes"),
    "no grid": (lambda k, x: k[0, 1], "a grid of 0"),
    "large": (lambda k, x: k[1 << 31, 1], "a grid of 2147483648"),
    "large along y": (lambda k, x: k[(1, 65536), 1], "65535"),
    "one": (lambda k, x: k[1], "1 value in"),
    "five": (lambda k, x: k[1, 1, 0, 0, 0], "5 values in"),
    "bare": (lambda k, x: k(1.0, x), "a call without a grid"),
    "shared": (lambda k, x: k[1, 1, 0, 1 << 20], "1048576 bytes of shared memory"),
    "less than none": (lambda k, x: k[1, 1, 0, -1], "-1 bytes of shared memory"),
    "bounds": (lambda k, x: k[1, 8](1.0, x), "found index 4, expected an index from 0 to 3"),
    "interpreted": (lambda k, x: weft.interpret(k, 1, 1)(x), "missing a required argument"),
    "sanitised": (lambda k, x: weft.sanitize(k, 1, 1)(x), "missing a required argument"),
    "no kernel": (lambda k, x: weft.sanitize(len, 1, 1), "a function under @weft.kernel"),
    "max": (lambda k, x: weft.kernel(max_threads="a"), "max_threads='a'"),
    "stars": (lambda k, x: weft.kernel(with_stars)[1, 1](x), r"parameters that each have a name"),
    "warps": (lambda k, x: k.check(1.0, x, grid=1, block=1, warp=16), "32 or 64"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches(name: str) -> None:
    """Arguments, grids and blocks that do not fit are refused before anything runs."""
    launch, message = LAUNCHES[name]
    with pytest.raises(WeftError, match=message) as caught:
        launch(weft.kernel(k_of_two), np.zeros(4))
    assert len(ours(caught.value)) <= 2
    assert str(caught.value).count("\n") < 10


def test_arguments_by_name() -> None:
    """A launch takes its arguments by name, too."""
    x = np.zeros(4)
    weft.kernel(k_of_two)[1, 4](x=x, a=3)
    np.testing.assert_array_equal(x, 3)


@weft.kernel
def with_a_mask_of_32(x: Any) -> None:
    x[0] = gpu.shfl_sync(0xFFFFFFFF, x[0], 0)


@weft.kernel
def with_a_mask_of_all(x: Any) -> None:
    here = gpu.ballot_sync(gpu.ALL, x[0] > 0)
    x[0] = gpu.shfl_sync(gpu.ALL, x[0], 0) + gpu.popc(here & gpu.ALL)
    gpu.syncwarp()


def test_masks_of_wide_warps() -> None:
    """A mask of 32 bits is refused for a device with warps of 64 threads, gpu.ALL is not."""
    x = np.zeros(64)
    with_a_mask_of_32.check(x, grid=1, block=64)
    with_a_mask_of_all.check(x, grid=1, block=64, warp=64)
    with pytest.raises(KernelError, match="0xffffffff names 32 threads of a warp of 64"):
        with_a_mask_of_32.check(x, grid=1, block=64, warp=64)
    np.testing.assert_array_equal(x, 0)  # nothing ran
    with_a_mask_of_32[1, 32](x)
    with_a_mask_of_all[1, 32](x)


def _raising(x, n):  # type: ignore[no-untyped-def]
    if n == 1:
        raise ValueError("negative")
    if n == 2:
        raise ZeroDivisionError
    x[0] = n


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize(("n", "kind"), [(1, ValueError), (2, ZeroDivisionError)])
def test_raise_is_caught_as_what_it_raises(device: str, n: int, kind: type[Exception]) -> None:
    """It is a failed launch all the same."""
    kernel = weft.kernel(device=device)(_raising)
    x = np.zeros(1)
    kernel[1, 1](x, 3)
    assert x[0] == 3
    with pytest.raises(kind, match=kind.__name__) as caught:
        kernel[1, 1](x, n)
    assert isinstance(caught.value, LaunchError)


@pytest.mark.parametrize(("body", "lines"), [
    ("c = 0\ndef inner():\n    nonlocal c\n    c += 1\ninner()\nx[0] = c", [3]),
    ("x.foo = 1\nx[0, 0] = 1\nx[0.5] = 1", [1, 2, 3]),
    ("x.foo, y = 1, 2\nx[0] = y + 1\nx[0, 0] = 1", [1, 3]),
])  # fmt: skip
def test_one_mistake_is_told_once_and_hides_no_other(body: str, lines: list[int], tmp_path: Path
                                                     ) -> None:  # fmt: skip
    """What a wrong statement sets is not known; what has a wrong field is."""
    with pytest.raises(KernelError) as caught:
        written(tmp_path, body)[1, 32](np.full(32, 2.0))
    first = (tmp_path / "program.py").read_text().splitlines().index(body.splitlines()[0].join(
        ["    ", ""]))
    assert [p.line - first for p in caught.value.problems] == lines


def _typed(x: weft.float32[:], n: weft.int32, y: weft.float64[:, :]) -> None:
    x[0] = n + y[0, 0]


def test_all_wrong_arguments_at_once() -> None:
    """With the line of the launch, carets below it, and the line of the annotations."""
    kernel = weft.kernel(_typed)
    with pytest.raises(DTypeError) as caught:
        kernel[1, 1](np.zeros(3), "n", np.zeros(4))
    told = str(caught.value).splitlines()
    assert told[0] == "launch of _typed: 3 errors"
    for row, words in zip(told[1:4], ("float64 for parameter x", "str for parameter n", "(4,)"),
                          strict=True):
        assert words in row
        assert "annotated at" in row
    start = told[4].index('kernel[1, 1](np.zeros(3), "n", np.zeros(4))')
    assert told[5] == " " * start + "^" * (len(told[4]) - start)
    with pytest.raises(DTypeError) as caught:
        kernel[1, 1](np.zeros(3, np.float32), "n", np.zeros((4, 4)))
    assert str(caught.value).count("\n") == 2


@pytest.mark.parametrize(("line", "marked", "below"), [
    ('y = "äö" + x[0]; z = nöpe(x)', "nöpe", " " * 21 + "^^^^"),
    ('y = "日本" if x[0] > 0 else nope', "nope", " " * 28 + "^^^^"),
    ("y\t= 1; y\t+=\tnope", "nope", " \t      \t  \t^^^^"),
], ids=["bytes", "wide", "tabs"])  # fmt: skip
def test_carets_below_any_text(line: str, marked: str, below: str, tmp_path: Path) -> None:
    """Columns count characters, of which some take two columns and a tab takes several."""
    with pytest.raises(KernelError) as caught:
        written(tmp_path, line)[1, 32](np.full(32, 2.0))
    problem = next(p for p in caught.value.problems if marked in p.message)
    told = str(problem).splitlines()
    assert told[1:3] == ["    " + line, "    " + below]
    assert problem.column == line.index(marked) + 4
    assert problem.end == problem.column + len(marked)
