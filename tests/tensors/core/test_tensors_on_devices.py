"""Tensors on devices whose memory is not that of this process: where values are, and go."""

import copy
import gc

import numpy as np
import pytest

import far_devices
import weft
from weft import nn
from weft.errors import DeviceError, WeftError

pytestmark = pytest.mark.usefixtures("compiled")
PLACES = ("far", "late", "late:1", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")))


@pytest.fixture(autouse=True)
def _devices():
    far_devices.register()
    yield
    weft.set_default_device(None)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_made_on_a_device_is_there(place):
    made = [
        weft.tensor([1, 2], device=place), weft.zeros(2, device=place), weft.ones(2, device=place),
        weft.full((2,), 3.0, device=place), weft.arange(2, device=place),
        weft.rand(2, device=place), weft.randn(2, device=place), weft.eye(2, device=place),
        weft.linspace(0, 1, 2, device=place), weft.randint(0, 9, (2,), device=place),
    ]  # fmt: skip
    x = made[0]
    made += [weft.zeros_like(x), weft.ones_like(x), x.new_zeros(3), x.new_tensor([1.0]),
             weft.rand_like(x.float()), x * 2, x[0], x.sum(), x.reshape(2, 1), x.float().exp()]
    for tensor in made:
        assert tensor.device == place
        assert tensor.realize().device == place
        assert tensor.numpy().shape == tuple(tensor.shape)


def test_a_device_may_be_named_in_each_way():
    x = weft.tensor([1.0, 2.0])
    for moved in (x.to("late:1"), x.to(device="late:1"), x.to_device("late:1"),
                  x.to("late:1", weft.float64), x.to(weft.tensor(1, device="late:1"))):  # fmt: skip
        assert moved.device == "late:1"
        assert moved.cpu().device == "cpu"
        assert moved.cpu().tolist() == [1.0, 2.0]
    assert x.to("cpu") is x
    y = x.to("late")
    assert y.to("late:0") is y
    assert y.to("late/llvm") is y


@pytest.mark.parametrize("place", PLACES)
def test_host_values_and_views(place, rng):
    array = rng.normal(size=(3, 5)).astype(np.float32)
    x = weft.tensor(array, device=place)
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(np.asarray(x.T), array.T)
    np.testing.assert_array_equal(x[1:, ::2].numpy(), array[1:, ::2])
    assert x[2, 3].item() == array[2, 3]
    assert x.tolist() == array.tolist()
    assert bool((x == weft.tensor(array, device=place)).all())
    x[0] = 7
    array[0] = 7
    x[:, 1].add_(1)
    array[:, 1] += 1
    np.testing.assert_array_equal(x.numpy(), array)
    y = x.clone()
    y.zero_()
    np.testing.assert_array_equal(copy.deepcopy(x).numpy(), array)
    assert copy.deepcopy(x).device == place


def test_operations_on_two_devices_are_refused():
    a, b = weft.ones(3, device="late"), weft.ones(3, device="late:1")
    for use in (lambda: a + b, lambda: weft.cat([a, b]), lambda: weft.where(a > 0, a, b),
                lambda: a @ b, lambda: a.index_add(0, weft.arange(3, device="late"), b),
                lambda: nn.functional.mse_loss(a, b), lambda: weft.stack([a, b])):  # fmt: skip
        with pytest.raises(DeviceError, match="late:1"):
            use()
    assert (a + 1.5).tolist() == [2.5] * 3
    assert (a + weft.tensor(2.0)).device == "late"


@pytest.mark.parametrize("place", PLACES)
def test_constants_that_were_computed_here_are_used_there(place):
    """A value of constants alone is on no device until it is computed, and then on one."""
    x = weft.full((3,), 2.0) + weft.arange(3, dtype=weft.float32)
    later = x * 2
    x.realize()
    assert (weft.tensor([1.0, 1.0, 1.0], device=place) + later).tolist() == [5, 7, 9]
    assert (later.to(place) + 1).tolist() == [5, 7, 9]
    assert weft.full((3,), 2.0, device=place).device == place
    weft.set_default_device(place)
    try:
        assert (x.to(place) + later).tolist() == [6, 9, 12]
    finally:
        weft.set_default_device("cpu")


def test_random_numbers_are_equal_on_every_device():
    found = []
    for place in ("cpu", "far", "late:1", *["cpu/c"] * weft.is_available("cpu/c")):
        weft.manual_seed(5)
        found.append([weft.rand(4, device=place).numpy(),
                      weft.randn(3, 3, device=place).numpy(),
                      weft.randint(0, 100, (9,), device=place).numpy(),
                      weft.randperm(7, device=place).numpy()])  # fmt: skip
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("place", PLACES)
def test_gradients_through_copies(place, rng):
    array = rng.normal(size=(2, 3)).astype(np.float32)
    x = weft.tensor(array, requires_grad=True)
    w = weft.tensor(array * 2, device=place, requires_grad=True)
    loss = ((x.to(place) * w).exp().cpu() * 3).sum()
    loss.backward()
    assert loss.device == x.grad.device == "cpu"
    assert w.grad.device == place
    want = 3 * np.exp(array * array * 2)
    np.testing.assert_allclose(x.grad.numpy(), want * array * 2, rtol=2e-6)
    np.testing.assert_allclose(w.grad.numpy(), want * array, rtol=2e-6)


@pytest.mark.grid
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("captured", [False, True])
def test_training_is_what_it_is_on_the_first_device(place, captured, rng):
    inputs = rng.normal(size=(6, 16, 5)).astype(np.float32)
    wanted = rng.integers(0, 3, (6, 16))

    def losses(where):
        weft.manual_seed(1)
        net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(8),
                            nn.Linear(8, 3)).to(where)
        optimizer = weft.optim.Adam(net.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.jit(step) if captured else step
        found = [run(weft.tensor(x, device=where), weft.tensor(y, device=where)).item()
                 for x, y in zip(inputs, wanted, strict=True)]
        assert {p.device for p in net.parameters()} == {where}
        return found, [p.numpy() for p in net.parameters()]

    (ours, weights), (want, others) = losses(place), losses("cpu")
    np.testing.assert_allclose(ours, want, rtol=1e-5)
    for a, b in zip(weights, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_captured_function_of_two_devices(rng):
    weights = weft.tensor(rng.normal(size=(4, 4)).astype(np.float32), device="late:1")

    @weft.jit
    def layer(x):
        hidden = (x.to("late:1") @ weights).relu()
        return hidden.to("late") + x, hidden

    for rows in (3, 3, 5):
        array = rng.normal(size=(rows, 4)).astype(np.float32)
        out, hidden = layer(weft.tensor(array, device="late"))
        want = np.maximum(array @ weights.numpy(), 0)
        assert (out.device, hidden.device) == ("late", "late:1")
        np.testing.assert_allclose(hidden.numpy(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out.numpy(), want + array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_captured_function_serves_each_device_at_all_sizes(dynamic):
    step = weft.jit(lambda x: x.cumsum(0) * 2)
    if dynamic:
        step = weft.jit(dynamic={"x": {0: weft.Variable("n", 1, 100)}})(lambda x: x.cumsum(0) * 2)
    for n in (3, 3, 4, 5, 5, 6, 7, 9, 9):
        for place in ("cpu", "interpreter", "far", "late", "late:1"):
            found = step(weft.arange(n, device=place))
            assert found.device == place
            assert found.tolist() == (2 * np.arange(n).cumsum()).tolist()


@pytest.mark.parametrize("place", PLACES)
def test_failures_are_read_at_the_next_wait_and_harm_nothing_else(place):
    x = weft.arange(5, device=place).float()
    index = weft.tensor([0, 9], device=place)
    with pytest.raises(WeftError, match="9"):
        x[index].numpy()
    assert x[weft.tensor([0, 4], device=place)].tolist() == [0.0, 4.0]


@pytest.mark.parametrize("place", PLACES)
def test_saved_and_loaded(place, tmp_path, rng):
    array = rng.normal(size=(4, 3)).astype(np.float32)
    weft.save({"w": weft.tensor(array, device=place)}, tmp_path / "w.safetensors")
    found = weft.load(tmp_path / "w.safetensors")["w"]
    np.testing.assert_array_equal(found.numpy(), array)
    net = nn.Linear(3, 4).to(place)
    net.load_state_dict({"weight": found, "bias": weft.zeros(4)})
    assert net.weight.device == place
    np.testing.assert_array_equal(net.weight.numpy(), array)


@pytest.mark.parametrize("place", PLACES)
def test_values_of_the_host_under_another_default_device(place):
    """Constants alone, and with arrays; once, and captured."""
    weft.set_default_device(place)
    for made in (weft.ones(4, device="cpu"), weft.arange(4, device="cpu") * 2 + 1,
                 weft.tensor([1.0, 2.0], device="cpu") + weft.ones(2, device="cpu"),
                 weft.ones(4, device=place).to("cpu") * weft.full((4,), 2.0, device="cpu")):
        assert made.realize().device == "cpu"
        assert weft.jit(lambda made=made: made + 0)().device == "cpu"
        assert made.sum().item() in (4, 5, 8, 16)


@pytest.mark.parametrize("place", PLACES)
def test_other_packages_get_a_copy(place):
    x = weft.arange(4, device=place)
    found, part = np.from_dlpack(x), np.from_dlpack(x[1:3])
    x += 1
    assert found.tolist() == [0, 1, 2, 3]
    assert part.tolist() == [1, 2]
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(copy=False)


def test_memory_goes_back_to_its_pool():
    pool = far_devices.opened("late", far_devices.LateQueue)(0, "").pool
    weft.synchronize("late")
    before = pool.bytes_in_use
    x = weft.ones(1 << 18, device="late")
    for _ in range(20):
        x = (x * 1.5 + 1).realize()
    weft.synchronize("late")
    del x
    assert pool.bytes_in_use == before


def test_memory_that_runs_out():
    device = far_devices.opened("far", far_devices.Queue)(0, "")
    keep, x = device.pool.limit, weft.ones(1 << 10, device="far").realize()
    gc.collect()
    device.pool.flush()
    device.pool.limit = device.pool.bytes_in_use + (1 << 20)
    try:
        with pytest.raises(MemoryError, match="far"):
            (weft.ones(1 << 22, device="far") * 2).realize()
        assert (x + 1).sum().item() == 2 << 10
    finally:
        device.pool.limit = keep


@pytest.mark.parametrize("place", [None, "late:1", "interpreter"])
@pytest.mark.parametrize("is_constant", [True, False])
def test_what_is_written_in_place_comes_from_any_device_and_stays(place, is_constant):
    """Also to a tensor of constants alone, which no memory binds to its device."""
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    source = weft.tensor(array, device="far")
    mask = np.eye(3, 4) > 0
    for write, expected in [
        (lambda y, v: y.copy_(v), lambda y, v: y.__setitem__(..., v)),
        (lambda y, v: y.__setitem__(0, v[1]), lambda y, v: y.__setitem__(0, v[1])),
        (lambda y, v: y.__setitem__((slice(None), weft.tensor([0, 3], device=place)),
                                    v[:, 1:3]),
         lambda y, v: y.__setitem__((slice(None), [0, 3]), v[:, 1:3])),
        (lambda y, v: y.__setitem__(([2], slice(1, 3)), v[0, :2]),
         lambda y, v: y.__setitem__(([2], slice(1, 3)), v[0, :2])),
        (lambda y, v: y.__setitem__(weft.tensor(mask, device=place), v[0, :3]),
         lambda y, v: y.__setitem__(mask, v[0, :3])),
        (lambda y, v: y.__setitem__(weft.tensor(mask[:, 0], device=place), v[1]),
         lambda y, v: y.__setitem__(mask[:, 0], v[1])),
    ]:  # fmt: skip
        y, wanted = weft.zeros(3, 4, device=place), np.zeros((3, 4), np.float32)
        if not is_constant:
            y.realize()
        write(y, source)
        expected(wanted, array)
        assert y.device == (place or "cpu")
        np.testing.assert_array_equal(y.numpy(), wanted)


def test_the_gradient_of_a_write_goes_back_to_its_device():
    source = weft.ones(3, 4, device="far", requires_grad=True)
    y = weft.zeros(3, 4) + 0
    y[:, weft.tensor([0, 1])] = source[:, 2:] * 3
    y.sum().backward()
    assert (y.device, source.grad.device) == ("cpu", "far")
    assert source.grad.tolist() == [[0, 0, 3, 3]] * 3
