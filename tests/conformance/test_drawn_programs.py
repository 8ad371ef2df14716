"""Random programs: every value is a result, in memory that is not clean, run in several ways."""

import os
import subprocess
import sys
from pathlib import Path

import drawn
import drawn_runs
import numpy as np
import pytest
from drawn import Drawn, draw, execute, numbers, scope, smaller
from drawn_runs import WrongError, fails, has_torch, run

import weft
from weft.driver.check.compare import difference
from weft.driver.check.errors import Reference
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import SCALAR_OPS, Op

HERE = Path(__file__).parent
PROGRAMS = 5
GUARDED = 3


def check(name, ways=None):
    """Run a drawn program, and fail with a shorter one that fails as well."""
    drawn = draw(name)
    if fails(drawn, ways) is not None:
        few = smaller(drawn, lambda rest: fails(rest, ways) is not None)
        pytest.fail(f"program {name}: {fails(few, ways)}\n{few}")
    return drawn


def test_programs_in_all_ways(seed):
    for number in range(PROGRAMS):
        check(f"{seed}-{number}")


@pytest.mark.grid
@pytest.mark.parametrize("part", range(20))
def test_more_programs(seed, part):
    for number in range(PROGRAMS):
        check(f"{seed}-{part + 1}-{number}")


def test_programs_that_check_themselves(seed):
    for number in range(2):
        check(f"{seed}-checked-{number}", ["checked"])


@pytest.mark.skipif(sys.platform != "linux", reason="guards are Linux's")
def test_programs_in_poisoned_and_guarded_memory(seed):
    code = f"""
import sys
sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
from drawn import draw
from drawn_runs import fails
from weft.driver import pipeline
pipeline.verifying = True
for number in range({GUARDED}):
    drawn = draw(f"{seed}-guarded-{{number}}")
    print(drawn, flush=True)
    problem = fails(drawn, ["ends"])
    assert problem is None, problem
"""
    env = {**os.environ, "WEFT_POISON": "nan", "WEFT_GUARD": "1",
           "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_a_campaign_goes_on_where_it_stopped(tmp_path):
    """Two runs of the script: the second draws the programs that the first has not drawn."""
    def campaign(programs, *more):
        done = subprocess.run(
            [sys.executable, str(HERE.parent / "fuzz" / "programs.py"), "--seed", "7", "--one-way",
             "--threads", "1", "--state", str(tmp_path), "--programs", str(programs), *more],
            capture_output=True, text=True, check=True, timeout=300)  # fmt: skip
        return done.stdout

    assert "seed 7: 2 programs, 0 wrong" in campaign(2)
    assert "seed 7: 3 programs, 0 wrong" in campaign(3, "--resume")
    assert campaign(3, "--resume") == ""


def test_programs_are_drawn_by_their_seed_alone():
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_all_kinds_of_programs_are_drawn():
    """Each mode of writes, values that are equal, the last lines of gradients."""
    text = "\n".join(str(draw(f"kinds-{k}")) for k in range(150))
    for words in ("no_grad(): ", ".detach()", ".data", ".backward(", ".grad\n", "'ties'", "'wild'",
                  "Op.", ".softmax(", ".argmax(", ".median("):  # fmt: skip
        assert words in text, words
    row = numbers((40,), "float32", 5, "ties")
    assert len(set(row.tolist())) < 6


PROGRAM = ["v0 = leaf((2, 3), 'float32', 1)", "v1 = v0.exp()", "v2 = v1.sum(0)"]


def test_a_wrong_value_is_told_by_name(monkeypatch):
    drawn = Drawn(PROGRAM, False)
    run(drawn)
    monkeypatch.setattr(drawn_runs, "array", lambda t: np.full(t.shape, 1.5, np.float32))
    with pytest.raises(WrongError, match="v0: 6 of 6 differ"):
        run(drawn)
    longer = Drawn([*PROGRAM, "v3 = v0 + 1"], False)
    assert smaller(longer, lambda d: fails(d) is not None).lines == PROGRAM[:1]


@pytest.mark.parametrize(("limit", "words"), [
    ("SECONDS", "to compile"), ("STATEMENTS_A_NODE", "statements"), ("KERNELS_A_NODE", "kernels")])
def test_what_is_beyond_a_bound_is_told(limit, words, monkeypatch):
    monkeypatch.setattr(drawn_runs, "SECONDS_A_NODE", 0)
    monkeypatch.setattr(drawn_runs, limit, -100)
    with pytest.raises(WrongError, match=words):
        run(Drawn([f"v0 = leaf((2, {len(limit)}), 'float32', 1)", *PROGRAM[1:]], False))


WRITTEN = ["v0 = leaf((3, 4), 'float32', 1, 'calm', True)", "v1 = v0 * 2", "v2 = v1[1]",
           "with weft.no_grad(): v2.mul_(3)", "v3 = (v1 * v1).sum()", "v3.backward()",
           "g0 = v0.grad"]  # fmt: skip


def test_a_wrong_gradient_is_told(monkeypatch):
    """The gradient of what was recorded, at the values after the write."""
    assert fails(Drawn(WRITTEN, False)) is None
    names = scope()
    execute(WRITTEN, names)
    scale = np.float32([[4], [12], [4]]) * 2
    np.testing.assert_allclose(names["g0"].numpy(), names["v0"].detach().numpy() * scale, rtol=1e-6)


@pytest.mark.requires("torch")
def test_gradients_are_compared_with_pytorch(monkeypatch):
    assert has_torch()
    assert fails(Drawn(WRITTEN, True), ["torch"]) is None
    right = weft.Tensor.mul_
    monkeypatch.setattr(weft.Tensor, "mul_", lambda self, other: right(self, other + 1))
    assert "torch: WrongError: v1: 4 of 12 differ" in fails(Drawn(WRITTEN, True), ["torch"])
    monkeypatch.undo()
    from drawn_in_torch import compare_with_torch

    wanted = {**run(Drawn(WRITTEN, True)), "g0": None}
    with pytest.raises(WrongError, match="g0 is None, in PyTorch"):
        compare_with_torch(Drawn(WRITTEN, True), wanted)


NARROWED = ["v0 = leaf((2, 130), 'float64', 42268, 'calm', True)", "v1 = v0.to(weft.float32)",
            "v2 = v1 * v1", "v3 = weft.cat([v2, v2], 0)", "v4 = v3.sum() + v1.sum() + v0.sum()",
            "v4.backward()", "g0 = v0.grad"]  # fmt: skip


@pytest.mark.requires("torch")
def test_roundings_of_the_narrowest_type_tell_how_near_pytorch_has_to_be():
    assert fails(Drawn(NARROWED, True), ["torch"]) is None
    from drawn_in_torch import compare_with_torch

    wanted = run(Drawn(WRITTEN, True))
    value, error = wanted["v1"]
    wanted["v1"] = value + np.float32(0.01), error
    with pytest.raises(WrongError, match="v1: 12 of 12 differ"):
        compare_with_torch(Drawn(WRITTEN, True), wanted)


PERMUTED = ["v0 = leaf((2, 9, 4), 'float32', 1, 'calm', True)", "v1 = v0.permute([0, 2, 1])",
            "v2 = v1 * 2", "v2.detach().view(2, -1)[1:] = -1", "v3 = v1.clone()",
            "v3.detach().reshape(-1).add_(0.5)", "v4 = (v2 * v3).sum()", "v4.backward()",
            "g0 = v0.grad"]  # fmt: skip


@pytest.mark.requires("torch")
def test_what_is_computed_from_permuted_values_lies_in_row_major_order(monkeypatch):
    """PyTorch's results keep strides, so that it would refuse the view, and copy for `reshape`."""
    assert fails(Drawn(PERMUTED, True), ["torch"]) is None
    right = weft.Tensor.reshape
    monkeypatch.setattr(weft.Tensor, "reshape", lambda self, *shape: right(self, *shape).clone())
    assert "torch: WrongError: v3: 72 of 72 differ" in fails(Drawn(PERMUTED, True), ["torch"])


def test_bounds_of_errors_follow_the_operations():
    x = weft.tensor(np.array([[0.5, 1.25, -2.0]], np.float32))
    known = Reference()
    assert known.is_exact((x + x).sum(1)._value())  # sums of few bits need no rounding
    assert not known.is_exact(x.exp()._value())
    value, error = known.of((x.exp() > float(np.exp(np.float32(0.5))))._value())
    assert np.isinf(error).tolist() == [[True, False, False]]  # the first may be either way
    assert difference(value ^ [[True, False, False]], value, error) is None
    assert "2 of 3 differ" in difference(~value, value, error)
    value, error = known.of(x.exp().sum(1)._value())
    near = value + (error / 2).astype(np.float32)
    assert difference(near, value, error) is None
    assert "1 of 1 differ" in difference(value + np.float32(1), value, error)


def test_products_of_subnormal_bfloat16_may_count_as_zeros():
    tiny, large = 2.0**-127, 2.0**126
    x = weft.tensor(np.array([[tiny, 1.0], [1.0, 1.0]], np.float32))
    y = weft.tensor(np.array([[large, 1.0], [1.0, 1.0]], np.float32))
    assert Reference().of((x @ y)._value())[1][0, 0] < 1e-4
    value, error = Reference().of((x.to(weft.bfloat16) @ y.to(weft.bfloat16))._value())
    assert value[0].tolist() == [1.5, 1.0]
    for flushed in (value, value - np.array([[0.5, 0], [0, 0]], value.dtype)):
        assert difference(flushed, value, error) is None
    near = value + np.array([[0, 0], [0, 1]], value.dtype)
    assert "1 of 4 differ" in difference(near, value, error)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_sum_of_negative_zeros_may_have_either_sign(dtype):
    x = weft.tensor(np.array([[-0.0], [0.0], [1.0]], dtype))
    value, error = Reference().of(x.sum(1)._value())
    assert difference(np.abs(value), value, error) is None
    assert "1 of 3 differ" in difference(value * np.array([1, -1, 1], dtype), value, error)


def test_functions_of_float64_are_computed_in_a_wider_type():
    """NumPy's own may be off by four units of the last place."""
    x = np.random.default_rng(3).uniform(-1, 1, 20_000)
    value, _ = Reference().of(weft.tensor(x).asin()._value())
    wide = np.arcsin(x.astype(np.longdouble))
    assert np.abs((value - wide) / np.spacing(np.abs(value))).max() <= 0.51


def test_every_operation_has_bounds_in_every_dtype():
    """Of operands that are exact, and of those that are not, integers among them."""
    for name in drawn.ALL_TYPES:
        d = getattr(dt, "bool_" if name == "bool" else name)
        plain = weft.tensor(numbers((3, 4), "float32", 3))
        unsure = plain.exp().argmax(1).expand(4, 3)  # an index of an inexact largest element
        for x in (weft.tensor(numbers((4, 3), name, 5)), unsure.to(d)):
            for op in (op for op in SCALAR_OPS if d.kind in op.kinds):
                args = [x._value()] * op.arity
                if op is Op.WHERE:
                    args[0] = x.ne(1)._value()
                if op in (Op.CAST, Op.BITCAST):
                    continue
                value, error = Reference().of(infer.elementwise(op, *args))
                assert not np.any(error < 0), (op, name)
                assert value.shape == error.shape
