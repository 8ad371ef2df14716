"""The order of launches: legal, of the same values, and taken only where it saves much memory."""

import numpy as np
import pytest

import oracle
from graphs import el, kept, leaf, matmul
from weft.graph.autodiff import gradients
from weft.graph.simplify import simplify
from weft.ir import infer
from weft.ir.interpret.interpret import run
from weft.ir.node import base
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.kernelize.memory import launch_schedule
from weft.kernelize.memory.inplace import write_in_place


def most_alive(steps, results):
    """Return the most bytes that launches have stored and others have still to read."""
    most = 0
    for i in range(len(steps)):
        stored = {n for s in steps[: i + 1] for n in s.outputs if n not in results}
        needed = {n for s in steps[i:] for n in (*s.inputs, *s.outputs)}
        most = max(most, sum(int(np.prod(n.shape)) * n.dtype.itemsize for n in stored & needed))
    return most


def network(layers, rows, width):
    """Return a chain's weights, and their gradients, the first layer's first."""
    weights = [leaf(width, width) for _ in range(layers)]
    y = leaf(rows, width)
    for w in weights:
        y = el(Op.TANH, matmul(y, w))
    found = gradients([infer.reduce(y, "sum", (0, 1))], [infer.full((), 1.0, y.dtype)], weights)
    return weights, simplify(found)


def stepped(w, g):
    """Return a weight after a step by its gradient, scaled by what only a pass over it tells."""
    square = infer.reduce(el(Op.MUL, g, g), "sum", (0, 1))
    return el(Op.SUB, w, el(Op.MUL, g, kept(square, (0, 1), g)))


def is_legal(steps):
    done = set()
    for step in steps:
        if not {n for n in step.inputs if n.op is not Op.BUFFER} <= done:
            return False
        done.update(step.outputs)
    return True


@pytest.mark.parametrize("layers", [3, 6])
def test_gradients_of_weights_come_where_they_free_memory(layers):
    _, outputs = network(layers, 4096, 64)
    results = {base(o) for o in outputs}
    steps = kernelize(outputs)
    made = launch_schedule.schedule_launches(steps, results)
    assert sorted(map(id, made)) == sorted(map(id, steps))
    assert is_legal(made)
    assert most_alive(made, results) <= most_alive(steps, results) * 15 // 16


def test_little_memory_keeps_the_order():
    _, outputs = network(6, 512, 32)
    steps = kernelize(outputs)
    assert launch_schedule.schedule_launches(steps, {base(o) for o in outputs}) is steps


def test_updates_stay_behind_what_they_were_behind():
    weights, found = network(4, 4096, 64)
    updated = [stepped(w, g) for w, g in zip(weights, found, strict=True)]
    outputs = [*found, *updated]
    steps = kernelize(outputs)
    updates = {base(u) for u in updated}
    made = launch_schedule.schedule_launches(steps, {base(o) for o in outputs}, updates)
    place = {id(s): i for i, s in enumerate(made)}
    moved = [s for s in steps if updates.intersection(s.outputs)]
    assert moved
    for step in moved:
        before = steps[: [id(s) for s in steps].index(id(step))]
        assert all(place[id(s)] < place[id(step)] for s in before)


@pytest.mark.parametrize("layers", [4, 5])
def test_values_are_those_of_the_graph(layers, rng, monkeypatch):
    monkeypatch.setattr(launch_schedule, "_FREED", 1)
    monkeypatch.setattr(launch_schedule, "_SAVED", 1)
    weights, found = network(layers, 9, 4)
    updated = [stepped(w, g) for w, g in zip(weights, found, strict=True)]
    outputs = simplify([*found, *updated])
    wanted = {base(u): base(w) for u, w in zip(outputs[layers:], weights, strict=True)}
    steps = kernelize(outputs)
    made = launch_schedule.schedule_launches(steps, {base(o) for o in outputs}, wanted)
    assert [*map(id, made)] != [*map(id, steps)]
    made, taken = write_in_place(made, wanted)
    arrays, env = {}, {}
    for node in {n for s in made for n in s.inputs if n.op is Op.BUFFER}:
        arrays[node] = rng.standard_normal(int(np.prod(node.shape))).astype(np.float32)
        env[node.attr] = arrays[node].copy()
    expected = oracle.evaluate(outputs, env)
    arrays.update({node: arrays[source] for node, source in taken.items()})
    for step in made:
        for node in step.outputs:
            arrays.setdefault(node, np.zeros(int(np.prod(node.shape)), np.float32))
        run(step.kernel, [arrays[n] for n in (*step.inputs, *step.outputs)])
    for output, values in zip(outputs, expected, strict=True):
        made = arrays[base(output)].reshape(output.shape)
        np.testing.assert_allclose(made, values, rtol=0, atol=1e-4 * np.abs(values).max())
