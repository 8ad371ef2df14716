"""Threads of other programs may have little stack: private arrays must not run over its end."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.grid

PROGRAM = """
import threading
import numpy as np
import weft

rng = np.random.default_rng({seed})
a = rng.standard_normal((1024, 1024), dtype=np.float32)
failed = []

def work():
    try:
        x = weft.tensor(a)
        assert np.allclose((x @ x).numpy(), a @ a, atol=1e-2)
        narrow = (x.to(weft.bfloat16) @ x.to(weft.bfloat16)).to(weft.float32).numpy()
        assert np.allclose(narrow, a @ a, rtol=0.1, atol=2.0)
        assert np.array_equal(x.reshape(-1).sort()[0].numpy(), np.sort(a.reshape(-1)))
        q = weft.tensor(a.reshape(4, 1024, 256))
        assert np.isfinite(q.softmax(-1).numpy()).all()
    except BaseException as error:
        failed.append(repr(error))

threading.stack_size({stack})
for _ in range(2):
    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
assert not failed, failed
"""


@pytest.mark.parametrize("stack", [256 << 10, 512 << 10])
def test_threads_with_little_stack_compute(stack: int) -> None:
    program = PROGRAM.format(stack=stack, seed=stack)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=250)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
