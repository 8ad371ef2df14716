"""Chains of stencils: what kernels evaluate grows with the number of steps, and no faster."""

import math

import numpy as np
import pytest

import oracle
import processor
import weft
from graphs import el, full, leaf
from weft.driver.plans import host_program
from weft.errors import VerifyError
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.interpret.interpret import run
from weft.ir.interpret.interpret_code import PythonCode
from weft.ir.op import Op
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize
from weft.kernelize.fusion.evaluation_counts import count_evaluations, verify_evaluations
from weft.kernelize.fusion.fuse import fuse

MOST = 8  # statements of all kernels for each node of a graph


class Captured(BaseException):
    """The launches of a graph, thrown from where they would be compiled."""


@pytest.fixture
def launches(monkeypatch):
    """Return a function that tells the launches and the graph of what it is told to compute."""
    made = host_program.kernelize

    def throw(outputs, *rest):
        raise Captured(nd.toposort(outputs), made(outputs, *rest))

    def find(results):
        with monkeypatch.context() as patch:
            patch.setattr(host_program, "kernelize", throw)
            with pytest.raises(Captured) as thrown:
                weft.realize(*(results if isinstance(results, tuple | list) else (results,)))
        return thrown.value.args

    return find


def roll(u):
    return u + 0.1 * (u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u)


def padded(u):
    p = u.pad((1, 1, 1, 1))
    return u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)


def assigned(u):
    v = u.clone()
    v[1:-1, 1:-1] = 0.2 * (u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


def convolved(u):
    w = weft.tensor(np.float32([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]))
    return u[None, None].conv2d(w[None, None], padding=1)[0, 0]


def differences(u):
    a, b = weft.diff(u, dim=0), weft.diff(u, dim=1)
    return u + 0.1 * (a.pad((0, 0, 0, 1)) - a.pad((0, 0, 1, 0)) + b.pad((0, 1)) - b.pad((1, 0)))


def gathered(u):
    n = u.shape[0]
    after, before = weft.tensor((np.arange(n) + 1) % n), weft.tensor((np.arange(n) - 1) % n)
    return u + 0.1 * (u[after] + u[before] + u[:, after] + u[:, before] - 4 * u)


def gathered_row(u):
    return 0.9 * u + 0.1 * u[weft.tensor([0]) // 8].sin()  # 0, whatever a test puts there


def joined(u):
    up, down = weft.cat([u[1:], u[:1]], 0), weft.cat([u[-1:], u[:-1]], 0)
    return u + 0.1 * (up + down - 2 * u)


def stacked(u):
    return weft.stack([u, u.roll(1, 0), u.roll(-1, 0), u.roll(1, 1), u.roll(-1, 1)], 0).mean(0)


def line(u):
    v = u.clone()
    v[1:-1] = (u[:-2] + u[1:-1] + u[2:]) * (1 / 3)
    return v


def cube(u):
    return u + 0.1 * (sum(u.roll(s, d) for s in (1, -1) for d in (0, 1, 2)) - 6 * u)


def laplace(u):
    return u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u


def wave(u, before):
    return 2 * u - before + 0.1 * laplace(u), u


def reaction(u, v):
    r = u * v * v
    return (u + 0.16 * laplace(u) - r + 0.06 * (1 - u), v + 0.08 * laplace(v) + r - 0.12 * v)


def water(h, u, v):
    def dx(a):
        return (a.roll(-1, 0) - a.roll(1, 0)) * 0.5

    def dy(a):
        return (a.roll(-1, 1) - a.roll(1, 1)) * 0.5

    a = u - 0.01 * (9.8 * dx(h) + u * dx(u) + v * dy(u))
    b = v - 0.01 * (9.8 * dy(h) + u * dx(v) + v * dy(v))
    return h - 0.01 * (dx(h * a) + dy(h * b)), a, b


def fields(ex, ey, hz):
    ex, ey, hz = ex.clone(), ey.clone(), hz.clone()
    ey[1:] = ey[1:] - 0.5 * (hz[1:] - hz[:-1])
    ex[:, 1:] = ex[:, 1:] - 0.5 * (hz[:, 1:] - hz[:, :-1])
    hz[:-1, :-1] = hz[:-1, :-1] - 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def seidel(u):
    u = u.clone()
    u[1::2] = (u[1::2] + u[0::2]) * 0.5
    u[0::2] = (u[0::2] + u[1::2].roll(1, 0)) * 0.5
    return u


def butterfly(x):
    a, b = x[0::2], x[1::2]
    return weft.cat([a + b, (a - b) * 0.5])


def flipped(x):
    return (x.flip(0) * 1.01 + x.T.flip(1) * 0.3).sin()


def turned(x):
    return (x.T.flip(0) + 0.1).tanh()


def recurrence(x):
    return weft.cat([x[:1], x[1:] + 0.5 * x[:-1]], 0)


def normed(x):
    return x / x.norm()


def upwind(u):
    return weft.where(u > 0.5, u - 0.1 * (u - u.roll(1, 0)), u - 0.1 * (u.roll(-1, 0) - u))


def windows(x):
    return x.unfold(0, 3, 1).mean(-1).pad((1, 1))


def layers(x, w):
    shifted = x - x.mean(-1, keepdim=True)
    return x + 0.5 * w * shifted / ((shifted * shifted).mean(-1, keepdim=True) + 1e-5).sqrt(), w


def softmaxes(x):
    return (x * 2 + 1).softmax(-1)


def standardised(x):
    return ((x - x.mean()) / (x.var() + 1e-5).sqrt()).tanh()


def shares(x):
    return x / (x.sum(-1, keepdim=True) + 0.1) + 0.01


def both_sums(x):
    return x / (x.sum(0, keepdim=True) + 1) + 0.01 * x.sum(1, keepdim=True)


def bodies(x, v):
    away = x[None, :, :] - x[:, None, :]
    pull = away * (((away * away).sum(-1) + 0.01) ** -1.5)[..., None]
    v = v + 0.001 * pull.sum(1)
    return x + 0.001 * v, v


SQUARE = (16, 16)
KINDS = {f.__name__: (f, shapes) for f, shapes in {
    roll: [SQUARE], padded: [SQUARE], assigned: [SQUARE], convolved: [SQUARE],
    differences: [SQUARE], gathered: [SQUARE], joined: [SQUARE], stacked: [SQUARE],
    line: [(40,)], cube: [(6, 6, 6)], wave: [SQUARE] * 2, reaction: [SQUARE] * 2,
    water: [SQUARE] * 3, fields: [SQUARE] * 3, seidel: [SQUARE], butterfly: [(64,)],
    flipped: [SQUARE], turned: [SQUARE], recurrence: [(40,)], normed: [SQUARE],
    upwind: [SQUARE], windows: [(40,)], layers: [SQUARE, (16,)], softmaxes: [SQUARE],
    standardised: [SQUARE], shares: [SQUARE], both_sums: [SQUARE], bodies: [(16, 3)] * 2,
    gathered_row: [(1, 16)],
}.items()}  # fmt: skip


def chain(kind, steps, given):
    step, state = KINDS[kind][0], tuple(given)
    for _ in range(steps):
        state = step(*state)
        state = state if isinstance(state, tuple) else (state,)
    return state


def arrays(kind, **options):
    rng = np.random.default_rng(5)
    return [weft.tensor(rng.random(s, dtype=np.float32), **options) for s in KINDS[kind][1]]


def statements(steps):
    return sum(1 for s in steps for _ in walk(s.kernel.body))


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_statements_are_linear(kind, launches):
    graph, steps = launches(chain(kind, 12, arrays(kind)))
    twice, more = launches(chain(kind, 24, arrays(kind)))
    assert statements(steps) <= MOST * len(graph)
    assert statements(more) <= MOST * len(twice)
    # Twice as many steps are as many kernels more, and hardly any that is new.
    assert len(more) <= 2.2 * len(steps) + 2
    assert len({id(s.kernel) for s in more}) <= len({id(s.kernel) for s in steps}) + 4


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_chains_take_as_many_operations_as_one(kind, launches):
    """Values that passes over rows, or pairs of elements, read are not computed again and again."""
    _, one = launches(chain(kind, 1, arrays(kind)))
    _, many = launches(chain(kind, 16, arrays(kind)))
    single = sum(s.kernel.meta.flops for s in one)
    assert sum(s.kernel.meta.flops for s in many) <= 16 * (2.2 * single + 256)


@pytest.mark.parametrize("kind", ["line", "assigned"])
def test_assigned_slices_read_one_array(kind, launches):
    """What lies outside of the slice is read from the step before, not from the first array."""
    _, steps = launches(chain(kind, 6, arrays(kind)))
    assert [len(s.inputs) for s in steps[1:]] == [1] * 5


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_linear(kind, launches):
    def gradients(steps):
        given = arrays(kind, requires_grad=True)
        ends = chain(kind, steps, given)
        return list(weft.grad(sum((e * e).sum() for e in ends), given))

    graph, steps = launches(gradients(4))
    twice, more = launches(gradients(8))
    assert statements(steps) <= MOST * len(graph)
    assert statements(more) <= MOST * len(twice)
    assert len(more) <= 2.5 * max(len(steps), 6) + 2



def compare(graph, steps, wanted, tolerance):
    """Hold what the launches compute in the interpreter against the graph, for random arrays."""
    rng = np.random.default_rng(9)
    memory, env = {}, {}
    for node in graph:
        if node.op is Op.BUFFER:
            count = math.prod(node.shape)
            memory[node] = (rng.random(count).astype(node.dtype.numpy) if node.dtype.is_float
                            else rng.integers(0, 3, count).astype(node.dtype.numpy))
            env[node.attr] = memory[node]
    for step in steps:
        for node in step.outputs:
            memory[node] = np.zeros(math.prod(node.shape), node.dtype.numpy)
        scratch = [np.zeros([d.attr for d in m.shape], m.dtype.numpy).ravel() for m in step.scratch]
        run(step.kernel, [memory[n] for n in (*step.inputs, *step.outputs)] + scratch)
    for node, value in zip(wanted, oracle.evaluate(wanted, env), strict=True):
        np.testing.assert_allclose(memory[nd.base(node)].reshape(node.shape), value,
                                   rtol=tolerance, atol=tolerance)


def results(graph):
    """Return the nodes of a graph that no other reads."""
    read = {a for n in graph for a in n.args}
    return [n for n in graph if n not in read]


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_chains_keep_their_values(kind, launches):
    graph, steps = launches(chain(kind, 4, arrays(kind)))
    compare(graph, steps, results(graph), 2e-5)


@pytest.fixture
def executed(monkeypatch):
    """Return a function that tells how many operations of floats launches execute."""
    counted = [0]
    translated = PythonCode.operation

    def operation(self, op, operand, result, lanes, attr, args):
        if operand is not None and (result.is_float or operand.is_float):
            self.emit(f"{self.object(counted, 'counted')}[0] += 1")
        return translated(self, op, operand, result, lanes, attr, args)

    def count(steps):
        counted[0] = 0
        memory = {}
        with monkeypatch.context() as patch:
            patch.setattr(PythonCode, "operation", operation)
            for step in steps:
                for node in (*step.inputs, *step.outputs):
                    if node not in memory:
                        memory[node] = np.zeros(math.prod(node.shape), node.dtype.numpy)
                scratch = [np.zeros([d.attr for d in m.shape], m.dtype.numpy).ravel()
                           for m in step.scratch]
                given = [memory[n] for n in (*step.inputs, *step.outputs)]
                run(step.kernel, given + scratch)
        return counted[0]

    return count


@pytest.mark.slow
def test_executed_operations_are_linear(launches, executed):
    for kind in KINDS:
        for count in (2, 5):
            graph, steps = launches(chain(kind, count, arrays(kind)))
            work = sum(math.prod(n.shape) for n in graph
                       if n.op.is_elementwise and n.dtype.is_float)
            # A window is as many terms of a sum as it has taps.
            work += sum(math.prod(n.args[0].shape) for n in graph if n.op is Op.REDUCE)
            assert executed(steps) <= 6 * work, (kind, count)


def drawn(seed):
    """Return the values of a random program in which most operations move what they read."""
    rng = np.random.default_rng(seed)
    values = [weft.tensor(rng.random((8, 8), dtype=np.float32)) for _ in range(2)]
    rows = [weft.tensor(rng.integers(0, 8, 8)) for _ in range(2)]
    moves = [
        lambda x: x.roll(int(rng.integers(1, 8)), int(rng.integers(2))),
        lambda x: x.flip(int(rng.integers(2))),
        lambda x: x.T,
        lambda x: x[rows[int(rng.integers(2))]],
        lambda x: x[1:].pad((0, 0, 0, 1)),
        lambda x: x.pad((1, 0))[:, :-1],
        lambda x: weft.cat([x[::2], x[1::2]], int(rng.integers(2))).reshape(-1, 8)[:8],
        lambda x: x.reshape(4, 16).T.reshape(8, 8),
        lambda x: weft.stack([x, x * 0.5], int(rng.integers(3))).reshape(2, 8, 8)[1],
        lambda x: x * 0.75,
        lambda x: x.sin(),
        lambda x: x - x.mean(int(rng.integers(2)), keepdim=True),
        lambda x: x.cumsum(1) * 0.1,
    ]
    for _ in range(40):
        a, b = (values[-int(rng.integers(1, min(len(values), 5) + 1))] for _ in range(2))
        first, second = (moves[int(rng.integers(len(moves)))] for _ in range(2))
        values.append(first(a) * 0.6 + second(b) * 0.4)
    return values


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_linear(seed, launches):
    graph, steps = launches(drawn(seed)[-1])  # which are verified as well
    assert statements(steps) <= MOST * len(graph)
    compare(graph, steps, results(graph), 1e-4)


def shifted(x, by):
    """Return a row moved along by some elements, zeros coming in."""
    n = x.shape[0]
    moved = infer.slice_(x, (by,), (n - by,), (1,)) if by else x
    return infer.pad(moved, (0,), (by,), 0.0) if by else x


def neighbours(x):
    return el(Op.ADD, shifted(x, 1), shifted(x, 2))


def test_verifier_tells_compounding():
    x = leaf(64)
    first = el(Op.MUL, x, full(x, 2.0))
    second = neighbours(first)
    third = neighbours(second)
    fusion = fuse([third])
    verify_evaluations(fusion)
    stored = [n for n in (first, second) if n in fusion.stored]
    assert stored
    for node in stored:  # as if nothing had been stored
        del fusion.stored[node]
    assert (
        len(count_evaluations(third, fusion)[first])
        > len(count_evaluations(second, fusion)[first])
        > 1
    )
    with pytest.raises(VerifyError, match="index maps"):
        verify_evaluations(fusion)


def test_value_that_is_cheap_is_evaluated_again():
    x = leaf(64)
    steps = kernelize([neighbours(el(Op.MUL, x, full(x, 2.0)))])
    assert len(steps) == 1


def test_value_that_is_dear_is_stored():
    x = leaf(64)
    y = x
    for _ in range(30):
        y = el(Op.ADD, el(Op.MUL, y, x), x)
    assert len(kernelize([neighbours(y)])) == 2


def test_masks_from_indices_are_not_stored():
    x = leaf(64)
    even = el(Op.LT, infer.iota(64), infer.full((64,), 7, infer.iota(64).dtype))
    masked = infer.elementwise(Op.WHERE, even, x, full(x, 0.0))
    steps = kernelize([neighbours(masked)])
    assert [n.dtype.is_float for s in steps for n in s.outputs] == [True]


def test_chain_of_transcendentals_is_cut_into_equal_kernels(launches):
    x = arrays("roll")[0]
    y = x
    for _ in range(100):
        y = y.sin()
    _, steps = launches(y)
    assert 5 <= len(steps) <= 10
    assert len({id(s.kernel) for s in steps}) <= 3


def test_values_of_several_kernels_are_not_computed_from_the_beginning(launches):
    x = arrays("roll")[0]
    sums = []
    for k in range(40):
        x = (x * 1.01 + 0.1) * (1.0 + 0.01 * k)
        sums.append(x.sum(k % 2))
    graph, steps = launches(sums)
    lines = sum(len(str(s.kernel).splitlines()) for s in steps)
    assert lines <= MOST * len(graph)
    assert statements(steps) <= MOST * len(graph)


def test_hundred_steps_compile_in_seconds():
    values = chain("roll", 100, arrays("roll"))
    assert processor.timed(lambda: weft.realize(*values)) < 500 * processor.unit()
