"""Tuning on devices of drivers: decisions compute the same, records are each device's own."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.config import AutotuneConfig
from weft.driver import counters, kernels, tuned
from weft.driver.context import context
from weft.driver.plans import plan_cache
from weft.driver.tuning import tune_kernels
from weft.errors import TuningError
from weft.schedule.choices import Choices
from weft.strategies import choose
from weft.tuning import records
from weft.tuning.records import Record

pytestmark = pytest.mark.grid

DEVICES = [pytest.param(name, marks=pytest.mark.requires(name))
           for name in ("opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe", "webgpu")]
PROGRAMS = {
    "matmul": (lambda a, b: a @ b, (37, 70), (70, 53)),
    "conv": (lambda x, w: x.conv2d(w, padding=1), (2, 5, 13, 11), (16, 5, 3, 3)),
    "softmax": (lambda x: x.softmax(-1), (19, 131)),
    "sum": (lambda x: x.sum(), (3, 1 << 15)),
    "cumsum": (lambda x: x.cumsum(-1), (3, 1203)),
}  # fmt: skip


@pytest.fixture
def store(cache_dir):
    """Records and caches of this test alone."""
    def fresh():
        records.reset()
        kernels.forget()
        plan_cache.forget()

    fresh()
    yield cache_dir
    tune_kernels.dismiss()
    fresh()


def run(name, device, seed=0):
    """Return the loop nests of a program and what it computes."""
    function, *shapes = PROGRAMS[name]
    generator = np.random.default_rng(seed)
    arguments = [weft.tensor(generator.standard_normal(s).astype(np.float32), device=device)
                 for s in shapes]
    with counters.record() as recording:
        result = function(*arguments).numpy()
    return [b.nest for b in recording.built], result


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_decision_of_a_device_computes_the_same(name, device, store):
    """Some neighbours of the default, put into the records as if they had won."""
    place = context(device)
    found, expected = run(name, device)
    for kernel in found:
        made = Choices()
        seen = {choose(kernel, place.target, place.threads, made).meta.schedule}
        given = [{c.name: o} for c in made.made.values() for o in c.options if o != c.default]
        tried = 0
        for choices in given:
            scheduled = choose(kernel, place.target, place.threads, Choices(choices))
            if scheduled.meta.schedule in seen or tried == 3:
                continue
            seen.add(scheduled.meta.schedule)
            tried += 1
            key = tune_kernels.record_key(kernel, place)
            digest = tuned.schedule_digest(scheduled)
            records.records().put(Record(key, kernel.meta.kind, choices, "short", digest,
                                         scheduled.meta.schedule, 2.0, 1.0, 1))  # fmt: skip
            kernels.forget()
            plan_cache.forget()
            built, got = run(name, device)
            assert len(built) == len(found)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=2e-5)


def test_devices_of_threads_have_decisions(device_of_threads, store):
    for name, choice in (("matmul", "block"), ("softmax", "items"), ("sum", "items")):
        made: list[str] = []
        for kernel in run(name, device_of_threads.name)[0]:
            choices = Choices()
            choose(kernel, device_of_threads.target, device_of_threads.threads, choices)
            made += choices.made
        assert choice in made, name


@pytest.fixture(params=DEVICES[1:])
def device_of_threads(request):
    return context(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_search_on_a_device(device, store):
    function, *shapes = PROGRAMS["softmax"]
    x = weft.tensor(np.random.default_rng(1).standard_normal(shapes[0]).astype(np.float32),
                    device=device)  # fmt: skip
    with counters.record() as recording:
        expected = function(x).numpy()
    (nest,) = {b.nest for b in recording.built}
    few = AutotuneConfig(n_seeds=2, n_added_per_step=1, n_total_opts=2)
    found = tune_kernels.tune_kernel(nest, context(device), 60.0, limits=few)
    assert found.before > 0, found.reason
    assert found.reason in ("candidates", "seeds", "space")
    assert tune_kernels.tune_kernel(nest, context(device), 60.0, limits=few).reason == "known"
    host = tune_kernels.record_key(nest, context("cpu"))
    assert records.records().finished(host) is None
    np.testing.assert_allclose(function(x).numpy(), expected, rtol=0, atol=1e-6)


@weft.kernel
def halved(x, y):
    i = gpu.grid(1)
    if i < x.shape[0]:
        y[i] = x[i] / 2


@pytest.mark.requires("vulkan")
def test_kernels_of_threads_keep_their_threads(store):
    x = weft.ones(300, device="vulkan").realize()
    y = weft.zeros(300, device="vulkan").realize()
    with counters.record() as recording:
        halved[5, 64](x, y)
    assert recording.built
    assert not any(tune_kernels.is_searched(b.nest, b.context) for b in recording.built)


def test_kernels_of_blocks_are_tuned_as_the_loops_that_they_become(store):
    x, y = np.ones(3000, np.float32), np.zeros(3000, np.float32)
    with counters.record() as recording:
        halved[47, 64](x, y)
    few = AutotuneConfig(n_seeds=2, n_added_per_step=1, n_total_opts=2)
    (built,) = recording.built
    found = tune_kernels.tune_kernel(built.nest, built.context, 30.0, limits=few)
    assert found.before > 0, found.reason
    kernels.forget()
    halved[47, 64](x, y)
    assert (y == 0.5).all()


def test_a_device_whose_launches_are_not_timed_is_refused(store):
    with pytest.raises(TuningError, match="kernels of interpreter alone"):
        weft.tune(lambda x: x + 1, weft.ones(3, device="interpreter"))
