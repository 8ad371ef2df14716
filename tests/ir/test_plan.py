"""Plan level: exact text, and a verifier that names the step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ParseError, VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.plan.plan import (
    Access,
    Alloc,
    Constant,
    Copy,
    Fill,
    Free,
    Launch,
    Parallel,
    Plan,
    ProgramRef,
    Ref,
    Wait,
    parse_plan,
    print_plan,
    steps_of,
)
from weft.ir.plan.plan_verify import verify_plan

N = ex.Variable("n", 1, 1024)
BYTES = N * 4
K = ex.Variable("k", 0, 1024)  # the variable of the program


def program(key="relu", *kinds):
    kinds = kinds or ("reads", "writes")
    return ProgramRef(key, (K,), tuple(Access(kind, K * 4) for kind in kinds))


def plan(*steps, **changes):
    fields = {
        "variables": (N,), "inputs": (BYTES,), "outputs": (BYTES,), "arena": 1 << 14,
        "constants": (Constant("c0ffee", 64),), "programs": (program(), program("add", *ADD)),
    }  # fmt: skip
    return Plan("step", **{**fields, **changes}, steps=steps)


ADD = ("reads", "reads", "writes")
X, Y, C = Ref("input", 0), Ref("output", 0), Ref("constant", 0)
T, U = Ref("arena", 0), Ref("arena", 1)
GOOD = (
    Alloc(0, 0, BYTES),
    Launch("relu", (X, T), (N,)),
    Alloc(1, 4096, BYTES),
    Parallel((Launch("relu", (X, U), (N,)), Fill(Ref("output", 0), BYTES))),
    Wait((1,)),
    Launch("add", (T, U, Y), (N,)),
    Free(0),
    Alloc(2, ex.index(0), 8192 - 4096),
    Copy(Ref("arena", 2, 16), C, 48),
    Free(1),
    Free(2),
)


def test_golden(golden):
    whole = plan(*GOOD)
    golden("plan_step.txt", print_plan(whole))
    assert parse_plan(print_plan(whole)) == whole
    assert verify_plan(whole) is whole
    assert len(list(steps_of(whole))) == len(GOOD) + 2


names = st.text(min_size=1, max_size=8)
sizes = st.recursive(
    st.one_of(st.integers(0, 1 << 40).map(ex.index), st.just(N)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([Op.ADD, Op.MUL, Op.FLOORDIV, Op.MAX]), inner, inner).map(
            lambda t: ex.make(t[0], dt.int64, t[1:])),
        inner.map(lambda e: ex.make(Op.CAST, dt.int64, (ex.make(Op.CAST, dt.int32, (e,)),))),
    ), max_leaves=6)  # fmt: skip
sizes = st.one_of(st.integers(0, 1 << 60), sizes)
indices = st.integers(0, 99)
refs = st.builds(Ref, st.sampled_from(["input", "output", "arena", "constant"]), indices, indices)
plain = st.one_of(
    st.builds(Alloc, indices, sizes, sizes), st.builds(Free, indices),
    st.builds(Launch, names, st.lists(refs, max_size=3).map(tuple),
              st.lists(sizes, max_size=2).map(tuple)),
    st.builds(Copy, refs, refs, sizes), st.builds(Fill, refs, sizes, st.integers(0, 255)),
    st.builds(Wait, st.lists(indices, min_size=1, max_size=3).map(tuple)),
)  # fmt: skip
steps = st.recursive(
    plain, lambda s: st.builds(Parallel, st.lists(s, max_size=3).map(tuple), indices),
    max_leaves=8)  # fmt: skip
accesses = st.builds(Access, st.sampled_from(["reads", "writes", "updates"]), sizes)
plans = st.builds(
    Plan, names, st.just((N,)), st.lists(sizes, max_size=3).map(tuple),
    st.lists(sizes, max_size=3).map(tuple), st.just(()),
    st.lists(st.builds(Constant, names, indices), max_size=2).map(tuple), sizes,
    st.lists(st.builds(ProgramRef, names, st.just((N, K)),
                       st.lists(accesses, max_size=2).map(tuple)), max_size=2).map(tuple),
    st.lists(steps, max_size=6).map(tuple),
)  # fmt: skip
on = st.integers(0, 2)  # of three devices
step_on = st.one_of(
    st.builds(Alloc, indices, sizes, sizes, on), st.builds(Copy, refs, refs, sizes),
    st.builds(Launch, names, st.lists(refs, max_size=3).map(tuple),
              st.lists(sizes, max_size=2).map(tuple), st.tuples(sizes, sizes, sizes),
              st.one_of(st.just(()), st.tuples(sizes, sizes, sizes))),
)  # fmt: skip
plans_of_devices = st.builds(
    Plan, names, st.just((N,)), st.just((4, 8)), st.just((12,)), st.just((1,)), st.just(()), sizes,
    st.lists(st.builds(ProgramRef, names, st.just((N, K)),
                       st.lists(accesses, max_size=2).map(tuple), on), max_size=2).map(tuple),
    st.lists(step_on, max_size=6).map(tuple), st.just(("cpu", "cuda:1", "cpu/c")),
    st.tuples(sizes, st.integers(1, 99)), st.just((0, 2)), st.just((1,)),
)  # fmt: skip


@pytest.mark.slow
@given(st.one_of(plans, plans_of_devices))
def test_round_trip(made):
    text = print_plan(made)
    read = parse_plan(text)
    assert read == made
    assert print_plan(read) == text


def test_round_trip_keeps_updated_inputs_and_odd_names():
    odd = ex.Variable('a "b" c', 0, 5)
    made = Plan("p", (odd,), (4, odd * 4, 12), updated=(0, 2))
    assert parse_plan(print_plan(made)) == made


@pytest.mark.parametrize(("text", "message"), [
    ("", "no text"),
    ('plan "p" {\n  input 4 on 1\n}', "line 2: found 1, expected one of 0 devices"),
    ("plan {", "line 1: found {, expected a string"),
    ('plan "p" {', "line 1: found the end of the text"),
    ('plan "p" {\n}\nfree 1', "line 3"),
    ('plan "p" {\n  jump 3\n}', "line 2: found jump"),
    ('plan "p" {\n  free x\n}', "line 2: found x, expected a number"),
    ('plan "p" {\n  free 1 2\n}', "line 2: found 2, expected the end"),
    ('plan "p" {\n\n  input (mul n 4)\n}', "line 3: found n, expected a variable of none"),
    ('plan "p" {\n  input (mul #4)\n}', "mul of 1"),
    ('plan "p" {\n  input (nope #4 #4)\n}', "nope of 2"),
    ('plan "p" {\n  input (add.x #4 #4)\n}', "a known type"),
    ('plan "p" {\n  input (add #4\n}', "line 2"),
    ('plan "p" {\n  input )\n}', "a size"),
    ('plan "p" {\n  fill stack 0 size 4 byte 0\n}', "one of input"),
    ('plan "p" {\n  launch "k" [input 0 input 1]\n}', "line 2: found input, expected ,"),
    ('plan "p" {\n  free 1 ?\n}', "line 2: found ?"),
    ('plan "p" {\n  variable "n" 5\n}', "more"),
    ('plan "p" {\n  parallel saves {\n}\n}', "line 2: found {, expected a number"),
    ('plan "p" {\n  launch "\\q" []\n}', "a string"),
])  # fmt: skip
def test_malformed_text(text, message):
    with pytest.raises(ParseError) as caught:
        parse_plan(text)
    assert message in str(caught.value)


A = Alloc(0, 0, BYTES)
BAD = {
    "a live allocation": [
        (Launch("relu", (X, T), (N,)),),
        (A, Free(0), Launch("relu", (X, T), (N,))),
        (Free(0),),
        (A, Free(0), Free(0)),
    ],
    "a write before it": [
        (A, Launch("relu", (T, Y), (N,))),
        (Launch("relu", (Y, Y), (N,)),),
        (A, Fill(T, 4), Free(0), Alloc(1, 0, 64), Copy(Y, U, 4)),
    ],
    "ranges that are apart": [
        (A, Alloc(1, 4095, 8)),
        (A, Alloc(1, BYTES - 1, 8)),
        (Fill(Y, BYTES), Copy(Ref("output", 0, 1), Y, 2)),
    ],
    "an arena of 16384 bytes": [(Alloc(0, 16000, 500),), (Alloc(0, 0, N * 17),)],
    "a new number": [(A, Free(0), A)],
    "within its": [
        (Launch("relu", (X, Y), (1024,)),),
        (Launch("relu", (Ref("input", 0, 4), Y), (N,)),),
        (Copy(Y, C, 65),),
        (Fill(Ref("output", 0, -4), 4),),
        (Copy(Y, C, 8),),  # where n is 1 the output has 4 bytes
    ],
    "one of 1": [(Launch("relu", (Ref("input", 1), Y), (N,)),), (Copy(Y, Ref("constant", 7), 4),)],
    "memory that may be written": [(Fill(X, 4),), (Fill(C, 4),)],
    "one of relu, add": [(Launch("gone", (X, Y), (N,)),)],
    "2 and 1": [(Launch("relu", (X,), (N,)),), (Launch("relu", (X, Y)),)],
    "steps before it": [(Wait((0,)),), (Fill(Y, 4), Wait((3,)))],
    "0 to 255": [(Fill(Y, 4, 256),)],
    "steps that are independent": [
        (Parallel((Fill(Y, 4), Fill(Y, 4))),),
        (A, Fill(T, BYTES), Parallel((Launch("relu", (T, Y), (N,)), Fill(T, 4)))),
    ],
    "in a region": [(Parallel((A,)),), (Parallel((Parallel(()),)),)],
    "before the region": [(Parallel((Fill(Y, 4), Wait((1,)))),)],
    "every output written": [()],
    "the variables of relu": [(Launch("relu", (X, Y), (N * 2,)),)],
    "one of the plan's": [(Fill(Y, K),)],
    "sizes within int64": [(Fill(Y, ex.make(Op.MUL, dt.int64, (N, ex.index(1 << 62)))),)],
    "not negative": [(Fill(Y, N - 5),)],
    "one of input, output": [(Fill(Ref("stack", 0), 4),)],
}


@pytest.mark.parametrize(("message", "steps"),
                         [(m, s) for m, cases in BAD.items() for s in cases])  # fmt: skip
def test_verifier_names_what_is_wrong(message, steps):
    with pytest.raises(VerifyError) as caught:
        verify_plan(plan(*steps))
    assert message in caught.value.message
    if steps:
        assert "step " in caught.value.message


def test_headers_are_verified():
    done = (Fill(Y, BYTES),)
    for changes, message in [
        ({"variables": (N, N)}, "sorted and unique"),
        ({"programs": (program(), program())}, "unique keys"),
        ({"updated": (4,)}, "an input below"),
        ({"programs": (program("p", "eats"),)}, "one of reads"),
        ({"inputs": (-4,)}, "not negative"),
    ]:
        with pytest.raises(VerifyError, match=message):
            verify_plan(plan(*done, **changes))


MOVE = (
    Alloc(0, 0, BYTES, 1),
    Copy(T, X, BYTES),
    Launch("relu", (T, Y), (N,), (N, 1, 1), (64, 1, 1)),
    Free(0),
)


def moving(*steps, **changes):
    fields = {"devices": ("cpu", "cuda:1"), "arenas": (1 << 14,), "output_devices": (1,),
              "programs": (program().replace(device=1),), "arena": 0}  # fmt: skip
    return plan(*steps, **{**fields, **changes})


def test_a_plan_of_two_devices(golden):
    whole = moving(*MOVE)
    golden("plan_of_two_devices.txt", print_plan(whole))
    assert parse_plan(print_plan(whole)) == whole
    assert verify_plan(whole) is whole


@pytest.mark.parametrize(("message", "steps", "changes"), [
    ("where the program runs", (Launch("relu", (X, Y), (N,)),), {}),
    ("where the program runs", MOVE, {"programs": (program(),)}),
    ("where the program runs", MOVE, {"output_devices": ()}),
    ("an arena of 0 bytes", MOVE, {"arenas": (0,)}),
    ("one with an arena", MOVE, {"arenas": ()}),
    ("each device once", MOVE, {"devices": ("cpu", "cpu")}),
    ("one for each more device", MOVE, {"arenas": (4, 4)}),
    ("1 numbers below 2", MOVE, {"output_devices": (2,)}),
    ("1 numbers below 2", MOVE, {"input_devices": (0, 0)}),
    ("a number below 2", MOVE, {"programs": (program().replace(device=5),)}),
    ("three, of at least 1", (Alloc(0, 0, BYTES, 1), Copy(T, X, BYTES),
                              Launch("relu", (T, Y), (N,), (0, 1, 1))), {}),
])  # fmt: skip
def test_faults_of_several_devices(message, steps, changes):
    with pytest.raises(VerifyError) as caught:
        verify_plan(moving(*steps, **changes))
    assert message in str(caught.value)


def test_allocations_of_two_devices_may_have_the_same_offset():
    verify_plan(moving(Alloc(0, 0, BYTES, 1), Alloc(1, 0, BYTES), Fill(T, BYTES), Copy(Y, T, BYTES),
                       arena=1 << 14))


def test_an_updated_input_may_be_written():
    verify_plan(plan(Fill(X, 4), Fill(Y, 4), updated=(0,)))


def test_reads_in_a_region_are_shared():
    verify_plan(plan(A, Alloc(1, 8192, BYTES), Parallel((
        Launch("relu", (X, T), (N,)), Launch("relu", (X, U), (N,)))), Copy(Y, T, BYTES)))


@pytest.mark.slow
def test_many_steps():
    steps = []
    for i in range(4_000):
        steps += [Alloc(i, (i % 3) * 4096, BYTES), Launch("relu", (X, Ref("arena", i)), (N,)),
                  Free(i)]  # fmt: skip
    made = plan(*steps, Fill(Y, BYTES))
    verify_plan(made)
    assert parse_plan(print_plan(made)) == made
