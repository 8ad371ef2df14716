"""Tuning real kernels: candidates are legal and right, losses stay losses, records are used."""

import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import weft
from weft import config
from weft.config import AutotuneConfig
from weft.driver import counters, kernels, tuned
from weft.driver.context import host_context
from weft.driver.plans import plan_cache
from weft.driver.tuning import tune_kernels
from weft.ir.text.text import canonical_text
from weft.schedule.choices import Choices
from weft.strategies import choose
from weft.tuning import records
from weft.tuning.features import features

pytestmark = pytest.mark.grid

FEW = AutotuneConfig(n_seeds=4, n_added_per_step=2, n_total_opts=6)

PROGRAMS = {
    "matmul": (lambda a, b: a @ b, (37, 70), (70, 53)),
    "matmul packed": (lambda a, b: a @ b.T, (130, 64), (96, 64)),
    "linear": (lambda x, w, b: (x @ w + b).relu(), (33, 65), (65, 48), (48,)),
    "matvec": (lambda a, x: a @ x, (129, 257), (257,)),
    "conv": (lambda x, w: x.conv2d(w, padding=1), (2, 5, 13, 11), (16, 5, 3, 3)),
    "softmax": (lambda x: x.softmax(-1), (19, 131)),
    "layer norm": (lambda x: x.layer_norm((77,)), (23, 77)),
    "sum": (lambda x: x.sum(), (4, 1 << 15)),
    "columns": (lambda x: x.sum(0), (131, 67)),
    "chain": (lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x, (7, 1031)),
    "transpose": (lambda x: x.T.contiguous(), (97, 130)),
    "cumsum": (lambda x: x.cumsum(-1), (5, 203)),
    "cumsum down": (lambda x: x.cumsum(0), (31, 300)),
    "cumprod of rows": (lambda x: x.cumprod(-1), (19, 70)),
    "cumprod of one row": (lambda x: x.cumprod(0), (8500,)),
    "attention": (lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
                  (1, 2, 37, 16), (1, 2, 37, 16), (1, 2, 37, 16)),
    "sort": (lambda x: x.sort()[0], (3, 130)),
}  # fmt: skip


@pytest.fixture
def store(cache_dir):
    """Records and caches of this test alone."""
    from weft.store.disk import reset

    def fresh():
        reset()
        records.reset()
        kernels.forget()
        plan_cache.forget()

    fresh()
    yield cache_dir
    tune_kernels.dismiss()
    fresh()


def nests(name, seed=0):
    """Return the loop nests of a program, its arguments and what it computes by default."""
    function, *shapes = PROGRAMS[name]
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(s).astype(np.float32) for s in shapes]
    arguments = [weft.tensor(a) for a in arrays]
    with counters.record() as recording:
        result = function(*arguments).numpy()
    return [b.nest for b in recording.built], arguments, result


def neighbours(kernel, threads=1):
    """Yield choices that differ from the default in one decision."""
    made = Choices()
    choose(kernel, host_context().target, threads, made)
    for choice in made.made.values():
        for option in choice.options:
            if option != choice.default:
                yield {choice.name: option}


# ---- spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_given_defaults_change_nothing(name, threads):
    for kernel in nests(name)[0]:
        made = Choices()
        first = choose(kernel, host_context().target, threads, made)
        again = choose(kernel, host_context().target, threads,
                       Choices({c.name: c.default for c in made.made.values()}))  # fmt: skip
        assert first.meta.schedule == again.meta.schedule
        plain = choose(kernel, host_context().target, threads)
        assert plain.meta.schedule == first.meta.schedule


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_decision_computes_the_same(name, store, monkeypatch):
    """Every neighbour of the default, put into the records as if it had won."""
    function = PROGRAMS[name][0]
    found, arguments, expected = nests(name)
    kernel = max(found, key=lambda k: sum(1 for _ in neighbours(k)))
    key = tuned.record_key(canonical_text(kernel), host_context())
    seen = {choose(kernel, host_context().target, threads()).meta.schedule}
    for choices in itertools.islice(neighbours(kernel, threads()), 24):
        scheduled = choose(kernel, host_context().target, threads(), Choices(choices))
        if scheduled.meta.schedule in seen:
            continue
        seen.add(scheduled.meta.schedule)
        records.records().put(record(key, choices, scheduled))
        kernels.forget()
        plan_cache.forget()
        got = function(*arguments).numpy()
        scale = np.abs(expected).max() or 1.0
        np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=2e-5)


def threads():
    return host_context().native.threads.threads


def record(key, choices, scheduled, pipeline="short"):
    return records.Record(key, "kind", choices, pipeline,
                          tuned.schedule_digest(scheduled), scheduled.meta.schedule,
                          2e-3, 1e-3, 9)  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_features_are_finite_for_every_kernel(name):
    for kernel in nests(name)[0]:
        scheduled = choose(kernel, host_context().target, 2)
        found = features(scheduled, host_context().target, 2)
        assert np.isfinite(found.values).all()
        assert found.cycles >= 1.0


def test_features_tell_better_from_worse():
    """A tile of one row of registers costs more than one of several."""
    (kernel,) = [k for k in nests("matmul packed")[0] if k.meta.kind == "contraction"]
    cycles = {}
    for rows in (1, 8):
        choices = Choices({"contraction.inner_rows": rows, "contraction.inner_columns": rows,
                           "contraction.rows": 2 * rows})  # fmt: skip
        scheduled = choose(kernel, host_context().target, 1, choices)
        cycles[rows] = features(scheduled, host_context().target, 1).cycles
    assert cycles[8] < cycles[1]


# ---- a whole search ------------------------------------------------------------------------------


def test_a_search_ends_and_is_not_repeated(store):
    kernel = nests("softmax")[0][-1]
    first = tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW)
    assert first.trials == 5
    assert first.reason == "candidates"
    assert first.before > 0
    again = tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW)
    assert again.reason == "known"
    assert again.trials == 5
    assert len(records.records().trials(first.key)) == 5


def test_narrow_products_are_measured(store):
    """Also where tile registers multiply them, which a child process has to ask for."""
    a, b = (weft.ones(n, 96).to(weft.bfloat16).realize() for n in (80, 64))
    found = weft.tune(lambda a, b: a @ b.T, a, b, seconds=40)
    assert found
    assert all(t.before > 0 and "ended" not in t.reason for t in found)


def test_more_is_tried_only_where_asked(store):
    kernel = nests("softmax")[0][-1]
    tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW)
    more = AutotuneConfig(n_seeds=4, n_added_per_step=2, n_total_opts=9)
    assert tune_kernels.tune_kernel(kernel, host_context(), 60, again=True, limits=more).trials == 8


def test_A5_launches_of_a_candidate(store, monkeypatch):
    """The limit is the number of rounds in which each is timed."""
    asked = []
    plain = tune_kernels._Session._pairs

    def pairs(self, what, images, rounds):
        asked.append((what, rounds))
        return plain(self, what, images, rounds)

    monkeypatch.setattr(tune_kernels._Session, "_pairs", pairs)
    limits = AutotuneConfig(n_seeds=3, n_added_per_step=0, n_launches=3)
    tune_kernels.tune_kernel(nests("chain")[0][-1], host_context(), 60, limits=limits)
    screened = [
        rounds for what, rounds in asked if what == "measure" and rounds != tune_kernels._FINAL
    ]
    assert screened
    assert set(screened) == {3}


def test_sizes_that_are_known_at_the_call_only(store):
    n = weft.Variable("n", 1, 4096)
    function = weft.jit(lambda a, b: (a @ b).softmax(-1), dynamic={0: {0: n}})
    with counters.record() as recording:
        function(weft.rand(7, 24).realize(), weft.rand(24, 40).realize()).realize()
    symbolic = [b.nest for b in recording.built if b.variables]
    assert symbolic
    for kernel in symbolic:
        found = tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW)
        # Which candidates are drawn follows from the kernel's text; some may be drawn twice.
        assert 2 <= found.trials <= 5
        assert found.before > 0
        assert all(t.status == "ok" for t in records.records().trials(found.key))


def test_no_time_is_no_trial(store):
    kernel = nests("softmax")[0][-1]
    found = tune_kernels.tune_kernel(kernel, host_context(), 0, limits=FEW)
    assert (found.trials, found.reason) == (0, "time")
    assert records.records().finished(found.key) is None


# ---- losses --------------------------------------------------------------------------------------

FAULTY = """
import os, sys, time
from weft.driver.tuning import tune_worker as worker
from weft.tuning.process import serve

FAULT = sys.argv[1]

def build(head, blobs):
    if head["pipeline"] == "O2":
        if FAULT == "build aborts":
            os.abort()
        if FAULT == "build hangs":
            time.sleep(600)
    reply, images = worker.build(head, blobs)
    return reply, (images[0] + head["pipeline"].encode(),)

def image(data):
    return data[: -len(pipeline(data))]

def pipeline(data):
    return next(p for p in (b"short", b"O1", b"O2", b"O3") if data.endswith(p))

def open_bench(head, blobs):
    return worker.open_bench(head, [image(blobs[0])])

def measure(head, blobs):
    if pipeline(blobs[0]) == b"O2":
        if FAULT == "run crashes":
            import ctypes
            ctypes.string_at(0)
        if FAULT == "run hangs":
            while True:
                pass
        if FAULT == "run is wrong":
            expected = worker._bench.expected[worker._bench.written[0]]
            expected[:1] ^= 0x7F0000
            answer = worker.measure(head, [image(blobs[0])])
            expected[:1] ^= 0x7F0000
            return answer
    return worker.measure(head, [image(blobs[0])])

def duel(head, blobs):
    return worker.duel(head, [image(b) for b in blobs])

serve({"build": build, "open": open_bench, "measure": measure, "duel": duel})
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["build aborts", "build hangs", "run crashes", "run hangs",
                                   "run is wrong"])  # fmt: skip
def test_a_bad_candidate_loses_only_itself(store, monkeypatch, fault):
    monkeypatch.setattr(tune_kernels, "_COMPILE_SECONDS", 3.0)
    monkeypatch.setattr(tune_kernels, "_LEAST_SECONDS", 1.0)
    kernel = nests("chain")[0][-1]
    limits = AutotuneConfig(n_seeds=8, n_added_per_step=0)
    command = (sys.executable, "-c", FAULTY, fault)
    found = tune_kernels.tune_kernel(kernel, host_context(), 60, limits=limits, command=command)
    assert found.trials == 7
    trials = records.records().trials(found.key)
    bad = [t for t in trials if t.status != "ok"]
    assert bad
    assert {t.pipeline for t in bad} == {"O2"}
    assert all(t.ratio == float("inf") for t in bad)
    assert len([t for t in trials if t.status == "ok"]) >= 3
    words = {"aborts": "code", "hangs": "hung", "crashes": "code", "wrong": "wrong"}
    assert all(words[fault.split()[-1]] in t.status for t in bad)


def test_a_default_that_fails_ends_the_search(store):
    kernel = nests("chain")[0][-1]
    command = (sys.executable, "-c", "import os; os.abort()")
    found = tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW, command=command)
    assert found.trials == 0
    assert "ended its process" in found.reason
    assert tune_kernels.tune_kernel(kernel, host_context(), 60, limits=FEW).reason == "known"


# ---- records -------------------------------------------------------------------------------------


def win(kernel, choices, pipeline="short"):
    """Put a record as if these choices had won."""
    scheduled = choose(kernel, host_context().target, threads(), Choices(choices))
    key = tuned.record_key(canonical_text(kernel), host_context())
    found = record(key, choices, scheduled, pipeline)
    records.records().put(found)
    return found


def test_a_record_changes_the_code(store):
    (kernel,), arguments, expected = nests("chain")
    before = kernels.key_of(kernel, host_context())
    lanes = next(c for c in neighbours(kernel) if "lanes" in c)
    made = win(kernel, lanes, "O2")
    assert kernels.key_of(kernel, host_context()) != before
    with counters.record() as recording:
        result = PROGRAMS["chain"][0](*arguments).numpy()
    (built,) = recording.built
    assert built.scheduled.meta.schedule == made.trace
    assert built.pipeline == "O2"
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_plan_on_disk_gives_way_to_a_record(store):
    """What was compiled before tuning is not what runs after it, nor the other way round."""
    (kernel,), arguments, _ = nests("chain")
    function = PROGRAMS["chain"][0]

    def compiled():
        kernels.forget()
        plan_cache.forget()
        counters.reset()
        function(*arguments).numpy()
        return counters.counters().get("kernels compiled", 0)

    compiled()
    assert compiled() == 0
    made = win(kernel, next(c for c in neighbours(kernel) if "lanes" in c))
    assert compiled() == 1
    assert compiled() == 0
    records.records().drop(made.key)
    compiled()
    assert compiled() == 0


def test_a_record_that_no_longer_applies(store, monkeypatch, capsys):
    (kernel,), arguments, expected = nests("chain")
    made = win(kernel, next(c for c in neighbours(kernel) if "lanes" in c))
    records.records().put(made._replace(digest="0" * 24))
    monkeypatch.setenv("WEFT_DEBUG", "256")
    config.reset()
    kernels.forget()
    plan_cache.forget()
    np.testing.assert_array_equal(PROGRAMS["chain"][0](*arguments).numpy(), expected)
    assert "no longer applies" in capsys.readouterr().err


def test_a_record_of_another_target_is_not_used(store):
    (kernel,), _, _ = nests("chain")
    before = kernels.key_of(kernel, host_context())
    made = win(kernel, next(c for c in neighbours(kernel) if "lanes" in c))
    records.records().drop(made.key)
    runtime = host_context().native
    for parts in (("another target", runtime.compiler.cache_key, threads()),
                  (host_context().target.fingerprint(), "another compiler", threads()),
                  (host_context().target.fingerprint(), runtime.compiler.cache_key, threads() + 1)):
        key = records.key_of(canonical_text(kernel), *parts)
        records.records().put(made._replace(key=key))
    assert kernels.key_of(kernel, host_context()) == before


def test_names_do_not_matter(store):
    """A record serves every kernel that differs in names only."""
    from weft.ir.text.text import canonicalise

    (kernel,), _, _ = nests("matmul")
    made = win(kernel, {"contraction.rows": 4})
    other = canonicalise(kernel)
    assert tuned.record_key(canonical_text(other), host_context()) == made.key
    assert tuned.recorded(other, made, host_context()) is not None


# ---- from Python and by the environment ----------------------------------------------------------


def test_tune(store, monkeypatch):
    for name, value in (("SEEDS", 3), ("ADDED_PER_STEP", 0)):
        monkeypatch.setenv(f"WEFT_AUTOTUNE_N_{name}", str(value))
    config.reset()
    x = weft.rand(40, 50).realize()
    found = weft.tune(lambda a: a.softmax(-1), x, seconds=30)
    assert [t.kind for t in found] == ["rowwise"]
    assert found[0].trials == 2
    jitted = weft.jit(lambda a: {"out": a.softmax(-1)})
    assert weft.tune(jitted, x)[0].reason == "known"
    np.testing.assert_allclose(jitted(x)["out"].numpy().sum(-1), 1.0, rtol=1e-5)


SCRIPT = """
import weft
x = weft.tensor([[0.5] * 200] * 64)
print(round(float(x.softmax(-1).numpy().sum())))
"""


def run(folder, script=SCRIPT, **environ):
    env = {**os.environ, "WEFT_CACHE_DIR": str(folder), "WEFT_AUTOTUNE_N_SEEDS": "3",
           "WEFT_AUTOTUNE_N_ADDED_PER_STEP": "0",
           "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environ}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          check=False, env=env, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_every_kernel_is_tuned_at_its_first_compilation(tmp_path):
    """A second process launches nothing to tune."""
    out, err = run(tmp_path, WEFT_TUNE="1", WEFT_DEBUG="256")
    assert out[0] == "64"
    assert err.count("weft: tuning") >= 2
    out, err = run(tmp_path, WEFT_TUNE="1", WEFT_DEBUG="256")
    assert out[0] == "64"
    assert "weft: tuning" not in err
    out, err = run(tmp_path, WEFT_DEBUG="256")
    assert out[0] == "64"
    assert not err


@pytest.mark.parametrize(("reason", "left"), [("time", False), ("interrupted", True)])
def test_a_search_that_ran_out_of_time_is_not_taken_up_by_the_next_process(
        store, monkeypatch, reason, left):
    kernel = nests("softmax")[0][-1]
    key = tune_kernels.record_key(kernel, host_context())
    calls = []

    def search(kernel, context, heard):
        calls.append(kernel)
        return tune_kernels.Tuned(key, "rowwise", 1.0, 1.0, 7, 1, {}, reason)

    with monkeypatch.context() as patch:
        patch.setattr(tune_kernels, "tune_kernel", search)
        tune_kernels.tune_first(kernel, host_context())
    assert calls == [kernel]
    assert records.records().finished(key) == (None if left else 7)


def test_kernels_compiled_before_are_tuned_too(tmp_path):
    assert "weft: tuning" not in run(tmp_path, WEFT_DEBUG="256")[1]
    assert "weft: tuning" in run(tmp_path, WEFT_TUNE="1", WEFT_DEBUG="256")[1]


def test_A5_nothing_is_kept_where_the_settings_say_so(tmp_path):
    for _ in range(2):
        _, err = run(tmp_path, WEFT_TUNE="1", WEFT_DEBUG="256", WEFT_AUTOTUNE_SAVE_TO_DISK="0")
        assert "weft: tuning" in err
    assert not list(tmp_path.rglob("tuning.sqlite"))


KILLED = """
import sys, weft
from weft.driver import counters as report; from weft.driver.tuning import tune_kernels as tuning
x = weft.tensor([[0.5] * 200] * 64)
with report.record() as recording:
    x.softmax(-1).realize()
print("ready", flush=True)
heard = lambda p: p.trials and print(p.trials, flush=True)
for tuned in tuning.tune_program(recording, 600, heard=heard):
    print(tuned.reason, tuned.trials)
"""


def test_a_killed_tuner_goes_on_where_it_was(tmp_path):
    env = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_AUTOTUNE_N_SEEDS": "14",
           "WEFT_AUTOTUNE_N_ADDED_PER_STEP": "0",
           "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}  # fmt: skip
    command = [sys.executable, "-W", "error", "-c", KILLED]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert first.stdout.readline() == "ready\n"
    for _ in range(5):
        last = int(first.stdout.readline())
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    time.sleep(0.2)
    second = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120,
                            check=True)  # fmt: skip
    lines = second.stdout.split("\n")
    assert lines[0] == "ready"
    assert int(lines[1]) >= last  # what was measured counts, and is not measured again
    assert lines[-2].startswith("seeds") or lines[-2].startswith("space")


def test_two_tuners_at_once(tmp_path):
    env = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_AUTOTUNE_N_SEEDS": "8",
           "WEFT_AUTOTUNE_N_ADDED_PER_STEP": "0",
           "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}  # fmt: skip
    command = [sys.executable, "-W", "error", "-c", KILLED]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=env) for _ in range(2)]  # fmt: skip
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.rstrip().rpartition("\n")[2].startswith("seeds 7")
