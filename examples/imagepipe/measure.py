"""The programs beside this file on a photograph, and times per megapixel beside Pillow.

``python -m examples.imagepipe.measure [photo.jpg]``; pictures are written to build/imagepipe.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageFilter
from examples.imagepipe.program import translate

REPEATS = 15


def pipelines(width, height):
    """Return (name, lines of the program, the same in Pillow)."""
    def enhanced(picture, factor):
        return PIL.ImageEnhance.Brightness(picture).enhance(factor)

    def whole(picture):
        made = picture.resize((width, height), PIL.Image.Resampling.BILINEAR)
        return enhanced(made.filter(PIL.ImageFilter.GaussianBlur(5)), 1.2)

    def points(picture):
        return enhanced(enhanced(picture.convert("L").convert("RGB"), 1.2), 0.9)

    return [
        ("resize, blur 5, brightness",
         [f"resize p to {width}x{height}", "blur p 5", "brightness p 1.2"], whole),
        ("grayscale, brightness, brightness",
         ["grayscale p", "brightness p 1.2", "brightness p 0.9"], points),
        ("resize", [f"resize p to {width}x{height}"],
         lambda p: p.resize((width, height), PIL.Image.Resampling.BILINEAR)),
        ("blur 5", ["blur p 5"], lambda p: p.filter(PIL.ImageFilter.GaussianBlur(5))),
    ]


def median(function, argument):
    function(argument)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function(argument)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(photo=None):
    """Print milliseconds for each megapixel that comes out."""
    if photo is None:
        from sklearn.datasets import load_sample_image

        picture = PIL.Image.fromarray(load_sample_image("china.jpg"))
    else:
        picture = PIL.Image.open(photo).convert("RGB")
    _programs(picture)
    width, height = picture.size[0] * 2, picture.size[1] * 2
    print(f"{'pipeline':36}{'kernels':>8}{'Weft':>9}{'Pillow':>9}  ms per megapixel")
    with tempfile.TemporaryDirectory() as folder:
        picture.save(Path(folder) / "p.png")
        for name, lines, pillow in pipelines(width, height):
            program = Path(folder) / "p.img"
            program.write_text("\n".join(['load "p.png" as p', *lines, 'save p as "out.png"']))
            unit = translate(program)
            pictures = unit.read()
            (out,) = unit.compute(pictures).values()
            pixels = out.shape[0] * out.shape[1] / 1e6
            mine, theirs = median(unit.compute, pictures), median(pillow, picture)
            apart = np.abs(out.astype(int) - np.asarray(pillow(picture)))
            print(f"{name:36}{len(unit.steps):8}{mine / pixels * 1e3:9.2f}"
                  f"{theirs / pixels * 1e3:9.2f}  (mean difference {apart.mean():.2f})")


def _programs(picture):
    """Run the programs of the example, and say what became of them."""
    folder = Path("build/imagepipe")
    folder.mkdir(parents=True, exist_ok=True)
    picture.save(folder / "photo.png")
    for program in sorted((Path(__file__).parent / "programs").glob("*.img")):
        unit = translate(shutil.copy(program, folder))
        unit.run()
        print(unit.explain(), *(f"  {path}" for _, path in unit.saves), "", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
