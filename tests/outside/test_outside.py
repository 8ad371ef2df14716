"""A package that brings a device, as its users meet it: installed, by its entry point."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "weft_serial"

PROGRAM = '''
import numpy as np
import weft
from weft import gpu, nn

assert "serial" in weft.devices()
x = weft.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 7, device="serial")
w = weft.tensor(np.ones((4, 2), np.float32), device="serial", requires_grad=True)

# tensors and gradients
y = (x @ w).softmax(-1).log().sum() + x.sort(1)[0].cumsum(1).exp().mean()
y.backward()
here = x.cpu()
v = weft.ones(4, 2, requires_grad=True)
z = (here @ v).softmax(-1).log().sum() + here.sort(1)[0].cumsum(1).exp().mean()
z.backward()
np.testing.assert_allclose(y.item(), z.item(), rtol=1e-6)
np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-5, atol=1e-6)

# every dtype, integers and movement to the bit
for name in ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"):
    a = np.arange(-6, 6).reshape(3, 4)
    there = weft.tensor(a).astype(getattr(weft, name)).to("serial")
    both = there.T.flip(0).reshape(2, 6)
    np.testing.assert_array_equal(both.float().numpy(),
                                  there.cpu().float().numpy().T[::-1].reshape(2, 6))

# training, captured
def losses(device):
    weft.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).to(device)
    adam = weft.optim.Adam(net.parameters(), lr=0.05)

    @weft.jit
    def step(given):
        adam.zero_grad()
        loss = net(given).square().mean()
        loss.backward()
        adam.step()
        return loss

    return [step(here.to(device)).item() for _ in range(4)]

np.testing.assert_allclose(losses("serial"), losses("cpu"), rtol=1e-5)

# kernels, failures
@weft.kernel
def scaled(a, out):
    i = gpu.grid(1)
    if i < out.size:
        out[i] = 3 * a[i]

out = weft.zeros(12, device="serial")
scaled[1, 32](x.reshape(12), out)
np.testing.assert_allclose(out.numpy(), 3 * x.numpy().reshape(12), rtol=1e-6)
try:
    x[weft.tensor([0, 9], device="serial")].numpy()
except IndexError as error:
    assert "9" in str(error), error
else:
    raise AssertionError("an index out of range went unseen")
print("all right")
'''  # fmt: skip


@pytest.fixture
def installed(tmp_path):
    """Return a folder of installed packages with this one in it."""
    shutil.copytree(PACKAGE, tmp_path / "weft_serial")
    facts = tmp_path / "weft_serial-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-serial\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[weft.backends]\nserial = weft_serial:BACKEND\n")
    return tmp_path


def run(installed, *command):
    import os

    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "WEFT_CACHE_DIR": str(installed / "cache")}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True,
                          text=True, check=False, timeout=300)  # fmt: skip


def test_it_is_short():
    assert len((PACKAGE / "__init__.py").read_text().splitlines()) < 250


@pytest.mark.slow
@pytest.mark.requires("cpu/c")
def test_D1_a_program_runs_on_its_device(installed):
    (installed / "program.py").write_text(PROGRAM)
    done = run(installed, str(installed / "program.py"))
    assert done.stdout == "all right\n", done.stdout + done.stderr


@pytest.mark.requires("cpu/c")
def test_it_is_listed(installed):
    done = run(installed, "-m", "weft", "devices")
    assert "C of one thread, by cc" in done.stdout, done.stdout + done.stderr
