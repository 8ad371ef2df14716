"""What random kernels are written with."""

import random

TAIL = """
    o[i, 0], o[i, 1], o[i, 2] = v0, v1, v2
    o[i, 3] = c0 * 100 + c1 + k0 * 1000
"""


class KernelWriter:
    """Writes lines of a kernel: names v0 to v2 and c0, c1, k0, arrays x, p and s, thread t."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows, self.turns, self.count = [], [], 0

    def write(self, depth, text):
        """Write a line."""
        self.rows.append("    " * depth + text)

    def fresh(self, base):
        """Return a name that is not used yet."""
        self.count += 1
        return f"{base}{self.count}"

    def whole(self, uniform):
        """Return an integer; with `uniform` one that is the same for all threads."""
        words = [str(self.random.randint(0, 4)), "c0", "c1", f"p[{self.random.randint(0, 3)}]",
                 *self.turns, *(() if uniform else ("t", "t", "k0"))]
        first = self.random.choice(words)
        if self.random.random() < 0.4:
            sign = self.random.choice("+*-^&")
            first = f"({first} {sign} {self.random.choice(words)})"
        return first

    def number(self):
        """Return a number that differs between threads."""
        words = ["v0", "v1", "v2", "1.5", "x[t]", f"float({self.whole(False)})"]
        first = self.random.choice(words)
        if self.random.random() < 0.7:
            first = f"({first} {self.random.choice('+-*')} {self.random.choice(words)})"
        return first
