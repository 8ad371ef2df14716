"""What the tiers of tests run: all of it in full, marks and a share of grids in fast."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import tiers

MODULE = SimpleNamespace(nodeid="test_m.py")


class Item:
    """As much of a pytest item as the choice looks at."""

    def __init__(self, nodeid, own=(), module=()):
        self.nodeid = nodeid
        self.marks = [(self, name) for name in own] + [(MODULE, name) for name in module]

    def iter_markers_with_node(self, name):
        return (pair for pair in self.marks if pair[1] == name)

    def get_closest_marker(self, name):
        return next(self.iter_markers_with_node(name), None)


def kept(items, seed):
    dropped = tiers.left_out(items, seed)
    return [item.nodeid for item in items if item not in dropped]


def test_what_has_no_mark_stays_and_what_is_slow_does_not():
    items = [Item("a.py::test_a"), Item("a.py::test_b[1]"), Item("a.py::test_c", own=["slow"])]
    assert kept(items, "0") == ["a.py::test_a", "a.py::test_b[1]"]


@pytest.mark.parametrize(("rows", "share"), [(1, 1), (2, 1), (10, 1), (11, 2), (300, 30)])
def test_a_tenth_of_the_rows_of_each_function(rows, share):
    items = [Item(f"test_{x}[{k}]", own=["grid"]) for x in "xy" for k in range(rows)]
    for seed in ("0", "a4a43dc0", "ffffffff"):
        names = kept(items, seed)
        assert [sum(f"test_{x}" in name for name in names) for x in "xy"] == [share, share]


def test_a_share_of_each_module_in_some_folders():
    rooms = {"passes": 2, "lang/reader": 5, "lang/builder": 20}
    items = [Item(f"tests/{room}/test_{m}.py::test_{k}")
             for room in rooms for m in "ab" for k in range(20)]
    names = kept(items, "0")
    for room, number in rooms.items():
        for m in "ab":
            assert sum(f"{room}/test_{m}" in name for name in names) == number


def on_devices(*names):
    items = [Item(f"a.py::test_x[{name}-{k}]") for name in names for k in range(30)]
    for item in items:
        name = item.nodeid.partition("[")[2].rpartition("-")[0]
        item.callspec = SimpleNamespace(params={"device": name})
    return items


def test_a_share_of_further_devices_and_a_row_of_those_that_take_long():
    names = kept(on_devices("cpu", "interpreter", "cpu/c", "late:1"), "0")
    assert [sum(f"[{device}-" in name for name in names)
            for device in ("cpu", "interpreter", "cpu/c", "late:1")] == [30, 3, 1, 1]  # fmt: skip


def test_devices_that_take_long_have_a_share_in_the_full_tier():
    items = on_devices("cpu", "interpreter", "cpu/c")
    dropped = tiers.left_out_of_full(items, "0")
    assert {item.callspec.params["device"] for item in dropped} == {"cpu/c"}
    assert len(dropped) == 27
    assert {item for seed in range(200) for item in items
            if item not in tiers.left_out_of_full(items, str(seed))} == set(items)


def test_rows_of_a_loop_are_chosen_in_the_same_way():
    rows = [f"row {k}" for k in range(40)]
    choices = [tiers.some_of(rows, str(seed)) for seed in range(200)]
    assert {len(found) for found in choices} == {4}
    assert all(found == [row for row in rows if row in found] for found in choices)
    assert {row for found in choices for row in found} == set(rows)
    assert tiers.some_of([], "0") == []


def test_tests_that_run_alone_take_all_rows_of_a_loop(request, tier_rows):
    tier = request.config.getoption("--tier")
    assert len(tier_rows(range(40))) == (4 if tier == "fast" else 40)


def test_a_module_can_be_one_grid():
    items = [Item(f"test_m.py::test_{k}", module=["grid"]) for k in range(20)]
    assert len(kept(items, "0")) == 2


def test_each_seed_takes_other_rows_and_in_time_all():
    items = [Item(f"a.py::test_x[{k}]", own=["grid"]) for k in range(40)]
    choices = [tuple(kept(items, str(seed))) for seed in range(200)]
    assert choices[0] == tuple(kept(items, "0"))
    assert len(set(choices)) > 150
    assert {name for choice in choices for name in choice} == {item.nodeid for item in items}


def test_the_seed_is_given_or_of_the_commit_or_fixed(monkeypatch):
    monkeypatch.setenv("WEFT_GRID_SEED", "given")
    assert tiers.choose_seed() == "given"
    monkeypatch.delenv("WEFT_GRID_SEED")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(stdout="a4a43dc0\n"))
    assert tiers.choose_seed() == "a4a43dc0"
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: (_ for _ in ()).throw(OSError("no git")))
    assert tiers.choose_seed() == "0"


def test_the_full_tier_is_what_pytest_runs_by_itself(pytestconfig):
    assert pytestconfig.getini("testpaths") == ["tests"]
    assert next(o for o in pytestconfig._parser._anonymous.options
                if "--tier" in o.names()).default == "full"  # fmt: skip


def test_what_passed_is_left_out_but_for_loops_of_which_a_part_ran(tmp_path):
    file = tmp_path / "passed"
    names = ["test_a_module_can_be_one_grid", "test_tests_that_run_alone_take_all_rows_of_a_loop"]
    rows = [f"{__file__}::{name}" for name in names]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *rows]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert "2 passed" in run("--tier", "fast", "--record-passed", str(file))
    assert [line.rpartition("::")[2] for line in file.read_text().split("\n")] == names
    assert "1 passed, 1 deselected" in run("--passed", str(file))
