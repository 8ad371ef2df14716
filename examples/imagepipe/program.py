"""Image programs: translated, run, and explained."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import PIL.Image
from examples.imagepipe import fusion
from examples.imagepipe.compute import Code, Poisoned
from examples.imagepipe.syntax import at, parse

import weft
from weft import build
from weft.errors import WeftError

MOST = 1 << 15  # pixels along a side
PIXELS = 1 << 26  # in all: 768 MiB as planes
DEVICES = ("cpu", "interpreter")


class Unit:
    """One translated program, as ``weft compile`` needs it.

    Attributes
    ----------
    steps : list of Step
        Its kernels, in order.
    programs : list
        What ``weft.build`` made of it: functions, and kernels with their launch.
    """

    def __init__(self, path, planner, loads, saves):
        self.path, self.steps, self.memories = path, planner.steps, planner.memories
        self.loads, self.saves = loads, saves
        self.programs = [step.program[step.launch] if step.launch else step.program
                         for step in self.steps]

    def compute(self, pictures):
        """Run the kernels on loaded pictures (in order); return the saved ones, by file."""
        arrays = [None] * len(self.memories)
        for (memory, _), picture in zip(self.loads, pictures, strict=True):
            arrays[memory.number] = picture
        for step in self.steps:
            for memory in step.memories:
                if arrays[memory.number] is None:
                    arrays[memory.number] = np.empty(memory.shape, memory.dtype.numpy)
            given = [arrays[m.number] for m in step.memories]
            if not step.launch:
                step.program(*given)
            elif step.device == "interpreter":
                weft.interpret(step.program, *step.launch)(*given)
            else:
                step.program[step.launch](*given)
        return {path: arrays[memory.number] for memory, path in self.saves}

    def read(self):
        """Return the pictures that it loads."""
        return [_pixels(path) for _, path in self.loads]

    def run(self, arguments=()):
        """Read, compute, write."""
        if arguments:
            raise WeftError("image program", found=f"arguments {list(arguments)}", expected="none")
        for path, picture in self.compute(self.read()).items():
            try:
                PIL.Image.fromarray(picture).save(path)
            except (OSError, ValueError) as error:
                raise WeftError(f"save {path}", found=str(error),
                                expected="a file that can be written") from None

    def sanitize(self):
        """Run the kernels on the interpreter device; return what they do wrong."""
        arrays = [np.zeros(m.shape, m.dtype.numpy) for m in self.memories]
        for (memory, _), picture in zip(self.loads, self.read(), strict=True):
            arrays[memory.number] = picture
        found = []
        for step in self.steps:
            given = [arrays[m.number] for m in step.memories]
            check = weft.sanitize(step.program, *step.launch) if step.launch else (
                step.program.sanitize)
            found.extend(check(*given).findings)
        return found

    def explain(self):
        """Return which statements each kernel computes."""
        count = len(self.steps)
        rows = [f"{self.path.name}: {sum(len(s.lines) for s in self.steps)} operations in "
                f"{count} kernel{'s' * (count != 1)}"]
        for number, step in enumerate(self.steps, 1):
            source, target = step.memories
            parts = ", ".join(f"{name} (line {line})" for line, name in step.lines)
            form = "a grid of threads" if step.launch else "parallel loops"
            where = f", on the {step.device}" if step.device != "cpu" else ""
            rows.append(f"  {number}. {parts}: {source.width}x{source.height} {source.kind} -> "
                        f"{target.width}x{target.height} {target.kind}, {form}{where}")
        return "\n".join(rows)


def _pixels(path):
    try:
        with PIL.Image.open(path) as picture:
            return np.ascontiguousarray(np.asarray(picture.convert("RGB")))
    except (OSError, ValueError) as error:
        raise WeftError(f"load {path}", found=str(error), expected="a whole picture") from None


def translate(path):
    """Return an image program, ready to run; files are looked for beside it.

    Raises
    ------
    KernelError
        With everything that is wrong in it.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WeftError(f"read {path}", found=str(error), expected="a text file") from None
    build.source_text(str(path), text)  # what errors show, whatever becomes of the file
    errors = build.Errors(path.name)
    made = _Translation(path, errors)
    for statement in parse(text, str(path), errors):
        with errors, contextlib.suppress(Poisoned):
            getattr(made, statement.data)(statement)
    errors.check()
    return Unit(path, made.planner, made.loads, made.saves)


class _Translation:
    """Walks through the statements with the pictures that they change."""

    def __init__(self, path, errors):
        self.path, self.file, self.errors = path, str(path), errors
        self.pictures, self.functions = {}, {}
        self.planner = fusion.Planner(self.file, errors)
        self.loads, self.saves = [], []

    def at(self, node):
        return at(node, self.file)

    def wrong(self, message, node, hint=""):
        self.errors.note(message, self.at(node), hint)
        return Poisoned()

    def known(self, name):
        if name not in self.pictures:
            listed = ", ".join(sorted(self.pictures)) or "none is loaded yet"
            raise self.wrong(f"there is no picture {name}", name, f"pictures: {listed}")
        if self.pictures[name] is None:
            raise Poisoned
        return self.pictures[name]

    def number(self, tree, low, high, what):
        value = float(tree.children[0])
        if not low <= value <= high:
            raise self.wrong(f"{what} of {value:g}", tree, f"{low:g} to {high:g}")
        return value

    def size(self, word):
        width, height = map(int, word.split("x"))
        if not (1 <= width <= MOST and 1 <= height <= MOST and width * height <= PIXELS):
            raise self.wrong(f"a size of {word}", word,
                             f"1 to {MOST} along a side, up to {PIXELS >> 20} million in all")
        return height, width

    # --- statements

    def load(self, tree):
        word, name = tree.children
        if name in self.pictures:
            raise self.wrong(f"there is a picture {name} already", name)
        self.pictures[str(name)] = None
        path = self.path.parent / word[1:-1]
        try:
            with PIL.Image.open(path) as picture:
                width, height = picture.size
        except (OSError, ValueError, PIL.Image.DecompressionBombError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else "not a picture"
            raise self.wrong(f"{word[1:-1]}: {reason}", word, f"looked for {path}") from None
        memory = self.planner.memory("bytes", height, width)
        self.loads.append((memory, path))
        self.pictures[str(name)] = fusion.Picture(memory, (), height, width, (),
                                                  ((tree.meta.line, "load"),))

    def copy(self, tree):
        old, name = tree.children
        picture = self.known(old)
        if name in self.pictures:
            raise self.wrong(f"there is a picture {name} already", name)
        self.pictures[str(name)] = picture

    def _change(self, name, picture):
        self.pictures[str(name)] = picture

    def resize(self, tree):
        name, word = tree.children
        picture, (height, width) = self.known(name), self.size(word)
        operation = fusion.Resize((picture.height, picture.width), (height, width), self.at(tree))
        self._change(name, self.planner.apply(picture, operation, height, width))

    def crop(self, tree):
        name, word, left, top = tree.children
        picture, (height, width) = self.known(name), self.size(word)
        left, top = (int(self.number(t, 0, MOST, "a place")) for t in (left, top))
        if left + width > picture.width or top + height > picture.height:
            raise self.wrong(f"{word} at {left}, {top} reaches past the edge", tree,
                             f"{name} is {picture.width}x{picture.height} here")
        operation = fusion.Crop(top, left, self.at(tree))
        self._change(name, self.planner.apply(picture, operation, height, width))

    def blur(self, tree):
        name, radius = tree.children
        picture = self.known(name)
        sigma = self.number(radius, 0.1, 100, "a blur")
        self._change(name, self.planner.blur(picture, sigma, self.at(tree)))

    def brightness(self, tree):
        name, factor = tree.children
        picture = self.known(name)
        operation = fusion.Brightness(self.number(factor, 0, 1e6, "a brightness"), self.at(tree))
        self._change(name, self.planner.apply(picture, operation))

    def grayscale(self, tree):
        (name,) = tree.children
        self._change(name, self.planner.apply(self.known(name), fusion.Grayscale(self.at(tree))))

    def save(self, tree):
        name, word = tree.children
        picture = self.known(name)
        path = self.path.parent / word[1:-1]
        if path.suffix.lower() not in PIL.Image.registered_extensions():
            raise self.wrong(f"{word[1:-1]} names no kind of picture", word, "such as .png, .jpg")
        if any(path == other for _, other in self.saves):
            raise self.wrong(f"{word[1:-1]} is saved already", word)
        self.saves.append((self.planner.save(picture, self.at(tree)), path))

    def define(self, tree):
        name, names, value = tree.children
        params = [] if names is None else [str(n) for n in names.children]
        if name in self.functions or len(set(params)) < len(params):
            raise self.wrong(f"{name} is defined already" if name in self.functions else
                             f"{name} has two parameters of one name", name)

        def emit(*values):
            builder = values[0].builder if values else None
            code = Code(builder, self.file, self.errors, self.functions,
                        dict(zip(params, values, strict=True)))
            try:
                return code.real(code.number(value), value)
            except Poisoned:
                return 0.0

        if not params:
            raise self.wrong(f"{name} has no parameters", name)
        self.functions[str(name)] = build.device(
            str(name), dict.fromkeys(params, weft.float32), weft.float32, at=self.at(tree))(emit)

    def compute(self, tree):
        name = next(c for c in tree.children if not hasattr(c, "data"))
        body = tree.children[-1]
        notes = [c for c in tree.children if getattr(c, "data", "") == "annotation"]
        picture = self.known(name)
        is_kernel, device, block = self._annotations(notes)
        where = (self.file, tree.meta.line, tree.meta.column)
        if is_kernel:
            made = self.planner.kernel(picture, body, self.functions, block, device, where)
            self._change(name, made)
            return
        operation = fusion.Compute(body, self.file, self.errors, self.functions,
                                   (picture.height, picture.width), where)
        self._change(name, self.planner.apply(picture, operation))

    def _annotations(self, notes):
        """Return whether a block is a kernel, its device, and the size of its blocks."""
        found = {}
        for note in notes:
            name, *values = note.children
            values = [v.children[0] for v in values if v is not None]
            if name not in ("kernel", "device", "workgroup"):
                raise self.wrong(f"there is no annotation @{name}", note,
                                 "@kernel, @device(cpu), @workgroup(16, 16)")
            if name in found:
                raise self.wrong(f"a second @{name}", note)
            found[str(name)] = note
            if name == "kernel" and values:
                raise self.wrong("@kernel takes nothing", note)
            if name == "device" and (len(values) != 1 or values[0] not in DEVICES):
                raise self.wrong("no such device", note, "@device(cpu) or @device(interpreter)")
            if name == "workgroup":
                sizes = [int(v) for v in values if v.isdigit()]
                if len(sizes) != len(values) or not 1 <= len(sizes) <= 2 or min(sizes) < 1 or (
                    sizes[0] * sizes[-1] ** (len(sizes) - 1) > 1024
                ):
                    raise self.wrong("no such workgroup", note,
                                     "@workgroup(16, 16): columns and rows, up to 1024 in all")
        for name in ("device", "workgroup"):
            if name in found and "kernel" not in found:
                raise self.wrong(f"@{name} without @kernel", found[name])
        block, device = (16, 16), "cpu"
        if "workgroup" in found:
            sizes = [int(v.children[0]) for v in found["workgroup"].children[1:]]
            block = (sizes[0], sizes[1] if len(sizes) > 1 else 1)
        if "device" in found:
            device = str(found["device"].children[1].children[0])
        return "kernel" in found, device, block
