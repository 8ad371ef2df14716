"""Programs of Vulkan devices: modules that are refused, and what drivers keep in the disk cache."""

import struct

import numpy as np
import pytest
import vulkan_images as images

from weft import background, store
from weft.errors import AllocationError, CompileError, LaunchError
from weft.runtimes.base import Image
from weft.runtimes.launches.header import header_of
from weft.runtimes.vulkan import program as programs
from weft.runtimes.vulkan.program import Programs


def runs(device, program):
    held = images.put(device, np.zeros(10, np.int32))
    device.queue.launch(program, [held], [10, 5]).wait()
    return set(images.get(device, held)) == {5}


@pytest.mark.parametrize("change", [
    {"entries": []}, {"entries": [{"name": "add_0"}]}, {"entries": [{"name": 3, "groups": 0}]},
    {"entries": [{"name": "add_0", "groups": -1}]}, {"shared": -1}, {"own": None}, {"fails": 1},
    {"options": [3]}, {"entries": [{"name": "absent", "groups": 0}]},
    {"entries": [{"name": "add_0", "groups": 0, "items": 7}]},
])  # fmt: skip
def test_an_image_that_says_something_else_is_refused(device, change):
    with pytest.raises(CompileError):
        device.load(images.changed(images.add(device), **change))


def test_images_that_are_none_are_refused(device):
    for wrong in (b"", b"\xff\xfe", b"// weft", b"// weft {", b"// weft []\n", b"\x03\x02#\x07"):
        with pytest.raises(CompileError):
            device.load(Image("f", wrong, (), 1))


def words_of(code):
    body, _ = header_of("", code.image)
    return list(struct.unpack(f"<{len(body) // 4}I", body))


def without(words):
    """Yield words that are no module, by what is wrong with them."""
    yield "no word", []
    yield "only a head", words[:4]
    yield "another magic number", [0x07230204, *words[1:]]
    yield "bytes in the other order", [int.from_bytes(w.to_bytes(4, "big"), "little")
                                       for w in words]  # fmt: skip
    yield "a version of the future", [words[0], 0x10700, *words[2:]]
    yield "no bound", [*words[:3], 0, *words[4:]]
    yield "a bound of all memory", [*words[:3], 0xFFFFFFFF, *words[4:]]
    yield "an instruction of no words", [*words[:5], words[5] & 0xFFFF, *words[6:]]
    yield "a last instruction that is cut", [*words[:-1], 0x0002_0000 | words[-1]]
    yield "an unknown capability", [*words[:5], 2 << 16 | 17, 4711, *words[5:]]
    yield "a capability of graphics", [*words[:5], 2 << 16 | 17, 2, *words[5:]]


def test_modules_that_are_none_never_reach_the_driver(device, monkeypatch):
    """Drivers crash on them."""
    code = images.add(device)
    words = words_of(code)
    monkeypatch.setattr(Programs, "_pipelines", lambda *given: pytest.fail("the driver was asked"))
    for what, wrong in without(words):
        changed = images.changed(code, struct.pack(f"<{len(wrong)}I", *wrong))
        with pytest.raises(CompileError) as caught:
            device.load(changed)
        assert "SPIR-V with" in str(caught.value), what
    with pytest.raises(CompileError):
        device.load(images.changed(code, struct.pack(f"<{len(words)}I", *words) + b"\0"))


def test_a_module_that_needs_what_the_device_lacks_is_refused(device, monkeypatch):
    session = device._now().session
    monkeypatch.setattr(session, "facts", {**session.facts, "bufferDeviceAddress": False})
    with pytest.raises(CompileError, match="bufferDeviceAddress"):
        Programs(session).load(images.add(device))


def test_groups_and_scratch_memory_beyond_limits_are_refused(device):
    code = images.add(device)
    large = images.changed(code, entries=[{"name": "add_0", "groups": 0, "items": 1 << 20}])
    with pytest.raises(LaunchError, match="work-items in a group"):
        device.load(large)
    with pytest.raises(AllocationError, match="scratch"):
        device.load(images.changed(code, shared=1 << 40))


def test_programs_that_were_not_used_lately_are_let_go(device, monkeypatch):
    monkeypatch.setattr("weft.runtimes.launches.programs._KEPT", 2)
    table = Programs(device._now().session)
    made = [images.changed(images.add(device), options=[f"-number={n}"]) for n in range(4)]
    loaded = [table.load(code) for code in made]
    assert len(table._kept) == 2
    assert all(runs(device, program) for program in loaded)


def kept(monkeypatch, device, data):
    """Have the driver's cache hold some data, and return what it is given."""
    given, struct_of = [], device._now().session.vk.struct

    def noted(kind, **fields):
        if kind == "VkPipelineCacheCreateInfo":
            given.append(fields["initialDataSize"])
        return struct_of(kind, **fields)

    monkeypatch.setattr(device._now().session.vk, "struct", noted)
    monkeypatch.setattr(Programs, "_data", lambda *given: data)
    return given


def head(facts, **other):
    facts = {**facts, **other}
    return struct.pack("<IIII16s", 32, facts.get("header", 1), facts["vendor"], facts["device"],
                       bytes.fromhex(facts["uuid"]))  # fmt: skip


def test_what_the_driver_keeps_is_given_to_it_again(device, monkeypatch, tmp_path):
    """By the next process, if it is of the same driver and device; else it is not shown to it."""
    facts = device.info
    fresh = images.add(device)
    asked, make = [], programs.fingerprint
    monkeypatch.setattr(programs, "fingerprint",
                        lambda *parts: asked.append(make(*parts, str(tmp_path))) or asked[-1])
    sound = head(facts) + b"what the driver has made"
    given = kept(monkeypatch, device, sound)
    session = device._now().session
    Programs(session).load(fresh)
    background.drain()
    assert given == [0]
    assert store.cache().get("vulkan", asked[0]) == sound
    monkeypatch.setattr(Programs, "_pipeline", lambda *given: None)
    monkeypatch.setattr(session, "made", _cacheless(session.made))
    for data, size in ((sound, len(sound)), (b"", 0), (b"short", 0), (sound[:20], 0),
                       (head(facts, header=2) + b"x", 0), (head(facts, vendor=1) + b"x", 0),
                       (head(facts, device=77) + b"x", 0),
                       (head(facts, uuid="00" * 15 + "01") + b"x", 0)):  # fmt: skip
        store.cache().put("vulkan", asked[0], data)
        given.clear()
        Programs(session).load(fresh)
        background.drain()
        assert given == [size], data


def _cacheless(made):
    """Return the function without the driver's cache, which would take the data for its own."""
    def stand_in(function, kind, info):
        if function == "vkCreatePipelineCache":
            info.initialDataSize = 0
        return made(function, kind, info)

    return stand_in
