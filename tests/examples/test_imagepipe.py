"""The image language: results against NumPy, fusion, errors with their lines."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.errors import KernelError, WeftError

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

pytestmark = [pytest.mark.requires("lark"), pytest.mark.requires("pillow")]

_numbers = itertools.count()


def picture(width=37, height=23, seed=1):
    """A picture with smooth and rough parts, made here."""
    y, x = np.mgrid[:height, :width]
    smooth = 127 + 120 * np.sin(x / 5.0) * np.cos(y / 7.0)
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return np.where((x > width // 2)[:, :, None], noise, smooth[:, :, None]).astype(np.uint8)


def translated(folder, text, source=None):
    import PIL.Image
    from examples.imagepipe.program import translate

    PIL.Image.fromarray(picture() if source is None else source).save(folder / "in.png")
    file = folder / f"p{next(_numbers)}.img"
    file.write_text(text)
    return translate(file)


def result(folder, *lines, source=None):
    """Run statements on a picture p; return what is saved, and the program."""
    unit = translated(folder, "\n".join(['load "in.png" as p', *lines, 'save p as "out.png"']),
                      source)
    (out,) = unit.compute(unit.read()).values()
    return out, unit


def same(out, expected, most=1):
    """Equal bytes, but for where float32 rounds another way: by one, and seldom."""
    assert out.shape == expected.shape
    apart = np.abs(out.astype(int) - expected)
    assert apart.max(initial=0) <= most
    assert (apart > 0).mean() < 0.01


def reference(*steps, source=None):
    from examples.imagepipe import reference as r

    found = r.load(picture() if source is None else source)
    for name, *arguments in steps:
        found = getattr(r, name)(found, *arguments)
    return r.save(found)


@pytest.mark.grid
@pytest.mark.parametrize(("lines", "steps", "kernels"), [
    ([], [], 1),
    (["brightness p 1.2"], [("brightness", 1.2)], 1),
    (["grayscale p", "brightness p 0.5", "brightness p 2"],
     [("grayscale",), ("brightness", 0.5), ("brightness", 2)], 1),
    (["crop p 11x7 at 3, 5", "grayscale p"], [("crop", 11, 7, 3, 5), ("grayscale",)], 1),
    (["resize p to 80x60"], [("resize", 80, 60)], 1),
    (["resize p to 7x5", "brightness p 1.5"], [("resize", 7, 5), ("brightness", 1.5)], 1),
    (["resize p to 1x1"], [("resize", 1, 1)], 1),
    (["crop p 20x20 at 17, 3", "resize p to 31x41", "crop p 10x40 at 20, 1"],
     [("crop", 20, 20, 17, 3), ("resize", 31, 41), ("crop", 10, 40, 20, 1)], 1),
    (["resize p to 60x40", "resize p to 20x30"], [("resize", 60, 40), ("resize", 20, 30)], 2),
    (["blur p 1"], [("blur", 1)], 2),
    (["blur p 5"], [("blur", 5)], 2),
    (["brightness p 1.1", "resize p to 50x40", "blur p 0.4", "brightness p 1.2", "grayscale p"],
     [("brightness", 1.1), ("resize", 50, 40), ("blur", 0.4), ("brightness", 1.2),
      ("grayscale",)], 2),
    (["blur p 2", "blur p 0.7"], [("blur", 2), ("blur", 0.7)], 4),
    (["blur p 2", "resize p to 9x9"], [("blur", 2), ("resize", 9, 9)], 3),
])  # fmt: skip
def test_pipelines(tmp_path, lines, steps, kernels):
    out, unit = result(tmp_path, *lines)
    same(out, reference(*steps))
    assert len(unit.steps) == kernels


@pytest.mark.grid
@pytest.mark.parametrize("size", [(1, 1), (1, 17), (19, 1), (1100, 3), (5, 130)])
def test_odd_sizes(tmp_path, size):
    source = picture(*size)
    out, _ = result(tmp_path, "blur p 1.5", "resize p to 13x11", source=source)
    same(out, reference(("blur", 1.5), ("resize", 13, 11), source=source))


def test_the_example_of_the_documentation(tmp_path):
    _, unit = result(tmp_path, "resize p to 80x60", "blur p 5", "brightness p 1.2")
    assert unit.explain().splitlines()[1:] == [
        "  1. load (line 1), resize (line 2), blur (line 3): 37x23 bytes -> 80x60 planes, "
        "a grid of threads",
        "  2. blur (line 3), brightness (line 4), save (line 5): 80x60 planes -> 80x60 bytes, "
        "parallel loops"]
    assert unit.sanitize() == []


def test_many_operations_are_cut_into_kernels(tmp_path):
    out, unit = result(tmp_path, *["brightness p 1.01"] * 60)
    same(out, reference(*[("brightness", 1.01)] * 60))
    assert 2 <= len(unit.steps) <= 4


def test_copies_are_pictures_of_their_own(tmp_path):
    unit = translated(tmp_path, """
        load "in.png" as a  # one
        load "in.png" as b
        copy a as c
        blur a 1
        grayscale c
        save a as "a.png" save b as "b.png"
        save c as "c.bmp"
    """)
    found = {path.name: out for path, out in unit.compute(unit.read()).items()}
    same(found["a.png"], reference(("blur", 1)))
    same(found["b.png"], reference())
    same(found["c.bmp"], reference(("grayscale",)))


def test_run_writes_the_files(tmp_path):
    import PIL.Image

    unit = translated(tmp_path, 'load "in.png" as p\ncrop p 5x4 at 1,2\nsave p as "o.png"')
    unit.run()
    with PIL.Image.open(tmp_path / "o.png") as saved:
        same(np.asarray(saved), reference(("crop", 5, 4, 1, 2)))
    with pytest.raises(WeftError, match="arguments"):
        unit.run(["x"])


# ---- compute -------------------------------------------------------------------------------------

BLOCKS = {
    "r = 255 - r  g = g / 2  b = (r + g) % 7":
        lambda r, g, b, x, y: (255 - r, g / 2, (255 - r + g / 2) % 7),
    "let l = r * 0.5 + g * 0.5\n if l > 128 { r = 0 } else if l > 60 { g = l } else { b = -l + 3 }":
        lambda r, g, b, x, y: (np.where((r + g) / 2 > 128, 0, r),
                               np.where(((r + g) / 2 <= 128) & ((r + g) / 2 > 60), (r + g) / 2, g),
                               np.where((r + g) / 2 <= 60, 3 - (r + g) / 2, b)),
    "r = x * 3 + y  g = width + height  b = x % 5":
        lambda r, g, b, x, y: (x * 3 + y, 0 * x + x.max() + 1 + y.max() + 1, x % 5),
    "let n = 0\n while r > 20 { r = r - 20  n = n + 1 }\n g = n * 10":
        lambda r, g, b, x, y: (np.where(r > 20, (r - 1) % 20 + 1, r),
                               np.where(r > 20, (r - 1) // 20, 0) * 10, b),
    "for i in 0..4 { b = b + i * 2 }\n if not (b < 40 or r == 0) and true { r = sqrt(r) * 10 }":
        lambda r, g, b, x, y: (np.where((b + 12 < 40) | (r == 0), r, np.sqrt(r) * 10), g, b + 12),
    "r = clamp(r, 50, 100)  g = max(g, b)  b = floor(b / 3) + abs(0 - 2)":
        lambda r, g, b, x, y: (np.clip(r, 50, 100), np.maximum(g, b), b // 3 + 2),
    "let dark = r < 100  let f = dark\n f = f and g < 200\n if f { b = mix(r, g) }":
        lambda r, g, b, x, y: (r, g, np.where((r < 100) & (g < 200), r * 0.25 + g * 0.75, b)),
}  # fmt: skip
DEFINE = "define mix(p1, p2) = p1 * 0.25 + p2 * 0.75"


@pytest.mark.grid
@pytest.mark.parametrize("code", BLOCKS)
@pytest.mark.parametrize("form", ["compute p {{ {} }}", "@kernel compute p {{ {} }}",
                                  "compute p {{ @kernel @workgroup(8, 4) {} }}",
                                  "@device(interpreter) @kernel compute p {{ {} }}"])
def test_compute_blocks(tmp_path, code, form):
    from examples.imagepipe.reference import save

    out, unit = result(tmp_path, DEFINE, form.format(code))
    source = picture().astype(float)
    y, x = np.mgrid[:source.shape[0], :source.shape[1]].astype(float)
    expected = BLOCKS[code](*np.moveaxis(source, 2, 0), x, y)
    same(out, save(np.stack(np.broadcast_arrays(*expected), axis=2)))
    assert len(unit.steps) == (3 if "@kernel" in form else 1)
    assert unit.sanitize() == []
    assert ("interpreter" in unit.explain()) == ("interpreter" in form)


def test_kernel_blocks_see_other_pixels_and_share_memory(tmp_path):
    out, unit = result(tmp_path, """
        @kernel @workgroup(16, 2)
        compute p {
            shared row[2, 16]
            row[ly, lx] = r
            barrier
            if inside {
                g = red(width - 1 - x, y)
                b = row[ly, 15 - lx]
            }
        }
    """, source=picture(32, 6))
    source = picture(32, 6)
    expected = source.copy()
    expected[:, :, 1] = source[:, ::-1, 0]
    expected[:, :, 2] = source[:, :, 0].reshape(6, 2, 16)[:, :, ::-1].reshape(6, 32)
    same(out, expected)
    assert unit.sanitize() == []


def test_kernel_blocks_of_any_size_read_neighbours(tmp_path):
    """As in the page: threads past the edge take no part where nothing is shared."""
    for size in ((1, 1), (17, 15), (40, 30)):
        source = picture(*size)
        out, unit = result(tmp_path, """
            @kernel @workgroup(16, 16)
            compute p {
                r = (red(max(x - 1, 0), y) + red(min(x + 1, width - 1), y)) / 2
            }
        """, source=source)
        red = np.pad(source[:, :, 0].astype(np.float32), ((0, 0), (1, 1)), "edge")
        expected = source.copy()
        expected[:, :, 0] = np.floor((red[:, :-2] + red[:, 2:] + 1) / 2)
        same(out, expected)
        assert unit.sanitize() == []


@pytest.mark.parametrize(("code", "kind", "line"), [
    ("if inside { r = red(x + 1, y) }", "out-of-bounds", 4),
    ("shared t[16, 16]\n t[ly, lx] = r\n\n g = t[ly, 15 - lx]", "missing-barrier", 7),
    ("shared t[16, 16]\n\n g = t[ly, lx]", "uninitialised", 6),
    ("shared t[16, 16]\n t[0, lx] = lx + ly\n", "race", 5),
    ("if lx > 3 {\n barrier }", "barrier-divergence", 5),
])
def test_findings_name_lines_of_the_program(tmp_path, code, kind, line):
    unit = translated(tmp_path, f'load "in.png" as p\n@kernel\ncompute p {{\n{code} }}\n'
                      'save p as "o.png"')
    found = unit.sanitize()
    assert (kind, str(unit.path), line) in {(f.kind, f.file, f.line) for f in found}, found


# ---- errors --------------------------------------------------------------------------------------

WRONG = [  # program, and line, column and message of each error
    ("brightness p 1", [(1, 12, "there is no picture p")]),
    ('load "no.png" as p', [(1, 6, "no such file")]),
    ('load "p.txt" as p', [(1, 6, "not a picture")]),
    ('load "in.png" as p\nload "in.png" as p', [(2, 18, "there is a picture p already")]),
    ('load "in.png" as p\n  resize p to 0x5', [(2, 15, "a size of 0x5")]),
    ('load "in.png" as p\nresize p to 99999x5', [(2, 13, "a size of 99999x5")]),
    ('load "in.png" as p\nblur p 1000', [(2, 8, "a blur of 1000")]),
    ('load "in.png" as p\ncrop p 30x20 at 10, 0', [(2, 1, "reaches past the edge")]),
    ('load "in.png" as p\nsave p as "x.nothing"', [(2, 11, "no kind of picture")]),
    ('load "in.png" as p\nsave p as "x.png"\nsave p as "x.png"', [(3, 11, "saved already")]),
    ('load "in.png" as p\nbrigthness p 3', [(2, 1, "found 'brigthness'")]),
    ('load "in.png" as p\nblur p\n\nsave p', [(4, 1, "found 'save'")]),
    ('load "in.png" as', [(1, 17, "the program ends here")]),
    ("", []),
    ('load "in.png as p', [(1, 6, "means nothing")]),
    ("$", [(1, 1, "the character '$' means nothing")]),
    ('load "in.png" as p\ncompute p {\n r = q\n let g = 3\n x = 1\n foo(r)\n}',
     [(6, 5, "found '('")]),
    ('load "in.png" as p\ncompute p {\n r = q\n let g = 3\n x = 1\n b = foo(r) }\n'
     'save p as "o.png"',
     [(3, 6, "q is not declared"), (4, 6, "g is declared already"), (5, 2, "x is fixed"),
      (6, 6, "there is no function foo")]),
    ('load "in.png" as p\ncompute p { r = sqrt(1, 2)\n g = red(1, 2)\n shared t[3]\n barrier\n'
     ' r = r < 3\n if r { b = 1 }\n let k = t[0] b = zz + k }\nsave p as "o.png"',
     [(2, 17, "sqrt takes 1 numbers"), (3, 6, "red() in a block without"),
      (4, 2, "shared memory in a block"), (5, 2, "a barrier in a block"),
      (6, 6, "true or false where"), (7, 5, "a number where true"), (8, 10, "t is not declared"),
      (8, 19, "zz is not declared")]),
    ('load "in.png" as p\ncompute p { r = true + 1 g = -true\n if true == false { } }\n'
     'save p as "o.png"', [(2, 17, "true or false where"), (2, 31, "true or false where"),
                           (3, 5, "true or false where")]),
    ('load "in.png" as p\n@kernel @kernel compute p { }', [(2, 9, "a second @kernel")]),
    ('load "in.png" as p\n@speed(3) compute p { }', [(2, 1, "no annotation @speed")]),
    ('load "in.png" as p\n@workgroup(3) compute p { }', [(2, 1, "@workgroup without @kernel")]),
    ('load "in.png" as p\n@kernel @workgroup(64, 64) compute p { }', [(2, 9, "no such workgroup")]),
    ('load "in.png" as p\n@kernel @workgroup(cpu) compute p { }', [(2, 9, "no such workgroup")]),
    ('load "in.png" as p\n@kernel @device(gpu) compute p { }', [(2, 9, "no such device")]),
    ('define f(a, a) = a', [(1, 8, "two parameters of one name")]),
    ('define f() = 3', [(1, 8, "no parameters")]),
    ('define f(a) = a + f(a)\nload "in.png" as p\ncompute p { r = f(g) }\nsave p as "o.png"',
     [(1, 19, "f calls itself")]),
    ("define f(a) = " + "(" * 250 + "a + 1" + ") * 2" * 250, [(1, 1, "levels of nesting")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=range(len(WRONG)))
def test_errors_have_lines_and_carets(tmp_path, text, expected):
    (tmp_path / "p.txt").write_text("no picture")
    if not expected:
        assert translated(tmp_path, text).programs == []
        return
    with pytest.raises(KernelError) as caught:
        translated(tmp_path, text)
    problems = caught.value.problems
    found = [(p.line, p.column + 1) for p in problems]
    assert found == [(line, column) for line, column, _ in expected], str(caught.value)
    for problem, (_, _, message) in zip(problems, expected, strict=True):
        assert message in problem.message
    assert "^" in str(caught.value) or not text.splitlines()[expected[0][0] - 1].strip()
    assert "imagepipe" not in str(caught.value)


def test_errors_show_the_text_that_was_read(tmp_path):
    file = tmp_path / "p.img"
    from examples.imagepipe.program import translate

    for word in ("one", "two"):
        file.write_text(f"blur {word} 3\n")
        with pytest.raises(KernelError, match=f"    blur {word} 3\n         \\^\\^\\^"):
            translate(file)


def test_pictures_that_cannot_be_read_or_written(tmp_path):
    unit = translated(tmp_path, 'load "in.png" as p\nsave p as "no/o.png"')
    with pytest.raises(WeftError, match="save"):
        unit.run()
    whole = (tmp_path / "in.png").read_bytes()
    (tmp_path / "in.png").write_bytes(whole[:len(whole) // 2])
    with pytest.raises(WeftError, match="load"):
        unit.run()


def test_a_file_that_cannot_be_read(tmp_path):
    from examples.imagepipe.program import translate

    for path in (tmp_path, tmp_path / "no.img"):
        with pytest.raises(WeftError, match="read"):
            translate(path)


@pytest.mark.slow
@pytest.mark.requires("sklearn")
def test_a_photograph(tmp_path):
    from sklearn.datasets import load_sample_image

    for name in ("china.jpg", "flower.jpg"):
        source = load_sample_image(name)
        out, _ = result(tmp_path, "resize p to 800x600", "blur p 5", "brightness p 1.2",
                        source=source)
        same(out, reference(("resize", 800, 600), ("blur", 5), ("brightness", 1.2),
                            source=source))
