"""Names of devices, probing, and backends from outside."""

import threading
from importlib import metadata

import pytest

from weft import config
from weft.backends import names, probing, registry
from weft.backends.names import DeviceName
from weft.backends.registry import Backend, Found
from weft.errors import DeviceError


@pytest.fixture(autouse=True)
def _fresh():
    registry.reset()
    yield
    registry.reset()
    config.reset()


def fake(family="toy", probe=lambda: "", count=lambda: 2):
    return Backend(family, ("a", "b"), probe, count, None, None, None, None)


@pytest.mark.parametrize(("text", "name"), [
    ("cpu", DeviceName("cpu")), ("cpu/c", DeviceName("cpu", 0, "c")),
    ("cuda:1", DeviceName("cuda", 1)), ("toy:12/b", DeviceName("toy", 12, "b")),
    ("toy:one", DeviceName("toy", called="one")), ("toy:a_1/b", DeviceName("toy", 0, "b", "a_1")),
])  # fmt: skip
def test_parse(text, name):
    assert names.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize("text", ["", "CPU", "cpu:", "cpu:-1", "cpu/", "1cpu", "cpu:0/c/d", " cpu",
                                  "cpu:1a", "cpu:A", "cpu\n", None, 3])  # fmt: skip
def test_A3_parse_refuses(text):
    with pytest.raises(DeviceError, match="family"):
        names.parse(text)


def test_the_host_is_there():
    found, name = registry.lookup("cpu")
    assert (found.family, name.pair) == ("cpu", "llvm")
    assert found.target(0, "llvm").cores >= 1
    assert registry.available()[0] == Found("cpu", "", ("cpu",), (0,))


def test_an_unknown_family_lists_the_known_ones():
    with pytest.raises(DeviceError, match="one of cpu"):
        registry.lookup("gpu")


def test_unknown_pair_and_ordinal():
    registry.register(fake())
    assert registry.lookup("toy")[1].pair == "a"
    assert registry.lookup("toy:1/b")[1] == DeviceName("toy", 1, "b")
    with pytest.raises(DeviceError, match="one of toy/a, toy/b"):
        registry.lookup("toy/c")
    with pytest.raises(DeviceError, match="one of toy, toy:1"):
        registry.lookup("toy:2")


def named(*names):
    return fake(count=lambda: [{"name": n, "description": f"device {n}", "facts": {"n": n}}
                               for n in names])  # fmt: skip


def test_a_backend_calls_its_devices_by_names():
    registry.register(named("one", "two"))
    found = registry.probe("toy")
    assert (found.devices, found.ordinals) == (("toy:one", "toy:two"), (0, 1))
    assert [d["facts"] for d in found.described] == [{"n": "one"}, {"n": "two"}]
    for text, name in [("toy", "toy:one"), ("toy:0", "toy:one"), ("toy:one/a", "toy:one"),
                       ("toy:1", "toy:two"), ("toy:two/b", "toy:two/b"), ("toy/b", "toy:one/b"),
                       ]:  # fmt: skip
        assert registry.canonical(*registry.lookup(text)) == name, text
    for text in ("toy:three", "toy:2", "cpu:one"):
        with pytest.raises(DeviceError, match=r"one of toy:one, toy:two|one of cpu"):
            registry.lookup(text)
    assert [f.devices for f in registry.more_pairs() if f.family == "toy/b"] == [
        ("toy:one/b", "toy:two/b")]
    config.reset(config.Config(backends={"toy": config.BackendConfig(ids=(1,))}))
    registry.register(named("one", "two"))
    assert registry.lookup("toy:two")[1].ordinal == registry.lookup("toy:1")[1].ordinal == 1
    with pytest.raises(DeviceError, match="one of toy:two"):
        registry.lookup("toy:one")


@pytest.mark.parametrize("said", [
    [{"name": "one"}, {"name": "one"}], [{"name": "One"}], [{"name": "1"}], [{}], ["one"], [None],
    [{"name": "one", "more": 1}], [{"name": "one", "facts": 3}], [{"name": "one\n"}],
    [{"name": "one", "description": 3}], {"name": "one"},
])  # fmt: skip
def test_A2_devices_that_are_described_wrongly_are_a_reason(said):
    registry.register(fake(count=lambda: said))
    assert "its probe answered" in registry.probe("toy").reason


def test_A2_descriptions_are_lines_that_any_terminal_shows():
    """Names that drivers report hold runs of blanks, and may hold anything."""
    words = "A  processor\x1b[31m\n at 3 GHz" + 1000 * "!"
    registry.register(fake(count=lambda: [{"name": "one", "description": words}, {"name": "two"}]))
    shown = [d["description"] for d in registry.probe("toy").described]
    assert shown[0].startswith("A processor [31m at 3 GHz!!")
    assert len(shown[0]) <= 400
    assert shown[1] == ""


def test_A13_a_known_family_without_toolchain_says_why():
    assert "toolchain" in registry.probe("tenstorrent").reason
    with pytest.raises(DeviceError, match="toolchain"):
        registry.lookup("tenstorrent")


def test_A2_a_probe_that_raises_is_a_reason():
    def probe():
        raise OSError("no driver")

    registry.register(fake(probe=probe))
    assert registry.probe("toy").reason == "OSError: no driver"
    with pytest.raises(DeviceError, match="no driver"):
        registry.lookup("toy")
    assert registry.lookup("cpu")


def test_A2_a_probe_that_hangs_is_left_behind(monkeypatch):
    monkeypatch.setattr(probing, "PATIENCE", 0.05)
    release = threading.Event()
    registry.register(fake(probe=lambda: str(release.wait(30))))
    assert "did not answer" in registry.probe("toy").reason
    release.set()


def test_a_probe_is_asked_once():
    asked = []
    registry.register(fake(probe=lambda: asked.append(1) or ""))
    for _ in range(3):
        assert registry.probe("toy").devices == ("toy", "toy:1")
    assert len(asked) == 1


def test_A1_configuration_disables_and_limits(monkeypatch):
    made = config.Config(backends={"toy": config.BackendConfig(ids=(1, 5)),
                                   "other": config.BackendConfig(enabled=False)})  # fmt: skip
    config.reset(made)
    registry.register(fake())
    registry.register(fake("other"))
    assert registry.probe("toy").devices == ("toy:1",)
    assert "disabled" in registry.probe("other").reason


def test_A1_configuration_disables_pairs():
    registry.register(fake())
    config.reset(config.Config(backends={"toy/a": config.BackendConfig(enabled=False)}))
    assert registry.lookup("toy")[1].pair == "b"
    with pytest.raises(DeviceError, match=r"toy/a, expected one of toy/b \(disabled"):
        registry.lookup("toy/a")
    off = config.BackendConfig(enabled=False)
    registry.reset()
    registry.register(fake())
    config.reset(config.Config(backends={"toy/a": off, "toy/b": off}))
    assert "disabled" in registry.probe("toy").reason


class Entry:
    def __init__(self, name, load):
        self.name, self.load = name, load


def test_A13_entry_points_bring_backends(monkeypatch):
    def fail():
        raise ImportError("its driver is missing")

    entries = [Entry("toy", lambda: fake()), Entry("bad", fail), Entry("odd", lambda: 3)]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    assert registry.lookup("toy:1")[0].family == "toy"
    assert registry.families() == [*registry.ORDER, "bad", "odd", "toy"]
    reasons = {f.family: f.reason for f in registry.available()}
    assert reasons["bad"] == "ImportError: its driver is missing"
    assert "expected a Backend" in reasons["odd"]
    assert not reasons["toy"]


def test_A1_ids_that_no_device_has_are_the_reason(monkeypatch):
    registry.register(fake())
    monkeypatch.setenv("WEFT_BACKEND_TOY_IDS", "7")
    config.reset()
    found = registry.probe("toy")
    assert found.devices == ()
    assert found.reason == "the configuration allows none of its ids, 0 to 1"
