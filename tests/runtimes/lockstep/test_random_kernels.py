"""Random kernels with barriers in loops and conditions: compiled code against the interpreter."""

import importlib.util

import numpy as np
import pytest

import weft
from kernel_writer import TAIL, KernelWriter

HEAD = """
import numpy as np
from weft.compat import cuda

N = {count}


@cuda.jit
def k(x, p, o):
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    s = cuda.shared.array(N, np.float64)
    v0, v1, v2 = x[t], 0.0, float(i)
    c0, c1, k0 = p[0], 3, t
"""


class Writer(KernelWriter):
    """Writes a kernel without races: each thread stores in its own place, then all wait."""

    def test(self, uniform):
        if uniform or self.random.random() < 0.6:
            sign = self.random.choice(["<", ">", "==", "!="])
            return f"{self.whole(uniform)} {sign} {self.whole(uniform)}"
        return f"{self.number()} < {self.number()}"

    def set(self, depth, value):
        name = f"v{self.random.randint(0, 2)}"
        self.write(depth, f"{name} = {value}")
        self.write(depth, f"if abs({name}) > 1e6: {name} = 1.0")

    def exchange(self, depth, value, far):
        self.write(depth, f"s[t] = {value}")
        self.write(depth, "cuda.syncthreads()")
        self.set(depth, f"s[(t + {far}) % N]")
        self.write(depth, "cuda.syncthreads()")

    def block(self, depth, nested):
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, nested)

    def statement(self, depth, nested):
        choice = self.random.random()
        if choice < 0.2:
            self.set(depth, self.number())
        elif choice < 0.3:
            self.write(depth, f"k0 = {self.whole(False)} & 63")
            self.write(depth, f"c{self.random.randint(0, 1)} = (c0 + {self.whole(True)}) & 15")
        elif choice < 0.55 or nested > 2:
            self.exchange(depth, self.number(), self.whole(self.random.random() < 0.5))
        elif choice < 0.68:
            self.write(depth, f"if {self.test(False)}:")
            self.set(depth + 1, self.number())
        elif choice < 0.76:
            self.write(depth, f"if {self.test(True)}:")
            self.block(depth + 1, nested + 1)
        elif choice < 0.88:
            turn = self.fresh("j")
            self.write(depth, f"for {turn} in range(({self.whole(True)}) & 3):")
            self.turns.append(turn)
            self.exchange(depth + 1, f"v0 + {turn}", turn)
            self.block(depth + 1, nested + 1)
            if self.random.random() < 0.3:
                self.write(depth + 1, f"if {self.test(True)}: break")
                self.block(depth + 1, nested + 2)
            self.turns.pop()
        elif choice < 0.95:
            left = self.fresh("w")
            self.write(depth, f"{left} = {self.whole(True)} & 3")
            self.write(depth, f"while {left} > 0:")
            self.write(depth + 1, f"{left} -= 1")
            self.block(depth + 1, nested + 1)
        else:
            turn = self.fresh("j")
            self.write(depth, f"for {turn} in range(({self.whole(False)}) & 7):")
            self.write(depth + 1, f"v0 = v0 * 0.5 + {turn}")


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(24))
def test_random_kernel(seed, tmp_path):
    writer = Writer(seed)
    count = writer.random.choice([5, 8, 16, 33, 32, 64])
    for _ in range(writer.random.randint(3, 6)):
        writer.statement(1, 0)
    path = tmp_path / f"random_kernel_{seed}.py"
    path.write_text(HEAD.format(count=count) + "\n".join(writer.rows) + TAIL)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(seed)
    x, p = rng.normal(size=count), rng.integers(0, 6, 4)
    found, expected = np.zeros((2 * count, 4)), np.zeros((2 * count, 4))
    module.k[2, count](x, p, found)
    weft.interpret(module.k, 2, count)(x, p, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=path.read_text())
