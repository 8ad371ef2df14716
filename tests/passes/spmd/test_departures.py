"""Threads that return while others go on and wait for each other: against threads as generators."""

import importlib.util

import numpy as np
import pytest

import weft
from kernel_writer import TAIL, KernelWriter
from weft import gpu
from weft.compat import cuda
from weft.errors import LaunchError
from weft.ir.stmt import Alloc
from weft.ir.traverse import walk

HEAD = """
import numpy as np
from weft.compat import cuda

N = {count}


@cuda.jit(fma=False)
def k(x, p, o, h):
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    s = cuda.shared.array(N, np.float64)
    v0, v1, v2 = x[t], 0.0, float(i)
    c0, c1, k0 = p[0], 3, t
    s[t] = v0
    if t * 3 > p[1] * 9 + {far}: return
    cuda.syncthreads()
"""
SIMULATED = """
def k(t, i, s, x, p, o, h):
    v0, v1, v2 = float(x[t]), 0.0, float(i)
    c0, c1, k0 = int(p[0]), 3, t
    s[t] = v0
    if t * 3 > p[1] * 9 + {far}: return
    yield 0, "wait", True
"""


class Writer(KernelWriter):
    """Writes a kernel in which only returns differ between the threads that meet at a barrier."""

    def some(self):
        """Return a condition that holds for some threads."""
        choice = self.random.random()
        if choice < 0.4:
            return f"({self.whole(False)} * 5 + k0 + t * {self.random.randint(1, 7)}) % 7 == 3"
        if choice < 0.6:
            return f"{self.number()} < {self.random.choice(['-2.0', '-0.5', 'v1'])}"
        if choice < 0.8:
            return f"t {self.random.choice('<>')} {self.whole(True)} + {self.random.randint(0, 50)}"
        return f"{self.whole(False)} == {self.whole(True)}"

    def all(self):
        sign = self.random.choice(["<", ">", "==", "!="])
        return f"{self.whole(True)} {sign} {self.whole(True)}"

    def set(self, depth):
        name = f"v{self.random.randint(0, 2)}"
        self.write(depth, f"{name} = {self.number()}")
        self.write(depth, f"if abs({name}) > 1e6: {name} = 1.0")

    def exchange(self, depth):
        self.write(depth, f"s[t] = {self.number()}")
        self.write(depth, "cuda.syncthreads()")
        self.write(depth, f"v{self.random.randint(0, 2)} = s[(t + {self.whole(True)}) % N]")
        self.write(depth, f"if abs(v0) > 1e6 or abs(v1) > 1e6 or abs(v2) > 1e6: "
                          f"v0, v1, v2 = 1.0, {self.random.randint(0, 3)}.5, -1.0")
        self.write(depth, "cuda.syncthreads()")

    def leave(self, depth):
        choice = self.random.randint(0, 7)
        if choice < 2:
            self.write(depth, f"if {self.some()}: return")
        elif choice == 2:
            self.write(depth, f"if {self.some()}:")
            self.set(depth + 1)
            self.write(depth + 1, "o[i, 4] += v0 + v1 * 2")
            self.write(depth + 1, "cuda.atomic.add(h, t & 3, 1)")
            self.write(depth + 1, "return")
        elif choice == 3:
            self.write(depth, f"if {self.some()}:")
            self.set(depth + 1)
            self.write(depth + 1, f"if {self.some()}: return")
            self.set(depth + 1)
        elif choice == 4:
            turn = self.fresh("j")
            self.write(depth, f"for {turn} in range({self.whole(False)} & 3):")
            self.write(depth + 1, f"v1 = v1 * 0.5 + {turn}")
            self.write(depth + 1, f"if {self.some()}:")
            self.write(depth + 2, self.random.choice(["return", "break", "o[i, 4] += 1.0"]))
            self.write(depth + 2, "return")
        elif choice == 5:
            self.write(depth, f"if {self.some()}: return")
            self.write(depth, "else:")
            self.block(depth + 1, 3)
        elif choice == 6:
            self.write(depth, f"if {self.all()}: return")
        else:
            self.write(depth, f"if {self.some()}:")
            self.set(depth + 1)
            self.write(depth, f"elif {self.some()}: return")

    def block(self, depth, nested):
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, nested)

    def statement(self, depth, nested):
        choice = self.random.random()
        if choice < 0.12:
            self.set(depth)
            self.write(depth, "o[i, 4] += v0")
        elif choice < 0.2:
            self.write(depth, f"k0 = {self.whole(False)} & 63")
            self.write(depth, f"c{self.random.randint(0, 1)} = (c0 + {self.whole(True)}) & 15")
        elif choice < 0.4:
            self.exchange(depth)
        elif choice < 0.46:
            self.write(depth, f"c1 = cuda.syncthreads_count({self.some()})")
        elif choice < 0.5:
            name = self.random.choice(["and", "or"])
            self.write(depth, f"v1 = v1 + cuda.syncthreads_{name}({self.some()})")
        elif choice < 0.65:
            self.leave(depth)
        elif nested > 2:
            self.exchange(depth)
        elif choice < 0.73:
            self.write(depth, f"if {self.all()}:")
            self.block(depth + 1, nested + 1)
            if self.random.random() < 0.4:
                self.write(depth, "else:")
                self.block(depth + 1, nested + 1)
        elif choice < 0.87:
            turn = self.fresh("j")
            self.write(depth, f"for {turn} in range(({self.whole(True)}) & 3):")
            self.inside(depth + 1, nested, turn)
        else:
            turn = self.fresh("w")
            test = self.random.choice(["True", f"{turn} < 4", f"{turn} < c1 + 2"])
            self.write(depth, f"{turn} = 0")
            self.write(depth, f"while {test}:")
            self.write(depth + 1, f"{turn} += 1")
            self.write(depth + 1, f"if {turn} > 5: break")
            self.inside(depth + 1, nested, turn)

    def inside(self, depth, nested, turn):
        self.turns.append(turn)
        self.block(depth, nested + 1)
        self.leave(depth)
        if self.random.random() < 0.3:
            jump = self.random.choice(["break", "continue", "return"])
            self.write(depth, f"if {self.all()}: {jump}")
        self.exchange(depth)
        self.turns.pop()


def simulated(rows):
    """Return the lines of a kernel as those of a generator that waits where it waits."""
    out = []
    for number, row in enumerate(rows, 1):
        if "cuda.syncthreads()" in row:
            row = row.replace("cuda.syncthreads()", f'yield {number}, "wait", True')
        elif "cuda.syncthreads_" in row:
            before, _, after = row.partition("cuda.syncthreads_")
            kind, _, test = after.partition("(")
            row = f'{before}(yield {number}, "{kind}", {test}'
        elif "cuda.atomic.add" in row:
            row = row.replace("cuda.atomic.add(h, t & 3, 1)", "h[t & 3] += 1")
        out.append(row)
    return out


def run_threads(kernel, grid, count, x, p, o, h):
    """Run threads as generators; those that have ended are not waited for."""
    for b in range(grid):
        s = np.zeros(count)
        threads = {t: kernel(t, b * count + t, s, x, p, o, h) for t in range(count)}
        answer = dict.fromkeys(threads)
        while threads:
            asked = {}
            for t, thread in list(threads.items()):
                try:
                    asked[t] = thread.send(answer[t])
                except StopIteration:
                    del threads[t]
            assert len({(line, kind) for line, kind, _ in asked.values()}) < 2
            values = [bool(value) for *_, value in asked.values()]
            for t, (_, kind, _) in asked.items():
                answer[t] = {"wait": None, "count": sum(values), "and": int(all(values)),
                             "or": int(any(values))}[kind]


def compare(seed, path):
    writer = Writer(seed)
    count = writer.random.choice([1, 5, 8, 16, 33, 32, 64])
    far = writer.random.choice([30, 99, 999])
    for _ in range(writer.random.randint(2, 4)):
        writer.statement(1, 0)
    turn = writer.fresh("j")
    writer.write(1, f"for {turn} in range(c1 & 3):")
    writer.inside(2, 1, turn)
    writer.statement(1, 0)
    path.write_text(HEAD.format(count=count, far=far) + "\n".join(writer.rows) + TAIL)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = {"N": count}
    exec(SIMULATED.format(far=far) + "\n".join(simulated(writer.rows)) + TAIL, names)
    rng = np.random.default_rng(seed)
    x, p = rng.normal(size=count), rng.integers(0, 6, 4)
    results = []
    for run in (lambda *args: run_threads(names["k"], 2, count, *args), module.k[2, count],
                weft.interpret(module.k, 2, count)):
        o, h = np.zeros((2 * count, 5)), np.zeros(4, np.int64)
        run(x, p, o, h)
        results.append((o, h))
    report = weft.sanitize(module.k, 2, count)(x, p, np.zeros((2 * count, 5)),
                                               np.zeros(4, np.int64))
    assert report.findings == (), f"{report}\n{path.read_text()}"
    for found in results[1:]:
        for a, b in zip(found, results[0], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=path.read_text())


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(8))
def test_random_departures(seed, tmp_path):
    compare(seed, tmp_path / f"departures_{seed}.py")


def runs(kernel, *args, grid=1, block=64):
    """Return what a kernel makes of arguments, the same on every device and without findings."""
    results = []
    for run in (kernel[grid, block], weft.interpret(kernel, grid, block),
                weft.sanitize(kernel, grid, block),
                weft.sanitize(kernel, grid, block, native=True)):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        report = run(*own)
        assert not getattr(report, "findings", ()), str(report)
        results.append([a for a in own if isinstance(a, np.ndarray)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    return results[0][-1]


@cuda.jit
def until_all_left(y):
    t = cuda.threadIdx.x
    turn = 0
    while True:
        cuda.syncthreads()
        turn += 1
        if turn > t:
            y[cuda.grid(1)] = turn
            return
        cuda.syncthreads()


@pytest.mark.parametrize("block", [1, 7, 64, 200])
def test_an_endless_loop_ends_when_all_have_left(block):
    found = runs(until_all_left, np.zeros(2 * block), grid=2, block=block)
    np.testing.assert_array_equal(found, np.tile(np.arange(1, block + 1), 2))


@cuda.jit
def without_end_for_nobody(y, most):
    t = cuda.threadIdx.x
    while True:
        if t >= most:
            return
        turn = 0
        while turn != most:
            turn += 1
            cuda.syncthreads()
            y[t] += turn
        most -= 1


def test_what_follows_is_left_out_when_nobody_is_there():
    """The inner loop would not end for the number that the last thread leaves by."""
    found = runs(without_end_for_nobody, np.zeros(64), 20)
    sums = [sum(m * (m + 1) // 2 for m in range(t + 1, 21)) for t in range(64)]
    np.testing.assert_array_equal(found, sums)


@cuda.jit(device=True)
def small(value):
    if value < 0:
        return -1.0
    for k in range(4):
        value -= 0.4
        if value < 0:
            return float(k)
    return value


@cuda.jit
def calls(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float64)
    value = x[t]
    for turn in range(5):
        s[t] = value
        cuda.syncthreads()
        if small(value) < -0.5 and turn > 1:
            return
        value += s[(t + 1) % 64] * 0.5
        y[t] += 1
        cuda.syncthreads()


def test_a_return_of_a_function_leaves_only_the_function():
    x = np.random.default_rng(3).normal(size=64)
    value, turns, there = x.copy(), np.zeros(64), np.ones(64, bool)
    kept = x.copy()
    for turn in range(5):
        kept[there] = value[there]
        there &= ~((value < 0) & (turn > 1))
        value[there] += np.roll(kept, -1)[there] * 0.5
        turns[there] += 1
    assert 0 < there.sum() < 64
    np.testing.assert_array_equal(runs(calls, x, np.zeros(64)), turns)


@cuda.jit
def votes(x, y):
    t = cuda.threadIdx.x
    for turn in range(4):
        if t % 32 and x[t] < turn:
            return
        y[turn, 0, t] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, t % 2 == 0))
        y[turn, 1, t] = cuda.all_sync(0xFFFFFFFF, t % 32 == 0 or x[t] >= turn)
        y[turn, 2, t] = cuda.shfl_sync(0xFFFFFFFF, x[t], 0)
        y[turn, 3, t] = cuda.syncthreads_count(t % 2 == 0)
        y[turn, 4, t] = cuda.syncthreads_and(t % 32 == 0 or x[t] >= turn)


def test_only_those_who_are_there_count():
    x = np.random.default_rng(1).integers(0, 5, 64)
    t = np.arange(64)
    expected = np.zeros((4, 5, 64))
    for turn in range(4):
        there = (t % 32 == 0) | (x >= turn)
        even = there & (t % 2 == 0)
        expected[turn] = there * np.stack([
            np.repeat(even.reshape(2, 32).sum(1), 32), there, np.repeat(x[::32], 32),
            np.full(64, even.sum()), there])
    np.testing.assert_array_equal(runs(votes, x, np.zeros((4, 5, 64))), expected)


@cuda.jit
def in_a_branch(x, y, n):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float64)
    if n > 3:
        if x[t] < 0:
            return
        s[t] = x[t]
        cuda.syncthreads()
        y[t] += s[t]
        cuda.syncthreads()
    s[t] = y[t] + 1
    cuda.syncthreads()
    y[t] += s[t]


@pytest.mark.parametrize("n", [2, 5])
def test_a_branch_that_others_come_back_from(n):
    x = np.random.default_rng(2).normal(size=64)
    expected = np.where(x < 0, 0, x + (x + 1)) if n > 3 else np.ones(64)
    np.testing.assert_array_equal(runs(in_a_branch, x, np.zeros(64), n), expected)


@cuda.jit
def over_the_grid(x, y):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for turn in range(4):
        y[i] += 1
        grid.sync()
        if x[i] < turn - 1:
            return
        grid.sync()


def test_threads_that_leave_a_grid_that_waits():
    x = np.random.default_rng(5).normal(size=96)
    turns = 2 + (x >= 0) + ((x >= 0) & (x >= 1))
    found = np.zeros(96)
    over_the_grid[3, 32](x, found)
    np.testing.assert_array_equal(found, np.where(x < -1, 1, turns))


@cuda.jit
def breaks_apart(x, y):
    t = cuda.threadIdx.x
    for turn in range(5):
        if x[t] < 0 and turn > 1:
            return
        if x[t] > 1:
            break
        cuda.syncthreads()
        y[t] = turn


def test_a_break_of_some_is_still_an_error():
    x = np.random.default_rng(0).normal(size=64)
    with pytest.raises(LaunchError, match="some threads of a block reach"):
        breaks_apart[1, 64](x, np.zeros(64))
    report = weft.sanitize(breaks_apart, 1, 64)(x, np.zeros(64))
    assert {f.kind for f in report.findings} == {"barrier-divergence"}


@cuda.jit
def doubled(x, y):
    i = cuda.grid(1)
    y[i] = y[i] * 2 + x[i]


def test_launches_that_threads_leave_are_not_joined():
    """A thread that left the first would not come to the second."""
    x = np.random.default_rng(7).normal(size=64)
    expected = runs(in_a_branch, x, np.zeros(64), 5) * 2 + x
    y = np.zeros(64)
    with weft.fuse() as f:
        in_a_branch[1, 64](x, y, 5)
        doubled[1, 64](x, y)
    np.testing.assert_array_equal(y, expected)
    assert "threads leave in_a_branch while others go on" in str(f.explain())


@cuda.jit
def returns_before_a_loop(x, n, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float64)
    if t < 4:
        s[t] = 0.0  # what is done first cannot be done twice: there is one version of the block
    if x[t] < -1:
        y[t] = -1
        return
    if x[t] > 1:
        y[t] = -2
        return
    left = n[0] & 3
    while left > 0:
        left -= 1
        s[t] = x[t] + left
        cuda.syncthreads()
        y[t] += s[t]
        cuda.syncthreads()


@pytest.mark.parametrize("n", range(4))
def test_nobody_comes_back_from_a_return_with_a_counter(n):
    """The counter is set in a branch; were it handed on, all would have to come behind it."""
    x = np.random.default_rng(8).normal(size=64)
    expected = np.where(x < -1, -1, np.where(x > 1, -2, n * x + n * (n - 1) / 2))
    found = runs(returns_before_a_loop, x, np.array([n]), np.zeros(64))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@weft.kernel
def sets_a_name_for_nobody(x, y):
    t = gpu.grid(1)
    k = 0.0
    if x[t] > 0:
        k = 1.0
    y[t] = k
    if x[t] > 1:
        k = 5.0
        y[t] += k
    else:
        k = 7.0


def test_nothing_is_handed_on_behind_a_last_condition():
    """What was read behind the first condition is not read behind the second one."""
    x = np.array([-1.0, 0.5, 2.0])
    launch = sets_a_name_for_nobody[1, 3]
    nest, _ = sets_a_name_for_nobody._nest_of(launch.take((x, x.copy())).types, launch, 32)
    cells = [s for s in walk(nest.body) if isinstance(s, Alloc) and s.memory.scope == "register"]
    assert len(cells) == 1
    assert runs(sets_a_name_for_nobody, x, np.zeros(3), block=3).tolist() == [0, 1, 6]
