"""Profiles: what ran in a block, on which device, when, and what files of it say."""

import json
import os
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import far_devices
import weft
from weft import gpu
from weft.driver.report import trace_file
from weft.errors import BoundsError, LaunchError
from weft.runtimes import trace
from weft.runtimes.cpu import traced
from weft.runtimes.native.executor import kernel_times
from weft.runtimes.native.executor.kernel_times import Row
from weft.tensors.core import source_positions


@weft.kernel
def double(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] *= 2


@pytest.fixture(autouse=True)
def _nothing_is_left():
    far_devices.register()
    yield
    assert trace.recorder is None
    assert not source_positions._blocks
    timed = {times._address(n) for times in [kernel_times._known] if times is not None
             for n in range(len(times._stubs))}  # fmt: skip
    assert not any(table.function(step) in timed
                   for table in kernel_times._tables for step in table.kernels())


def calls(profile, device="cpu"):
    """Return how often kernels ran by the first word of their names."""
    found = Counter()
    for kernel in profile.kernels():
        if kernel.device == device:
            found[kernel.name.split()[0]] += kernel.calls
    return found


def test_kernels_are_counted_however_they_are_called():
    @weft.jit
    def step(x):
        return (x @ x).relu(), x.sum()

    @weft.compute
    def fill(x, value):
        for i in range(x.shape[0]):
            x[i] = value

    x, y, z = weft.ones(8, 8), weft.ones(8), np.zeros(100, np.float32)
    for _ in range(4):  # the later ones are native calls
        step(x)[1].item()
        double[1, 32](y)
        fill(z, 3)
    before = y.tolist()
    with weft.profile() as p:
        for _ in range(5):
            step(x)[1].item()
        for _ in range(7):
            double[1, 32](y)
        for _ in range(3):
            fill(z, 4)
    assert y.tolist() == [before[0] * 2**7] * 8
    assert (z == 4).all()
    found = calls(p)
    assert found["double"] == 7
    assert found["fill"] == 3
    assert found["contraction"] == 5
    # what runs outside is not recorded
    double[1, 32](y)
    step(x)[1].item()
    with weft.profile() as p:
        pass
    assert p.kernels() == []
    assert p.spans == ()


def test_eager_graphs_and_their_compilations_are_recorded():
    with weft.profile() as p:
        assert (weft.ones(7, 3) * 3.25 + 1.125).sum().item() == 7 * 3 * 4.375
    assert sum(calls(p).values()) >= 1
    made = [s for s in p.spans if s.kind == "compile"]
    ran = [s for s in p.spans if s.kind == "kernel"]
    assert all(m.end <= ran[0].start for m in made)
    assert {m.name for m in made} <= {s.name for s in ran}
    assert "share" in str(p)


def test_lines_of_users():
    with weft.profile(lines=True) as p:
        x = weft.arange(1234, dtype=weft.float32)
        (x * 7.75).sin().sum().item()  # a line that the trace names
        double[1, 32](weft.ones(3))
    lines = {k.line[1] for k in p.kernels() if k.line and k.line[0] == __file__}
    text = Path(__file__).read_text().splitlines()
    assert any("a line that the trace names" in text[n - 1] for n in lines)
    (own,) = [k for k in p.kernels() if k.name.startswith("double")]
    assert own.line[0] == __file__
    assert text[own.line[1] - 1].strip() in ("i = gpu.grid(1)", "if i < x.size:", "x[i] *= 2")


def test_what_fails_inside_is_raised_and_the_trace_is_written(tmp_path):
    x, bad = weft.ones(5), weft.tensor([9])
    with pytest.raises(BoundsError), weft.profile(tmp_path / "t.json") as p:
        x[bad].tolist()
    assert any(s.failed for s in p.spans if s.kind == "kernel")
    loaded = json.loads((tmp_path / "t.json").read_text())
    assert any(e.get("args", {}).get("failed") for e in loaded["traceEvents"])


def test_a_file_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path):
    ran = []
    with pytest.raises(OSError), weft.profile(tmp_path / "no" / "t.json"):  # noqa: PT011
        ran.append(1)
    assert not ran


def test_a_profile_that_cannot_begin_leaves_nothing(monkeypatch):
    y = weft.ones(4)
    double[1, 32](y)

    def broken(on):
        if on:
            raise MemoryError

    monkeypatch.setattr(trace, "switches", [*trace.switches, broken])
    with pytest.raises(MemoryError), weft.profile():
        pass
    assert trace.recorder is None
    monkeypatch.undo()
    with weft.profile() as p:
        double[1, 32](y)
    assert calls(p)["double"] == 1
    assert y.tolist() == [4.0] * 4


def test_a_profile_is_used_once():
    from weft.driver.report.profiling import Profile

    one = Profile()
    with one:
        pass
    with pytest.raises(LaunchError), one:
        pass


def test_profiles_inside_of_each_other_and_on_several_threads():
    y = weft.ones(4)
    double[1, 32](y)
    with weft.profile() as outer:
        double[1, 32](y)
        with weft.profile() as inner:
            double[1, 32](y)
            double[1, 32](y)
        double[1, 32](y)
    assert calls(outer)["double"] == 4
    assert calls(inner)["double"] == 2
    ready = threading.Barrier(2)
    found = {}

    def work(name, count):
        mine = weft.ones(4).realize()
        ready.wait(60)
        with weft.profile() as p:
            ready.wait(60)
            for _ in range(count):
                double[1, 32](mine)
            ready.wait(60)
        found[name] = p

    threads = [threading.Thread(target=work, args=(f"worker {n}", n), name=f"worker {n}")
               for n in (3, 5)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for p in found.values():
        rows = Counter(s.queue for s in p.spans if s.kind == "kernel")
        assert sorted(rows.values()) == [3, 5]


def test_profiles_of_lines_may_overlap_on_threads():
    """The one that began first ends first: the other one still notes lines, and none does after."""
    first, second = weft.profile(lines=True), weft.profile(lines=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert source_positions._blocks
    second.__exit__(None, None, None)


def events_of(path):
    loaded = json.loads(path.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in loaded if e["name"] == "process_name"}
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in loaded if e["name"] == "thread_name"}
    return [e for e in loaded if e["ph"] == "X"], processes, rows


def test_traces_have_a_process_for_each_device_and_a_row_for_each_queue(tmp_path):
    x = weft.arange(64, dtype=weft.float32).realize()
    with weft.profile(tmp_path / "t.json") as p:
        there = x.to("late")
        (there * 2).to("late:1").add(1).cpu().tolist()
        (x.to("interpreter") + 1).tolist()
        double[2, 32](weft.ones(3, device="interpreter"))
    found, processes, rows = events_of(tmp_path / "t.json")
    assert {"cpu", "late", "late:1", "interpreter"} <= set(processes.values())
    assert len(found) == len(p.spans)
    for event in found:
        assert event["dur"] >= 0
        assert event["ts"] >= 0
        assert (event["pid"], event["tid"]) in rows
    named = {(processes[pid], name) for (pid, _), name in rows.items()}
    assert {("late", "queue"), ("late", "copies"), ("late:1", "queue")} <= named
    assert "double" in {e["name"] for e in found if processes[e["pid"]] == "interpreter"}
    # work of a row lies beside or inside other work of it: viewers show nothing else
    for row in rows:
        ends = []
        for start, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in found
                                 if (e["pid"], e["tid"]) == row):  # fmt: skip
            while ends and ends[-1] <= start + 1e-3:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-3
            ends.append(end)


def test_copies_have_their_bytes_and_devices():
    x = weft.arange(1000, dtype=weft.float32).realize()
    with weft.profile() as p:
        there = x.to("far").realize()
        there.to("late").realize()
        there.numpy()
    found = {(c.origin, c.device): (c.calls, c.nbytes) for c in p.copies()}
    assert found == {("cpu", "far"): (1, 4000), ("far", "late"): (1, 4000),
                     ("far", "cpu"): (1, 4000)}  # fmt: skip
    assert "GB/s" in str(p)


@pytest.mark.parametrize("tells", [True, False], ids=["times", "events"])
def test_A12_overlap_of_copy_and_compute_is_seen_in_the_trace(tmp_path, monkeypatch, tells):
    """A copy and a kernel that both have begun before either may end lie over each other."""
    monkeypatch.setattr(far_devices.Done, "tells", tells)
    a = weft.arange(100, dtype=weft.float32).to("late").realize()

    @weft.jit
    def both(a):
        return a * 2, a.to("late:1")

    for _ in range(3):
        [t.tolist() for t in both(a)]
    weft.synchronize("late")
    met, meeting = [], threading.Barrier(2)

    def before(queue):
        name = "copy" if queue is queue.device.copy_queue else "kernel"
        if name not in met:  # later copies are those of what is read
            met.append(name)
            meeting.wait(60)

    monkeypatch.setattr(far_devices.LateQueue, "before", before)
    with weft.profile(tmp_path / "t.json") as p:
        one, other = both(a)
    assert one.tolist() == [2.0 * k for k in range(100)]
    assert other.tolist() == list(range(100))
    assert sorted(met) == ["copy", "kernel"]
    (kernel,) = [s for s in p.spans if s.kind == "kernel" and s.device == "late"]
    (copy,) = [s for s in p.spans if s.kind == "copy"]
    assert (copy.origin, copy.device, copy.nbytes) == ("late", "late:1", 400)
    assert max(kernel.start, copy.start) < min(kernel.end, copy.end)
    found, processes, rows = events_of(tmp_path / "t.json")
    (kernel,) = [e for e in found if e["cat"] == "kernel" and processes[e["pid"]] == "late"]
    (copy,) = [e for e in found if e["cat"] == "copy"]
    assert rows[copy["pid"], copy["tid"]] == "copies"
    assert max(kernel["ts"], copy["ts"]) < min(
        kernel["ts"] + kernel["dur"], copy["ts"] + copy["dur"])


@pytest.mark.parametrize("tells", [True, False], ids=["times", "events"])
def test_what_waits_for_a_copy_begins_after_it(monkeypatch, tells):
    monkeypatch.setattr(far_devices.Done, "tells", tells)
    a = weft.arange(100, dtype=weft.float32).to("late").realize()
    with weft.profile() as p:
        for _ in range(5):
            (a.to("late:1") + 1).realize()
    copies = [s for s in p.spans if s.kind == "copy"]
    kernels = [s for s in p.spans if s.kind == "kernel" and s.device == "late:1"]
    assert len(copies) == len(kernels) == 5
    assert all(k.start >= c.end for c, k in zip(copies, kernels, strict=True))


def test_calls_of_plans_are_told_from_their_kernels():
    """Steps go in order on the thread that calls; those of other threads belong to the last."""
    me = threading.get_ident()
    rows = [Row("a", 1, 0, me, 0, 5, False), Row("b", 1, 1, me, 6, 9, False),
            Row("a", 1, 0, me, 10, 12, False), Row("x", 1, 2, 77, 13, 20, False),
            Row("b", 1, 1, me, 13, 14, True), Row("k", 2, 0, me, 30, 31, False)]  # fmt: skip
    spans = [s for s in traced.spans_of(rows, [77]) if s.kind == "plan"]
    assert [(s.name, s.start, s.end, s.failed) for s in spans] == [
        ("plan of 2 kernels", 0, 9, False), ("plan of 3 kernels", 10, 20, True)]
    assert {s.queue for s in traced.spans_of(rows, [77])} == {threading.current_thread().name,
                                                        "pool thread 1"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_no_profile():
    y = weft.ones(4)
    double[1, 32](y)
    with weft.profile() as p:
        double[1, 32](y)
        child = os.fork()
        if not child:
            code = 1
            try:
                double[1, 32](y)
                with weft.profile() as own:
                    double[1, 32](y)
                code = int(trace.recorder is not None or y.tolist() != [16.0] * 4
                           or calls(own)["double"] != 1)  # fmt: skip
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        double[1, 32](y)
    assert calls(p)["double"] == 2
    assert y.tolist() == [8.0] * 4


def test_work_that_overlaps_on_one_queue_takes_rows_of_its_own():
    """Two threads may run kernels by one queue; a viewer shows nothing that half covers another."""
    spans = [trace.Span("kernel", "a", "x", "queue", 0, 10), trace.Span("kernel", "b", "x", "queue",
             5, 15), trace.Span("kernel", "c", "x", "queue", 10, 12),
             trace.Span("plan", "p", trace.HOST_ROW, "main", 0, 20),
             trace.Span("compile", "q", trace.HOST_ROW, "main", 2, 9)]  # fmt: skip
    made = list(trace_file.events(sorted(spans, key=lambda s: (s.start, -s.end)), 0, {}))
    rows = {e["name"]: (e["pid"], e["tid"]) for e in made if e["ph"] == "X"}
    assert rows["a"] == rows["c"] != rows["b"]
    assert rows["p"] == rows["compile q"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in made if e["name"] == "thread_name"}
    assert (names[rows["a"]], names[rows["b"]]) == ("queue", "queue (2)")


def test_tables_add_up():
    y = weft.ones(4)
    double[1, 32](y)
    with weft.profile() as p:
        for _ in range(4):
            double[1, 32](y)
        y.to("far").realize()
    kernels = p.kernels()
    assert sum(k.share for k in kernels) == pytest.approx(1)
    for k in kernels:
        assert k.seconds == pytest.approx(k.mean * k.calls)
    (row,) = [line for line in p.table().splitlines() if line.startswith("double")]
    assert row.split()[2:4] == ["cpu", "4"]
    assert any(line.split()[:4] == ["cpu", "to", "far", "1"] for line in str(p).splitlines())
