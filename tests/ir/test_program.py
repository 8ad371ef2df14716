"""Program level: stages, what follows from a kernel, launch expressions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import LaunchError, VariableError, VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import program as pr
from weft.ir.linear import LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Atomic, For, Kernel, Load, Memory, Store

N = ex.Variable("n", 1, 1 << 20)
M = ex.Variable("m", 0, 100)
THREADS = ex.index(32)


def kernel(kinds=("block.x", "thread.x"), extents=(N, THREADS), extra=None):
    """Build ``y[i] = x[i]; z[0] += y[i]`` under loops of the given kinds."""
    x, y, z = (Memory(name, dt.float32, (N * 32,)) for name in "xyz")
    names = [ex.var(f"i{k}") for k in range(len(kinds))]
    at = (names[0] + M if extra is None else names[0] + extra,)
    v, old = ex.var("v", dt.float32), ex.var("old", dt.float32)
    body = (Load(v, x, at), Store(y, at, v), Atomic(old, "add", z, (ex.index(0),), v))
    for name, kind, extent in reversed(list(zip(names, kinds, extents, strict=True))):
        body = (For(name, extent, kind, body),)
    return Kernel("k", (x, y, z), body)


def test_D7_metadata_of_blocks_and_threads(golden):
    golden("program_blocks.txt", str(pr.metadata(kernel())))


def test_D7_metadata_of_direct_ids(golden):
    """Without threads the ids are direct, and there is no local size."""
    made = pr.metadata(kernel(("block.x", "block.z"), (N, ex.index(5))))
    assert made.local_size is None
    assert made.special == ("i0", "i2")
    golden("program_direct.txt", str(made))


def test_D7_metadata_facts():
    made = pr.metadata(kernel())
    assert made.variables == (M, N)
    assert made.nbuffers == 3
    assert (made.outs, made.ins, made.pure_ins) == ((1, 2), (0, 2), (0,))
    assert made.special == ("g0", "l0")
    assert made.global_size == (N, ex.index(1), ex.index(1))
    assert made.local_size == (ex.index(32), ex.index(1), ex.index(1))


def test_D7_core_id_sets_the_global_size():
    core = ex.Variable(pr.CORE_ID, 0, 7)
    made = pr.metadata(kernel(("serial",), (N,), core))
    assert made.special == ("core_id",)
    assert made.global_size[0] is ex.index(8)


def test_one_name_has_one_range():
    with pytest.raises(VerifyError, match="one range"):
        pr.metadata(kernel(extra=ex.Variable("n", 0, 5)))


def test_two_extents_of_one_axis():
    with pytest.raises(VerifyError, match=r"block\.x"):
        pr.metadata(kernel(("block.x", "block.x"), (N, M)))


def stages():
    sink = kernel(("serial",), (N,))
    first = pr.Program("k", sink)
    linear = LinearKernel("k", sink.params, (M, N), ())
    second = first.on("cpu", "x86_64")
    third = second.linearized(linear)
    fourth = third.rendered("llvm", "define ...")
    return [first, second, third, fourth, fourth.compiled(b"\x7fELF")]


def test_D8_stages_follow_one_another():
    made = stages()
    assert [p.stage for p in made] == list(pr.STAGES)
    assert all(p.verify() is p for p in made)
    assert made[-1].metadata.variables == made[0].metadata.variables


@pytest.mark.parametrize("at", range(5))
def test_D8_each_wrong_stage_raises(at):
    program = stages()[at]
    moves = [
        lambda p: p.on("cpu", "x86_64"),
        lambda p: p.linearized(LinearKernel("k", p.sink.params, (), ())),
        lambda p: p.rendered("llvm", ""),
        lambda p: p.compiled(b""),
    ]
    for k, move in enumerate(moves):
        if k == at:
            assert move(program).stage == pr.STAGES[at + 1]
        else:
            with pytest.raises(VerifyError, match=f"expected the stage {pr.STAGES[k]}"):
                move(program)
    for stage in (*pr.STAGES, "object"):
        if stage != program.stage:
            with pytest.raises(VerifyError):
                program.require(stage)


def test_verify_refuses_gaps_and_wrong_things():
    whole = stages()[-1]
    for field in ("device", "linear", "source", "arch", "language"):
        with pytest.raises(VerifyError):
            whole.replace(**{field: None}).verify()
    with pytest.raises(VerifyError, match="str as binary"):
        whole.replace(binary="text").verify()
    with pytest.raises(VerifyError, match="parameters"):
        stages()[1].linearized(LinearKernel("k", (), (), ()))


def test_D10_variables_in_order():
    assert pr.check_variables((M, N), {"n": 5, "m": 0}) == [0, 5]
    for values, text in [({"n": 5}, "no value for m"), ({"n": 0, "m": 0}, "n = 0"),
                         ({"n": 5, "m": 101}, "from 0 to 100"), ({"n": 5.0, "m": 1}, "integer"),
                         ({"n": True, "m": 1}, "integer"), ({"n": 1, "m": 1, "o": 1}, "'o'")]:
        with pytest.raises(VariableError, match=text):
            pr.check_variables((M, N), values)


def test_bind_gives_a_value_that_the_launch_replaces():
    size = pr.bind(N, 7)
    assert pr.evaluate_launch(size, {}) == 7
    assert pr.evaluate_launch(size, {"n": 9}) == 9
    sum_ = pr.LaunchSize(N * 2 + M, (("n", 7),))
    assert pr.evaluate_launch(sum_, {"m": 3}) == 17
    with pytest.raises(VariableError):
        pr.bind(N, 0)
    with pytest.raises(VariableError):
        pr.evaluate_launch(size, {"n": 0})


def test_D6_sizes_are_positive():
    assert pr.launch_sizes((N, 3, pr.bind(M, 2)), {"n": 4}) == (4, 3, 2)
    for size in (0, -1, M, M - 1):
        with pytest.raises(LaunchError, match="at least 1"):
            pr.launch_sizes((size,), {"m": 0})


def test_D6_launch_expressions_are_checked():
    big = ex.Variable("big", -(1 << 63), (1 << 63) - 1)
    cases = [(big + 1, (1 << 63) - 1), (big - 1, -(1 << 63)), (big * 2, 1 << 62),
             (-big, -(1 << 63)), (ex.unary(Op.ABS, big), -(1 << 63)),
             (ex.binary(Op.FLOORDIV, big, ex.const(-1, dt.int64)), -(1 << 63)),
             (ex.cast(big, dt.int32), 1 << 31), (ex.cast(big, dt.uint8), -1)]
    for e, value in cases:
        with pytest.raises(LaunchError, match="expected a value of"):
            pr.evaluate_launch(e, {"big": value})
    for op in (Op.FLOORDIV, Op.MOD):
        with pytest.raises(LaunchError, match="not 0"):
            pr.evaluate_launch(ex.binary(op, N, M), {"n": 4, "m": 0})
    with pytest.raises(LaunchError):
        pr.evaluate_launch(1 << 63, {})


def test_other_operations_are_refused():
    for e in (N ^ N, ex.var("i"), ex.cast(N, dt.float32), N.lt(3)):
        with pytest.raises(VerifyError):
            pr.evaluate_launch(e, {"n": 4})


@pytest.mark.slow
def test_a_deep_launch_expression():
    e = N
    for _ in range(100_000):
        e = e + N
    assert pr.evaluate_launch(e, {"n": 3}) == 300_003


BINARY = {Op.ADD: int.__add__, Op.SUB: int.__sub__, Op.MUL: int.__mul__,
          Op.FLOORDIV: int.__floordiv__, Op.MOD: int.__mod__, Op.MAX: max, Op.MIN: min}  # fmt: skip
UNARY = {Op.NEG: int.__neg__, Op.ABS: int.__abs__}
integers = st.one_of(st.integers(-10, 10), st.integers(-(1 << 63), (1 << 63) - 1))


class Left(Exception):
    """The exact value leaves its type, or a divisor is 0."""


@st.composite
def launches(draw):
    """Draw (expression, values, exact value or None where a step leaves its type)."""
    values = {name: draw(integers) for name in "abc"}
    leaves = [(ex.Variable(n, -(1 << 63), (1 << 63) - 1), v) for n, v in values.items()]
    leaves += [(ex.index(v), v) for v in draw(st.lists(integers, min_size=1, max_size=3))]
    pool = list(leaves)
    for _ in range(draw(st.integers(1, 10))):
        (a, x), (b, y) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        op = draw(st.sampled_from([*BINARY, *UNARY, Op.CAST]))
        if op is Op.CAST:
            d = draw(st.sampled_from([dt.int32, dt.uint32, dt.uint64, dt.int8]))
            narrow = ex.make(Op.CAST, d, (a,))
            e = ex.make(Op.CAST, dt.int64, (narrow,))
            exact = x if x is not None and d.min <= x <= d.max else None
        elif op in UNARY:
            e = ex.make(op, dt.int64, (a,))
            exact = None if x is None else UNARY[op](x)
        else:
            e = ex.make(op, dt.int64, (a, b))
            by_zero = op in (Op.FLOORDIV, Op.MOD) and y == 0
            exact = None if x is None or y is None or by_zero else BINARY[op](x, y)
        if exact is not None and not -(1 << 63) <= exact < 1 << 63:
            exact = None
        pool.append((e, exact))
    e, exact = pool[-1]
    return e, values, exact


@given(launches())
def test_D6_launch_expressions_equal_python(case):
    e, values, exact = case
    if exact is None:
        with pytest.raises(LaunchError):
            pr.evaluate_launch(e, values)
    else:
        assert pr.evaluate_launch(e, values) == exact
