"""Pictures that are not computed yet, and the kernels that compute them.

A picture is memory that holds one, and the operations that have been asked for since. Kernels are
made where memory is needed: for a save, for a blur (whose pixels need many of their neighbours),
for a ``@kernel`` block. All operations that wait then become part of that kernel.

Values are float32 from 0 to 255 between load and save; nothing is rounded on the way.
"""

from __future__ import annotations

import contextlib
import math
from typing import NamedTuple

from examples.imagepipe.compute import Code

import weft
from weft import build

TILE = 1024  # pixels of a row that one block blurs
THREADS = 128  # of that block
MOST_WAITING = 24  # operations in one kernel


class Memory(NamedTuple):
    """Memory of a picture: ``bytes`` (height, width, 3) or ``planes`` (3, height, width)."""

    number: int
    kind: str
    height: int
    width: int

    @property
    def shape(self):
        """Its axes."""
        planes = (3, self.height, self.width)
        return planes if self.kind == "planes" else (*planes[1:], 3)

    @property
    def dtype(self):
        """Type of its elements."""
        return weft.float32 if self.kind == "planes" else weft.uint8


class Step(NamedTuple):
    """One kernel of a program: what it is called on, and which lines are in it."""

    program: object
    memories: tuple
    lines: tuple
    launch: tuple = ()
    device: str = "cpu"


# --- operations: each gives a pixel from pixels of the picture before it


class Brightness(NamedTuple):
    """Each part of a pixel times a factor."""

    factor: float
    at: tuple
    name = "brightness"

    def pixel(self, f, before, y, x):
        """Return red, green and blue at a place."""
        return [f.op("*", v, self.factor, at=self.at) for v in before(y, x)]


class Grayscale(NamedTuple):
    """How light a pixel is (ITU-R BT.601), in all its parts."""

    at: tuple
    name = "grayscale"

    def pixel(self, f, before, y, x):
        """Return red, green and blue at a place."""
        r, g, b = before(y, x)
        with f.at(*self.at):
            luma = f.let("luma", r * 0.299 + g * 0.587 + b * 0.114)
        return [luma, luma, luma]


class Crop(NamedTuple):
    """A part of the picture."""

    top: int
    left: int
    at: tuple
    name = "crop"

    def pixel(self, f, before, y, x):
        """Return red, green and blue at a place."""
        return before(f.op("+", y, self.top, at=self.at), f.op("+", x, self.left, at=self.at))


class Resize(NamedTuple):
    """Bilinear, with the centres of pixels at halves: what lies between two is their mean."""

    before: tuple
    after: tuple
    at: tuple
    name = "resize"

    def pixel(self, f, before, y, x):
        """Return red, green and blue at a place."""
        with f.at(*self.at):
            (top, bottom, v), (left, right, u) = (
                self._ends(f, i, n, m) for i, n, m in zip((y, x), self.before, self.after,
                                                          strict=True))
            corners = [before(j, i) for j in (top, bottom) for i in (left, right)]
        with f.at(*self.at):
            return [f.let("mixed", _mix(_mix(a, b, u), _mix(c, d, u), v))
                    for a, b, c, d in zip(*corners, strict=True)]

    @staticmethod
    def _ends(f, i, n, m):
        """Return two neighbours, and how far between them a pixel lies."""
        place = f.let("place", (f.cast(i, weft.float64) + 0.5) * (n / m) - 0.5)
        low = f.let("low", f.call("floor", place))
        part = f.let("part", f.cast(place - f.cast(low, weft.float64), weft.float32))
        return _held(f, low, n), _held(f, low + 1, n), part


def _held(f, i, count):
    """Return an index that is moved to the nearest one there is."""
    return f.let("held", f.call("min", f.call("max", i, 0), count - 1))


def _mix(a, b, part):
    return a + (b - a) * part


class Compute(NamedTuple):
    """A block of code without @kernel: it sees and changes one pixel."""

    tree: object
    file: str
    errors: object
    functions: dict
    size: tuple
    at: tuple
    name = "compute"

    def pixel(self, f, before, y, x):
        """Return red, green and blue at a place."""
        values = before(y, x)
        parts = [f.variable(c, weft.float32, v, at=self.at)
                 for c, v in zip("rgb", values, strict=True)]
        names = dict(zip("rgb", parts, strict=True))
        names |= {"x": x, "y": y, "height": self.size[0], "width": self.size[1]}
        Code(f, self.file, self.errors, self.functions, names).body(self.tree)
        return [p.get(at=self.at) for p in parts]


COSTLY = (Resize, Compute)  # what is not to be repeated for each neighbour


class Picture(NamedTuple):
    """Memory and the operations that wait.

    ``weights`` is there where the memory has been blurred along rows, and not yet along columns.
    """

    memory: Memory
    waiting: tuple = ()
    height: int = 0
    width: int = 0
    weights: tuple = ()
    lines: tuple = ()

    def then(self, operation, height=None, width=None):
        """Return the picture with one more operation."""
        lines = (*self.lines, (operation.at[1], operation.name))
        return self._replace(waiting=(*self.waiting, operation), lines=lines,
                             height=height or self.height, width=width or self.width)

    @property
    def is_costly(self):
        """Whether a pixel takes much to compute."""
        return bool(self.weights) or any(isinstance(op, COSTLY) for op in self.waiting)


def gauss(sigma):
    """Return half of a Gaussian, from its centre out to three times `sigma`, of sum 1 in all."""
    reach = max(math.ceil(3 * sigma), 1)
    half = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(reach + 1)]
    total = half[0] + 2 * sum(half[1:])
    return tuple(w / total for w in half)


class Planner:
    """Makes the kernels of a program.

    Attributes
    ----------
    steps : list of Step
        The kernels so far.
    memories : list of Memory
        What they work on.
    """

    def __init__(self, file, errors):
        self.file, self.errors = file, errors
        self.steps, self.memories = [], []

    def memory(self, kind, height, width):
        """Return new memory."""
        made = Memory(len(self.memories), kind, height, width)
        self.memories.append(made)
        return made

    # --- kernels

    def _pixels(self, f, picture):
        """Declare the memory of a picture; return what gives its pixels."""
        source = picture.memory
        array = f.array("source", source.dtype, source.shape)

        def stored(y, x):
            if picture.weights:
                return _column(f, array, picture.weights, y, x, source.height)
            if source.kind == "planes":
                return [array[c, y, x] for c in range(3)]
            return [f.cast(array[y, x, c], weft.float32) for c in range(3)]

        found = stored
        for operation in picture.waiting:
            found = _after(f, operation, found)
        return found

    def _written(self, picture, kind):
        """Make the kernel that writes a picture to memory."""
        target = self.memory(kind, picture.height, picture.width)
        last = (self.file, picture.lines[-1][0])
        with build.function(self._name(picture, kind), at=last, fastmath=True) as f, f.at(*last):
            pixel = self._pixels(f, picture)
            out = f.array("out", target.dtype, target.shape, writable=True)
            with f.parallel(target.height, target.width, names=("y", "x")) as (y, x):
                for c, value in enumerate(pixel(y, x)):
                    if kind == "planes":
                        out[c, y, x] = value
                    else:
                        out[y, x, c] = _rounded(f, value)
        self._add(f.program, picture, target)
        return Picture(target, (), target.height, target.width)

    def _name(self, picture, kind):
        names = [name for _, name in picture.lines]
        return "_".join(dict.fromkeys(names)) or kind

    def _add(self, program, picture, target, launch=(), device="cpu"):
        lines = tuple(dict.fromkeys(picture.lines))
        self.steps.append(Step(program, (picture.memory, target), lines, launch, device))

    def settled(self, picture):
        """Return a picture for which nothing waits, in planes."""
        if picture.waiting or picture.weights or picture.memory.kind == "bytes":
            return self._written(picture, "planes")
        return picture

    def apply(self, picture, operation, height=None, width=None):
        """Return a picture after an operation that needs few pixels for each."""
        again = isinstance(operation, Resize) and picture.is_costly
        if again or len(picture.waiting) >= MOST_WAITING:
            picture = self._written(picture, "planes")
        return picture.then(operation, height, width)

    def blur(self, picture, sigma, where):
        """Blur along rows, in a kernel with all that waits; columns are left to the next one."""
        if picture.weights:
            picture = self._written(picture, "planes")
        weights = gauss(sigma)
        reach = len(weights) - 1
        picture = picture._replace(lines=(*picture.lines, (where[1], "blur")))
        target = self.memory("planes", picture.height, picture.width)
        with build.kernel(self._name(picture, "blur"), at=where, fastmath=True) as k, k.at(*where):
            pixel = self._pixels(k, picture)
            out = k.array("out", weft.float32, target.shape, writable=True)
            row = k.shared("row", weft.float32, (3, TILE + 2 * reach))
            y = k.let("y", k.cast(k.block("y"), weft.int64))
            first = k.let("first", k.cast(k.block("x"), weft.int64) * TILE)
            with k.loop(k.thread("x"), TILE + 2 * reach, THREADS, name="s") as s:
                x = _held(k, first + s - reach, target.width)
                for c, value in enumerate(pixel(y, x)):
                    row[c, s] = value
            k.barrier()
            with k.loop(k.thread("x"), TILE, THREADS, name="s") as s:
                x = k.let("x", first + s)
                with k.if_(x < target.width):
                    for c in range(3):
                        out[c, y, x] = _symmetric(k, weights, lambda d, c=c, s=s: row[
                            c, s + (reach + d)])
        grid = (-(-target.width // TILE), target.height)
        self._add(k.program, picture, target, (grid, THREADS))
        return Picture(target, (), target.height, target.width, weights,
                       ((where[1], "blur"),))

    def kernel(self, picture, tree, functions, block, device, where):
        """Run a block of code as a kernel of its own, from planes to planes."""
        picture = self.settled(picture)
        height, width = picture.height, picture.width
        target = self.memory("planes", height, width)
        with build.kernel("compute", at=where) as k, k.at(*where):
            planes = k.array("source", weft.float32, target.shape)
            out = k.array("out", weft.float32, target.shape, writable=True)
            x, y = (k.let(n, k.cast(v, weft.int64)) for n, v in zip("xy", k.grid(2), strict=True))
            inside = k.let("inside", (x < width) & (y < height))
            parts = [k.variable(c, weft.float32, 0) for c in "rgb"]
            with k.if_(inside):
                for c, part in enumerate(parts):
                    part.set(planes[c, y, x])
            names = dict(zip("rgb", parts, strict=True))
            names |= {"x": x, "y": y, "width": width, "height": height,
                      "lx": k.cast(k.thread("x"), weft.int64),
                      "ly": k.cast(k.thread("y"), weft.int64), "inside": inside}
            code = Code(k, self.file, self.errors, functions, names, planes)
            together = any(t.data in ("barrier", "shared") for t in tree.iter_subtrees())
            with contextlib.nullcontext() if together else k.if_(inside):
                code.body(tree)
            with k.if_(inside):
                for c, part in enumerate(parts):
                    out[c, y, x] = part
        grid = tuple(-(-n // b) for n, b in zip((width, height), block, strict=True))
        picture = picture._replace(lines=((where[1], "compute"),))
        self._add(k.program, picture, target, (grid, block), device)
        return Picture(target, (), height, width)

    def save(self, picture, where):
        """Return the memory of a picture as bytes."""
        picture = picture._replace(lines=(*picture.lines, (where[1], "save")))
        return self._written(picture, "bytes").memory


def _after(f, operation, before):
    return lambda y, x: operation.pixel(f, before, y, x)


def _column(f, array, weights, y, x, height):
    """Return a pixel that is blurred along its column; past the edge it is as on the edge."""
    rows = {d: _held(f, y + d, height) for d in range(1 - len(weights), len(weights))}
    return [_symmetric(f, weights, lambda d, c=c: array[c, rows[d], x]) for c in range(3)]


def _symmetric(f, weights, read):
    """Return a weighted sum of neighbours, those of one weight together."""
    total = f.let("total", read(0) * weights[0])
    for d in range(1, len(weights)):
        total = f.let("total", total + (read(-d) + read(d)) * weights[d])
    return total


def _rounded(f, value):
    """Return a value as a byte: the nearest one, between 0 and 255."""
    held = f.call("min", f.call("max", value, 0.0), 255.0)
    return f.cast(f.cast(held + 0.5, weft.int32), weft.uint8)
