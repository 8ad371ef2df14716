"""Whole programs on devices of drivers: examples, steps of training, printing, failures."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import gpu, nn
from weft.errors import BoundsError, KernelError

BROWSERS = [pytest.param(name, marks=pytest.mark.requires("webgpu"))
            for name in ("webgpu", "webgpu:poor")]  # fmt: skip
DRIVERS = [pytest.param(name, marks=pytest.mark.requires(name))
           for name in ("opencl:pocl", "opencl:intel", "opencl:pocl/threads",
                        "vulkan:lavapipe")]  # fmt: skip
EXAMPLES = sorted(p.stem for p in Path(__file__).parents[2].glob("examples/kernels/[a-z]*.py"))
KINDS = {"add": np.add, "max": np.maximum, "min": np.minimum, "and_": np.bitwise_and,
         "or_": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


@pytest.fixture(params=DRIVERS)
def device(request):
    weft.set_default_device(request.param)
    yield request.param
    weft.set_default_device(None)


@pytest.fixture(params=DRIVERS + BROWSERS)
def any_device(request):
    """Return a device that may have no float64 and no atomic operations of 64 bits."""
    weft.set_default_device(request.param)
    yield request.param
    weft.set_default_device(None)


@pytest.mark.grid
@pytest.mark.parametrize("name", EXAMPLES)
def test_E14_examples(device, name):
    importlib.import_module(f"examples.kernels.{name}").check()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_the_processor(any_device, causal, rng):
    """Odd sizes, a row of which no key is seen, infinite and missing numbers."""
    q, k, v = (rng.standard_normal((2, n, 13)).astype(np.float32) for n in (37, 41, 41))
    seen = rng.random((37, 41)) < 0.4
    seen[5] = False
    q[0, 3, 1], v[0, 40, 2], v[1, 0, 3] = np.nan, np.inf, np.nan
    found = []
    for place in ("cpu", any_device):
        a, b, c, mask = (weft.tensor(x, device=place) for x in (q, k, v, seen))
        found.append(a.scaled_dot_product_attention(
            b, c, None if causal else mask, is_causal=causal).numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("image", "weight", "options"), [
    ((2, 5, 40), (17, 5, 4), {"padding": 2}),
    ((2, 3, 19, 21), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((2, 8, 12, 13), (16, 2, 3, 3), {"padding": 2, "dilation": 2, "groups": 4}),
    ((1, 4, 5, 6, 7), (16, 4, 2, 3, 3), {"padding": 1}),
])  # fmt: skip
def test_convolutions_are_those_of_the_processor(any_device, image, weight, options, rng):
    """Results and both gradients, of integers, whose sums are exact in any order."""
    x, w = (rng.integers(-3, 4, n).astype(np.float32) for n in (image, weight))
    found = []
    for place in ("cpu", any_device):
        a, b = (weft.tensor(n, device=place).requires_grad_(True) for n in (x, w))
        y = getattr(a, f"conv{x.ndim - 2}d")(b, **options)
        (y * y).sum().backward()
        found.append([n.numpy() for n in (y.detach(), a.grad, b.grad)])
    for mine, its in zip(*found, strict=True):
        np.testing.assert_array_equal(its, mine)


def test_a_step_of_training_is_that_of_the_processor(device, rng):
    data, labels = rng.standard_normal((31, 17)).astype(np.float32), rng.integers(0, 5, 31)
    found = []
    for place in ("cpu", device):
        weft.manual_seed(3)
        model = nn.Sequential(nn.Linear(17, 23), nn.GELU(), nn.LayerNorm(23), nn.Linear(23, 5))
        model = model.to(place)
        optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = weft.tensor(data, device=place), weft.tensor(labels, device=place)

        @weft.jit
        def step(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = weft.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(x, y).item() for _ in range(5)]
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert found[1][0][4] < found[1][0][0]


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_atomic_operations(any_device, rng, kind, dtype):
    """Of 64 bits WebGPU has sums and bits: two operations on words do."""
    operation = getattr(gpu.atomic, kind)

    @weft.kernel
    def gather(x, out):
        i = gpu.grid(1)
        if i < x.size:
            operation(out, i % 3, x[i])

    x = rng.integers(0, 1 << (20 if "32" in dtype else 40), 1000).astype(dtype)
    first = rng.integers(0, 1 << 20, 3).astype(dtype)
    out = first.copy()
    if any_device.startswith("webgpu") and "64" in dtype and kind in ("min", "max"):
        with pytest.raises(KernelError, match=rf"atomic {kind} of {dtype}"):
            gather[16, 64](x, out)
        return
    gather[16, 64](x, out)
    want = [KINDS[kind].reduce([first[k], *x[k::3]]) for k in range(3)]
    np.testing.assert_array_equal(out, np.array(want).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_atomic_sums_of_floats(any_device, rng, dtype):
    if any_device.startswith("webgpu") and dtype == "float64":
        return  # of which it has none that are atomic

    @weft.kernel
    def total(x, out):
        i = gpu.grid(1)
        if i < x.size:
            gpu.atomic.add(out, i % 5, x[i])

    x, out = rng.integers(0, 9, 200).astype(dtype), np.zeros(7, dtype)
    total[4, 64](x, out)
    np.testing.assert_array_equal(out, [*(x[k::5].sum() for k in range(5)), 0, 0])


def test_names_of_the_language_and_of_the_text_may_be_names_of_kernels(device):
    @weft.kernel
    def kernel(b0, o0, o1, M_PI, half, size_0, float4, begin, INT_MAX, share):
        global_ = gpu.grid(1)
        status, scratch, i64, fma, NAN = M_PI[0], half, 1.0, 2.0, 3.0
        if global_ < b0.size:
            b0[global_] = (o0[global_] + o1 + status + scratch + i64 + fma + NAN + size_0
                           + float4 + begin + INT_MAX + share)

    out = np.zeros(5)
    kernel[1, 32](out, np.arange(5.0), 10.0, np.ones(1), 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
    np.testing.assert_array_equal(out, np.arange(5) + 10 + 1 + 100 + 6 + 11_111_000)


def test_kernels_print(any_device, capfd):
    @weft.kernel
    def told(x, n):
        i = gpu.grid(1)
        if i < n:
            print("element", i, x[i], x[i] > 1)

    told[1, 64](np.array([0.1, 2.5, -3e300]), 3)
    told[1, 64](np.array([1.65, 7], np.float32), 2)
    weft.synchronize(any_device)
    found = capfd.readouterr()
    assert sorted(found.out.splitlines()) == sorted([
        "element 0 0.1 False", "element 1 2.5 True", "element 2 -3e+300 False",
        "element 0 1.65 True", "element 1 7.0 True"])  # fmt: skip
    assert found.err == ""


def test_what_finds_no_room_is_said(device, capfd):
    @weft.kernel
    def told(n):
        i = gpu.grid(1)
        if i < n:
            print(i)

    told[400, 256](100_000)
    weft.synchronize(device)
    found = capfd.readouterr()
    lines = [int(line) for line in found.out.split()]
    assert len(set(lines)) == len(lines) == 1 << 15
    assert "found no room" in found.err


def test_lines_of_several_lengths_that_find_no_room(device, capfd):
    @weft.kernel
    def told(n):
        i = gpu.grid(1)
        if i < n:
            print("one", i)
        elif i < 2 * n:
            print("three", i, i, i)

    told[400, 256](21_845)
    weft.synchronize(device)
    found = capfd.readouterr()
    assert "found no room" in found.err
    for line in found.out.splitlines():
        word, *numbers = line.split()
        assert len(set(numbers)) == 1
        assert (word == "one") is (int(numbers[0]) < 21_845)
        assert len(numbers) == (1 if word == "one" else 3)


def test_a_stream_that_takes_nothing_harms_nothing(device, monkeypatch):
    class Broken:
        def write(self, text):
            raise BrokenPipeError("gone")

        def flush(self):
            raise BrokenPipeError("gone")

    @weft.kernel
    def told(x):
        print(x[0])
        x[0] = 7

    x = np.zeros(1)
    monkeypatch.setattr("sys.stdout", Broken())
    told[1, 1](x)
    assert x[0] == 7


def test_drivers_say_nothing_on_the_screen(device, capfd):
    x = weft.arange(5000).reshape(50, 100)
    x.sort(1)[0].realize()
    x.topk(7)[0].realize()
    (x.to(weft.float16) * 2).var().item()
    assert capfd.readouterr().err == ""


def test_a_failure_names_index_and_line_and_later_launches_run(any_device):
    @weft.kernel
    def put(x, at):
        i = gpu.grid(1)
        x[i + at] = 1

    x = np.zeros(64, np.float32)
    with pytest.raises(BoundsError, match="from 0 to 63") as caught:
        put[1, 64](x, 7)
    assert "x[i + at] = 1" in str(caught.value)
    put[1, 64](x, 0)
    assert x.sum() == 64


def test_sums_of_parts_between_launches_of_a_kernel(device, rng):
    """Kernels of several phases: partial results are in scratch memory, other launches' too."""
    x = rng.standard_normal((300, 1001)).astype(np.float32)
    there = [weft.tensor(x + k, device=device) for k in range(4)]
    found = [(t.var(), t.max(), t.reshape(-1).sort()[0]) for t in there]
    for k, (var, most, ordered) in enumerate(found):
        np.testing.assert_allclose(var.item(), np.var(x + k, ddof=1, dtype=np.float64), rtol=1e-4)
        assert most.item() == (x + k).max()
        np.testing.assert_array_equal(ordered.numpy(), np.sort((x + k).reshape(-1)))


def test_integers_wrap(device):
    """Drivers may take a signed overflow for impossible."""
    for dtype, wide in ((np.int64, 1 << 16), (np.int32, 3)):
        last = np.iinfo(dtype).max
        x = weft.tensor(np.array([last // 2 + 1, last], dtype))
        with np.errstate(over="ignore"):
            expected = (x.numpy() * dtype(wide)) // dtype(wide)
        np.testing.assert_array_equal(((x * wide) // wide).numpy(), expected)
        assert (x[1:] + 1 < x[1:]).numpy().all()


def test_arrays_of_a_group_may_be_large(device):
    @weft.kernel
    def turned(out):
        held = gpu.shared.array(5000, weft.int32)
        t = gpu.threadIdx.x
        for k in range(t, 5000, 64):
            held[k] = k
        gpu.syncthreads()
        out[t] = held[4999 - t]

    out = weft.zeros(64, dtype=weft.int32).contiguous()
    turned[1, 64](out)
    np.testing.assert_array_equal(out.numpy(), 4999 - np.arange(64))


def test_a_thread_that_fails_before_a_barrier_stops_its_block(device):
    @weft.kernel
    def turned(places, out):
        held = gpu.shared.array(64, weft.int32)
        t = gpu.threadIdx.x
        held[places[t]] = t
        gpu.syncthreads()
        out[t] = held[63 - t] + 1

    out = weft.zeros(64, dtype=weft.int32).contiguous()
    places = np.arange(64, dtype=np.int32)
    places[33] = 64
    with pytest.raises(BoundsError, match="64"):
        turned[1, 64](weft.tensor(places), out)
    assert not out.numpy().any()


def test_a_refusal_names_the_device_the_primitive_and_its_line(any_device):
    @weft.kernel
    def clocked(x):
        i = gpu.grid(1)
        x[i] = i
        x[i] += gpu.clock64()  # here

    @weft.kernel
    def exchanged(x):
        gpu.atomic.add(x, 0, 1)
        x[gpu.grid(1)] = gpu.atomic.add(x, 1, 1)  # here

    cases = [(clocked, "a clock in a kernel")]
    if any_device.startswith("webgpu"):
        cases.append((exchanged, "atomic add of int64"))
    for kernel, told in cases:
        with pytest.raises(KernelError) as caught:
            kernel[1, 32](np.zeros(32, np.int64))
        message = str(caught.value)
        assert f"on {any_device}" in message
        assert f"found {told}" in message
        assert "# here" in message
