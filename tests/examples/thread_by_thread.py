"""Runs kernels as plain Python, one thread after another, and watches the rules.

This is what tests hold the sanitiser against, so it shares nothing with it: each thread is a
generator that stops where it waits for others, and all accesses are kept and compared pair by pair.
It knows what the examples use.
"""

import ast
import math
import random
import types
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BLOCK = ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")
WARP = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "match_any_sync",
        "ballot_sync", "syncwarp")  # fmt: skip
MATRIX = ("wmma.fill_fragment", "wmma.load_matrix_sync", "wmma.mma_sync", "wmma.store_matrix_sync")
FULL = 0xFFFFFFFF
TURNS = 1_000  # of the loops of one thread


class Endless(Exception):
    """A thread goes round and round."""


class Stuck(Exception):
    """Threads wait for others that do not come."""


class Dtype:
    """A type of Weft as Python sees it: integers wrap when they are converted."""

    def __init__(self, name: str) -> None:
        self.numpy = np.dtype(name)

    def __call__(self, value: Any) -> Any:
        if self.numpy.kind not in "iu":
            return self.numpy.type(value)
        bits = self.numpy.itemsize * 8
        low = int(value) & ((1 << bits) - 1)
        return low - (1 << bits) if self.numpy.kind == "i" and low >> (bits - 1) else low


class Machine:
    """The thread that runs, and what has been broken."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.broken: set[str] = set()
        self.block = self.thread = self.grid_size = self.block_size = (0, 0, 0)
        self.epoch = 0
        self.clocks: dict[int, list[int]] = {}  # of the lanes of its warp, as a thread knows them
        self.copies: dict[int, list[list[Copy]]] = {}  # groups of a thread, the last one open
        self.turns = 0
        self.made: list[Array] = []  # shared arrays of the block
        self.count = 0  # of them that this thread has asked for

    @property
    def number(self) -> int:
        """The number of the thread in its block."""
        (x, y, z), (w, h, _) = self.thread, self.block_size
        return x + w * (y + h * z)

    def clock(self, number: int) -> list[int]:
        """Return how often a thread knows that the lanes of its warp have met others."""
        return self.clocks.setdefault(number, [0] * 32)

    def tick(self) -> None:
        """Count a turn of a loop."""
        self.turns += 1
        if self.turns > TURNS:
            raise Endless


class Array:
    """An array whose accesses are checked: bounds, first writes, and pairs of accesses."""

    def __init__(self, machine: Machine, data: np.ndarray, scope: str) -> None:
        self.machine, self.data, self.scope = machine, data, scope
        self.shape, self.size, self.dtype = data.shape, data.size, data.dtype
        self.written = np.full(data.shape, scope in ("global", "const"))
        self.accesses: dict[tuple[int, ...], dict[str, set[tuple[Any, ...]]]] = {}
        self.coming: set[tuple[int, ...]] = set()  # elements that a copy is on its way to

    def _place(self, key: Any) -> tuple[int, ...] | None:
        place = tuple(int(k) for k in key) if isinstance(key, tuple) else (int(key),)
        assert len(place) == len(self.shape)
        if all(0 <= k < n for k, n in zip(place, self.shape, strict=True)):
            return place
        self.machine.broken.add("out-of-bounds")
        return None

    def _seen(self, place: tuple[int, ...], kind: str, value: Any = None) -> None:
        m = self.machine
        if kind == "read" and not self.written[place]:
            m.broken.add("uninitialised")
        if self.scope in ("local", "const"):
            return
        if place in self.coming:
            m.broken.add("uncommitted-copy")
        bits = np.asarray(value, self.dtype).tobytes() if kind == "write" else b""
        new = m.block, m.thread, m.epoch, bits, m.number, m.clock(m.number)[m.number % 32]
        known = self.accesses.setdefault(place, {"read": set(), "write": set(), "atomic": set()})
        if new in known[kind]:
            return
        known[kind].add(new)
        for other, old in known.items():
            if kind != other or kind == "write":
                self._compare(new, old, kind == other)

    def _compare(self, new: tuple[Any, ...], known: set[tuple[Any, ...]], same: bool) -> None:
        here, me, now, bits, mine, _ = new
        for block, thread, epoch, old, number, tick in known:
            if (block, thread) == (here, me) or (block == here and epoch != now):
                continue
            if block == here and number // 32 == mine // 32 and (
                self.machine.clock(mine)[number % 32] > tick
            ):
                continue  # the warp has met in between
            if not same or old != bits:  # all may write the same
                self.machine.broken.add("race")

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, slice) for k in keys):
            return Part(self, tuple(int(k.start if isinstance(k, slice) else k) for k in keys))
        place = self._place(key)
        if place is None:
            return Dtype(self.dtype.name)(0)
        self._seen(place, "read")
        value = self.data[place]
        return int(value) if self.dtype.kind in "iub" else value

    def __setitem__(self, key: Any, value: Any) -> None:
        place = self._place(key)
        if place is not None:
            value = Dtype(self.dtype.name)(value)
            self._seen(place, "write", value)
            self.data[place], self.written[place] = value, True

    def add(self, key: Any, value: Any) -> Any:
        """Add atomically."""
        place = self._place(key)
        if place is None:
            return Dtype(self.dtype.name)(0)
        if not self.written[place]:
            self.machine.broken.add("uninitialised")
        self._seen(place, "atomic")
        old = self.data[place]
        self.data[place] = Dtype(self.dtype.name)(old + value)
        return old


class Part:
    """What of an array begins at some place."""

    def __init__(self, array: Array, start: tuple[int, ...]) -> None:
        self.array, self.start = array, start

    def at(self, k: int) -> tuple[int, ...]:
        """Return where the k-th element along the last axis lies."""
        return (*self.start[:-1], self.start[-1] + k)

    def is_aligned(self, size: int) -> bool:
        """Whether it begins at a multiple of so many bytes."""
        place = 0
        for k, n in zip(self.start, self.array.shape, strict=True):
            place = place * n + k
        return place * self.array.dtype.itemsize % size == 0

    def _at(self, key: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(a + b for a, b in zip(self.start, key, strict=True))

    def __getitem__(self, key: tuple[int, ...]) -> Any:
        return self.array[self._at(key)]

    def __setitem__(self, key: tuple[int, ...], value: Any) -> None:
        self.array[self._at(key)] = value


class Copy(NamedTuple):
    """A copy of one element that is on its way."""

    target: Array
    place: tuple[int, ...]
    value: Any


class Fragment:
    """A matrix of a warp; each of its threads has a copy of all of it."""

    def __init__(self, use: str, m: int, n: int, k: int, dtype: Dtype, layout: str = "") -> None:
        self.shape = {"a": (m, k), "b": (k, n), "c": (m, n)}[use]
        self.data = np.zeros(self.shape, dtype.numpy)


class Gpu:
    """`weft.gpu`, but for what waits."""

    ALL, warpsize = FULL, 32

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.atomic = types.SimpleNamespace(add=lambda array, key, v: array.add(key, v))
        self.shared = types.SimpleNamespace(array=self._shared)
        self.local = types.SimpleNamespace(array=lambda *a: self._new(*a, "local"))
        self.wmma = types.SimpleNamespace(matrix_a="a", matrix_b="b", accumulator="c",
                                          row_major="row", fragment=Fragment)  # fmt: skip
        self.const = types.SimpleNamespace(array_like=lambda a: Array(machine, a, "const"))

    def _new(self, shape: Any, dtype: Any, scope: str) -> Array:
        return Array(self.m, np.zeros(shape, getattr(dtype, "numpy", dtype)), scope)

    def _shared(self, shape: Any, dtype: Any) -> Array:
        if self.m.count == len(self.m.made):
            self.m.made.append(self._new(shape, dtype, "shared"))
        self.m.count += 1
        return self.m.made[self.m.count - 1]

    def __getattr__(self, name: str) -> Any:
        m = self.m
        found = {"threadIdx": m.thread, "blockIdx": m.block, "blockDim": m.block_size,
                 "gridDim": m.grid_size}.get(name)  # fmt: skip
        if found is not None:
            return types.SimpleNamespace(**dict(zip("xyz", found, strict=True)))
        if name == "laneid":
            return m.number % 32
        raise AttributeError(name)

    def grid(self, axes: int) -> Any:
        """Return the index of the thread."""
        m = self.m
        at = [b * n + t for b, n, t in zip(m.block, m.block_size, m.thread, strict=True)]
        return at[0] if axes == 1 else tuple(at[:axes])

    def gridsize(self, axes: int) -> Any:
        """Return the number of threads."""
        n = [a * b for a, b in zip(self.m.grid_size, self.m.block_size, strict=True)]
        return n[0] if axes == 1 else tuple(n[:axes])

    def memcpy_async(self, target: Part, source: Part, count: int = 1) -> None:
        """Ask for a copy on the side."""
        m = self.m
        size = count * target.array.dtype.itemsize
        if not (target.is_aligned(size) and source.is_aligned(size)):
            m.broken.add("misaligned")
        for k in range(count):
            value = source.array[source.at(k)]
            place = target.at(k)
            if not all(0 <= i < n for i, n in zip(place, target.array.shape, strict=True)):
                m.broken.add("out-of-bounds")
                continue
            target.array._seen(place, "write", value)
            target.array.coming.add(place)
            m.copies.setdefault(m.number, [[]])[-1].append(Copy(target.array, place, value))

    def commit_group(self) -> None:
        """End a group of copies."""
        self.m.copies.setdefault(self.m.number, [[]]).append([])

    def wait_group(self, pending: int = 0) -> None:
        """Let all but some of the groups arrive."""
        groups = self.m.copies.setdefault(self.m.number, [[]])
        while len(groups) - 1 > pending:
            for target, place, value in groups.pop(0):
                target.coming.discard(place)
                target[place] = value

    def lanemask_lt(self) -> int:
        """Return the lanes below this one."""
        return (1 << (self.m.number % 32)) - 1

    def popc(self, x: int) -> int:
        """Return how many bits are set."""
        return int(x).bit_count()

    def rsqrt(self, x: Any) -> Any:
        """Return 1 / sqrt(x)."""
        return 1 / math.sqrt(x)


class _Waits(ast.NodeTransformer):
    """Makes generators of functions: what waits for other threads yields."""

    def __init__(self, functions: set[str]) -> None:
        self.functions = functions

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name.removeprefix("gpu.") in (*BLOCK, *WARP, *MATRIX):
            what = [ast.Constant(name.removeprefix("gpu.")), ast.Constant(node.lineno)]
            if name in MATRIX or (name == "gpu.syncwarp" and not node.args):
                what.append(ast.Constant(FULL))  # all of a warp
            return ast.Yield(ast.Tuple([*what, *node.args], ast.Load()))
        return ast.YieldFrom(node) if name in self.functions else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.parse("tick()").body[0])
        return node


def _left(body: list[ast.stmt]) -> None:
    """Let a kernel say that it returned, other than by coming to its end."""
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Return):
                node.value = ast.Constant("left")


def _integer(value: Any) -> int:
    """Convert as kernels do: NaN to 0, and what is too large to the largest integer."""
    if math.isnan(value):
        return 0
    return int(max(min(value, 2**63 - 1), -(2**63)))


def load(file: Path, machine: Machine) -> dict[str, Any]:
    """Return the names of an example whose kernels run here."""
    tree = ast.parse(file.read_text())
    made = {f.name: ast.unparse(f.decorator_list[0]) for f in tree.body
            if isinstance(f, ast.FunctionDef) and f.decorator_list}  # fmt: skip
    waits = _Waits({n for n, d in made.items() if d == "weft.func"})
    body: list[ast.stmt] = []
    for stmt in tree.body:
        if isinstance(stmt, ast.FunctionDef) and stmt.name in made:
            if made[stmt.name] == "weft.kernel":
                _left(stmt.body)
            stmt = waits.visit(stmt)
            stmt.body.insert(0, ast.parse("if False: yield").body[0])
        if not ast.unparse(stmt).startswith(("import weft", "from weft")):
            body.append(stmt)
    tree.body = body
    weft = types.SimpleNamespace(
        cdiv=lambda a, b: -(-a // b), func=lambda f: f, kernel=lambda f: _Kernel(f, machine),
        **{n: Dtype(n) for n in _TYPES})
    names = {"weft": weft, "gpu": Gpu(machine), "tick": machine.tick, "__name__": file.stem,
             "int": _integer}  # fmt: skip
    exec(compile(ast.fix_missing_locations(tree), str(file), "exec"), names)
    return names


class _Kernel:
    def __init__(self, function: Callable[..., Generator[Any, Any, Any]], m: Machine) -> None:
        self.function, self.m = function, m

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        grid, block = (tuple(s) if isinstance(s, tuple) else (s,) for s in configuration)
        return lambda *args: self._launch((*grid, 1, 1)[:3], (*block, 1, 1)[:3], args)

    def _launch(self, grid: Any, block: Any, args: tuple[Any, ...]) -> None:
        m = self.m
        m.grid_size, m.block_size = grid, block
        given = [Array(m, a, "global") if isinstance(a, np.ndarray) else a for a in args]
        blocks = _all(m.grid_size)
        m.random.shuffle(blocks)
        for m.block in blocks:
            m.epoch, m.made, m.clocks, m.copies = 0, [], {}, {}
            with np.errstate(all="ignore"):
                _Block(m, self.function, given).run()


_TYPES = ("int32", "int64", "uint32", "uint64", "float16", "float32", "float64")


def _all(sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [(x, y, z) for z in range(sizes[2]) for y in range(sizes[1]) for x in range(sizes[0])]


class _Block:
    """The threads of one block: each runs until it waits, and goes on when all are there."""

    def __init__(self, m: Machine, function: Callable[..., Any], args: list[Any]) -> None:
        self.m = m
        self.threads = _all(m.block_size)
        self.running = [function(*args) for _ in self.threads]
        self.counts = [(0, 0)] * len(self.threads)  # shared arrays, turns of loops
        self.waiting: dict[int, tuple[Any, ...]] = {}
        self.ended: dict[int, Any] = {}

    def _go(self, k: int, answer: Any = None) -> None:
        m = self.m
        m.thread, (m.count, m.turns) = self.threads[k], self.counts[k]
        self.waiting.pop(k, None)
        try:
            self.waiting[k] = self.running[k].send(answer)
        except StopIteration as end:
            self.ended[k] = end.value
        except UnboundLocalError:
            m.broken.add("uninitialised")
            self.ended[k] = "left"
        self.counts[k] = m.count, m.turns

    def run(self) -> None:
        """Run to the end."""
        order = list(range(len(self.threads)))
        self.m.random.shuffle(order)
        for k in order:
            self._go(k)
        while self.waiting:
            warps = sorted({k // 32 for k, w in self.waiting.items() if w[0] not in BLOCK})
            if warps:
                self._warp(warps[0])
            else:
                self._barrier()

    def _barrier(self) -> None:
        places = {w[:2] for w in self.waiting.values()}
        if len(places) > 1 or any(end != "left" for end in self.ended.values()):
            self.m.broken.add("barrier-divergence")
            raise Stuck
        ((what, _),) = places
        holds = [bool(w[2]) for w in self.waiting.values() if len(w) > 2]
        answer = {"syncthreads": None, "syncthreads_count": sum(holds),
                  "syncthreads_and": all(holds), "syncthreads_or": any(holds)}[what]  # fmt: skip
        self.m.epoch += 1
        for k in list(self.waiting):
            self._go(k, answer)

    def _warp(self, warp: int) -> None:
        here = {k % 32: w for k, w in self.waiting.items() if k // 32 == warp and w[0] not in BLOCK}
        line = next(iter(here.values()))[1]
        here = {lane: w for lane, w in here.items() if w[1] == line}
        for lane, (_, _, mask, *_) in here.items():
            named = {other for other in range(32) if mask >> other & 1}
            there = {other for other in named if warp * 32 + other < len(self.threads)}
            if lane not in named or there - here.keys() or any(
                here[other][2] != mask for other in named & here.keys()
            ):
                self.m.broken.add("warp-mask")
        what = next(iter(here.values()))[0]
        if what in MATRIX:
            lanes = sorted(here)

            def turn(at: Any) -> None:  # to the thread that has an element on a GPU
                self.m.thread = self.threads[warp * 32 + at[0] % 8 * 4 + at[1] % 8 // 2]

            _matrix(self.m, [here[lane] for lane in lanes], turn)
            answers = dict.fromkeys(lanes)
        elif what == "syncwarp":
            self._meet(warp, here)
            answers = dict.fromkeys(here)
        else:
            answers = {lane: _answer(lane, w, here) for lane, w in here.items()}
        for lane, answer in answers.items():
            self._go(warp * 32 + lane, answer)


    def _meet(self, warp: int, here: dict[int, tuple[Any, ...]]) -> None:
        """Order what the threads that name each other did before what they do now."""
        for mask in {w[2] for w in here.values()}:
            clocks = {lane: self.m.clock(warp * 32 + lane) for lane, w in here.items()
                      if w[2] == mask}  # fmt: skip
            for lane, clock in clocks.items():
                clock[lane] += 1
            latest = [max(ticks) for ticks in zip(*clocks.values(), strict=True)]
            for clock in clocks.values():
                clock[:] = latest


def _answer(lane: int, waits: tuple[Any, ...], here: dict[int, tuple[Any, ...]]) -> Any:
    what, _, _, value, *more = waits
    values = {other: w[3] for other, w in here.items()}
    if what == "match_any_sync":
        return sum(1 << other for other, v in values.items() if v == value)
    if what == "ballot_sync":
        return sum(1 << other for other, v in values.items() if v)
    width = more[1] if len(more) > 1 else 32
    first = lane - lane % width
    source = {"shfl_sync": first + more[0] % width, "shfl_up_sync": lane - more[0],
              "shfl_down_sync": lane + more[0], "shfl_xor_sync": lane ^ more[0]}[what]  # fmt: skip
    return values.get(source, value) if first <= source < first + width else value


def _matrix(m: Machine, threads: list[tuple[Any, ...]], turn: Callable[[Any], None]) -> None:
    """Carry out an operation on fragments for all threads of a warp."""
    what, _, _, *args = threads[0]
    if what == "wmma.store_matrix_sync":
        places = _places(m, *args[:2], *args[2:])
        for at in np.ndindex(args[1].shape):
            turn(at)
            places[0][places[1](at)] = args[1].data[at]
        return
    made = np.zeros(args[0].shape, args[0].data.dtype)
    if what == "wmma.fill_fragment":
        made[...] = args[1]
    elif what == "wmma.load_matrix_sync":
        places = _places(m, args[1], args[0], *args[2:])
        for at in np.ndindex(made.shape):
            turn(at)
            made[at] = places[0][places[1](at)]
    else:
        _, a, b, total = args
        made[...] = a.data.astype(np.float32) @ b.data.astype(np.float32) + total.data
    for thread in threads:
        thread[3].data = made


def _places(m: Machine, place: Any, fragment: Fragment,
            pitch: int | None = None) -> tuple[Array, Callable[[Any], Any]]:  # fmt: skip
    """Return an array, and where an element of a matrix lies in it."""
    part = place if isinstance(place, Part) else Part(place, (0,) * len(place.shape))
    array = part.array
    own = array.shape[-1] if len(array.shape) == 2 else pitch
    if pitch is not None and pitch != own:
        m.broken.add("assertion")
    assert own is not None
    if not part.is_aligned(16) or own * array.dtype.itemsize % 16:
        m.broken.add("misaligned")
    if len(array.shape) == 1:
        return array, lambda at: part.start[0] + at[0] * own + at[1]
    return array, lambda at: tuple(a + b for a, b in zip(part.start, at, strict=True))


def broken_rules(file: Path, sizes: tuple[int, ...], seed: int = 0) -> set[str]:
    """Return the kinds of rules that an example breaks on problems of some sizes."""
    machine = Machine(seed)
    names = load(file, machine)
    for n in sizes:
        # What computes something else breaks no rule by that.
        with suppress(AssertionError, Endless, Stuck, ArithmeticError, ValueError):
            names["check"](n)
    return machine.broken
