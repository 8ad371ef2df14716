"""Programs of OpenCL devices: sources that are refused, and binaries in the disk cache."""

import json

import numpy as np
import opencl_images as images
import pytest

from weft import background, store
from weft.errors import CompileError
from weft.runtimes.base import Image
from weft.runtimes.opencl import program as programs
from weft.runtimes.opencl.program import Programs


def runs(device, program):
    held = images.put(device, np.zeros(10, np.int64))
    device.queue.launch(program, [held], [10, 5]).wait()
    return set(images.get(device, held, np.int64)) == {5}


def test_a_source_that_the_driver_refuses_is_told_with_its_words(device, capfd):
    wrong = images.image(images.ADD.replace("x[i] += k", "x[i] += surely_not"), [("add", 0)], 1,
                         ("n", "k"))  # fmt: skip
    for _ in range(2):
        with pytest.raises(CompileError, match="surely_not") as caught:
            device.load(wrong)
    assert device.name in str(caught.value)
    assert runs(device, device.load(images.add()))


@pytest.mark.parametrize("change", [
    {"entries": []}, {"entries": [{"name": "add"}]}, {"entries": [{"name": 3, "groups": 0}]},
    {"entries": [{"name": "add", "groups": -1}]}, {"entries": [{"name": "add", "groups": 0.5}]},
    {"shared": -1}, {"own": None}, {"fails": 1}, {"options": ["-cl-fast-relaxed-math"]},
    {"options": [3]}, {"entries": [{"name": "absent", "groups": 0}]},
])  # fmt: skip
def test_an_image_that_says_something_else_is_refused(device, change):
    code = images.add()
    line, _, text = code.image.decode().partition("\n")
    said = json.loads(line.removeprefix("// weft ")) | change
    with pytest.raises(CompileError):
        device.load(code._replace(image=f"// weft {json.dumps(said)}\n{text}".encode()))


def test_images_that_are_none_are_refused(device):
    for wrong in (b"", b"\xff\xfe", b"// weft", b"// weft {", b"// weft []\n", b"__kernel void f"):
        with pytest.raises(CompileError):
            device.load(Image("f", wrong, (), 1))
    for wrong in (images.add()._replace(nbuffers=2), images.add()._replace(variables=("n",))):
        with pytest.raises(CompileError, match="arguments"):
            device.load(wrong)


def test_options_reach_the_driver(device):
    text = images.ADD.replace("x[i] += k", "x[i] += k * FACTOR")
    for factor in (2, 3):
        code = images.image(text, [("add", 0)], 1, ("n", "k"), options=[f"-DFACTOR={factor}"])
        held = images.put(device, np.zeros(10, np.int64))
        device.queue.launch(device.load(code), [held], [10, 5]).wait()
        assert set(images.get(device, held, np.int64)) == {5 * factor}


def keys(monkeypatch):
    """Return a list that receives the keys of binaries."""
    found, make = [], programs.fingerprint
    monkeypatch.setattr(programs, "fingerprint",
                        lambda *parts: found.append(make(*parts)) or found[-1])
    return found


def test_a_binary_is_kept_and_loaded_without_its_source(device, monkeypatch):
    monkeypatch.setitem(device._now().session.facts, "keeps_builds", False)
    fresh = images.image(images.ADD + "// kept", [("add", 0)], 1, ("n", "k"))
    asked = keys(monkeypatch)
    device.load(fresh)
    background.drain()
    assert store.cache().get("opencl", asked[0])

    def refuse(*given):
        raise AssertionError("it was built from its source")

    monkeypatch.setattr(Programs, "_from_source", refuse)
    assert runs(device, Programs(device._now().session).load(fresh))


@pytest.mark.parametrize("planted", ["not a binary", "another kernel", "cut file", "empty"])
def test_a_binary_that_is_no_good_is_built_anew(device, monkeypatch, planted):
    monkeypatch.setitem(device._now().session.facts, "keeps_builds", False)
    fresh = images.image(images.ADD + f"// {planted}", [("add", 0)], 1, ("n", "k"))
    asked = keys(monkeypatch)
    device.load(fresh)
    background.drain()
    cache = store.cache()
    path = cache._path("opencl", asked[0])
    if planted == "not a binary":
        cache.put("opencl", asked[0], b"\x7fELF, or so it says")
    elif planted == "empty":
        cache.put("opencl", asked[0], b"")
    else:
        with open(path, "rb") as file:
            data = file.read()
        if planted == "another kernel":  # whose digest is of another key
            device.load(images.image(images.ADD + "// another", [("add", 0)], 1, ("n", "k")))
            background.drain()
            with open(cache._path("opencl", asked[1]), "rb") as file:
                data = file.read()
        else:
            data = data[: len(data) // 2]
        with open(path, "wb") as file:
            file.write(data)
    built = []
    make = Programs._from_source
    monkeypatch.setattr(Programs, "_from_source",
                        lambda self, *given: built.append(given) or make(self, *given))
    assert runs(device, Programs(device._now().session).load(fresh))
    assert len(built) == 1
    background.drain()
    assert len(cache.get("opencl", asked[0])) > 100


def test_programs_that_were_not_used_lately_are_let_go(device, monkeypatch):
    monkeypatch.setattr("weft.runtimes.launches.programs._KEPT", 2)
    table = Programs(device._now().session)
    made = [images.image(images.ADD + f"// number {n}", [("add", 0)], 1, ("n", "k"))
            for n in range(4)]  # fmt: skip
    loaded = [table.load(code) for code in made]
    assert len(table._kept) == 2
    assert all(runs(device, program) for program in loaded)
