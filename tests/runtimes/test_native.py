"""Native plans: what steps do, what a call refuses, how failures and signals come out."""

import ctypes
import gc
import os
import random
import signal
import threading
import time

import pytest
from native_kernels import KERNELS

from weft.compilers import llvm
from weft.errors import LaunchError
from weft.runtimes import native, native_ir
from weft.runtimes.native import BufferRef, CopyStep, FillStep, KernelStep, VariableRef


def add(kernels, target, origin, amount):
    return KernelStep(kernels["add_variable"], [target, origin], [amount], "add_variable")


def test_steps_over_inputs_arena_outputs_constants_and_variables(runtime, kernels, words):
    constant, constant_address = words(100)
    plan = runtime.plan(
        [
            add(kernels, BufferRef.arena(8), BufferRef.input(1, 16), VariableRef(1)),
            add(kernels, BufferRef.output(0), BufferRef.arena(8), VariableRef.constant(1000)),
            add(
                kernels,
                BufferRef.output(1, 8),
                BufferRef.constant(constant_address),
                VariableRef(0),
            ),
            CopyStep(BufferRef.output(0, 8), BufferRef.output(0), 8),
            FillStep(BufferRef.output(0, 16), 8, 0xFF),
        ],
        ninputs=2,
        noutputs=2,
        arena_bytes=16,
        nvariables=2,
        keep=[constant],
    )
    first, a = words(0)
    second, b = words(1, 2, 3)
    out, c = words(0, 0, 0)
    other, d = words(0, 0)
    arena, e = words(0, 0)
    assert plan.call(a, b, c, d, e, 7, 20) is None
    assert list(arena) == [0, 23]
    assert list(out) == [1023, 1023, -1]
    assert list(other) == [0, 107]
    assert plan.names == ("add_variable", "add_variable", "add_variable", "CopyStep", "FillStep")
    assert (list(first), list(second)) == ([0], [1, 2, 3])


@pytest.mark.parametrize("release_gil", [False, True])
def test_plan_without_steps(runtime, release_gil):
    assert runtime.plan([], 0, 0, release_gil=release_gil).call(0) is None


def test_copies_scale_with_a_variable_and_may_overlap(runtime, words):
    plan = runtime.plan(
        [CopyStep(BufferRef.output(0, 8), BufferRef.output(0), 8, scale=0)], 0, 1, nvariables=1
    )
    array, address = words(1, 2, 3, 4, 5)
    assert plan.call(address, 0, 4) is None
    assert list(array) == [1, 1, 2, 3, 4]
    assert plan.call(address, 0, 0) is None
    assert list(array) == [1, 1, 2, 3, 4]


def test_fill_scales_with_a_variable(runtime, words):
    plan = runtime.plan([FillStep(BufferRef.output(0), 8, 1, scale=0)], 0, 1, nvariables=1)
    array, address = words(9, 9, 9)
    assert plan.call(address, 0, 2) is None
    assert [value.to_bytes(8, "little") for value in array] == [
        b"\1" * 8,
        b"\1" * 8,
        b"\t" + bytes(7),
    ]


def test_steps_with_many_arguments_leave_the_small_frame(runtime, kernels, words):
    array, address = words(*range(64))
    out, out_address = words(0)
    refs = [BufferRef.output(0), *(BufferRef.input(i) for i in range(64))]
    for extra in (0, native_ir.FRAME_WORDS):
        plan = runtime.plan([KernelStep(kernels["sum_64"], refs)], 64 + extra, 1, keep=[kernels])
        addresses = [address + 8 * i for i in range(64)] + [0] * extra
        for _ in range(3):
            out[0] = 0
            assert plan.call(*addresses, out_address, 0) is None
            assert out[0] == sum(range(64))
        with pytest.raises(TypeError):
            plan.call(*addresses[:-1], "text", out_address, 0)
    assert list(array) == list(range(64))


def test_failure_names_the_step_and_stops(runtime, kernels, words):
    out, address = words(5)
    steps = [
        KernelStep(kernels["nothing"], []),
        KernelStep(kernels["fail"], [], name="fail"),
        FillStep(BufferRef.output(0), 8),
    ]
    for release_gil in (False, True):
        plan = runtime.plan(steps, 0, 1, release_gil=release_gil)
        assert plan.call(address, 0) == (7, 1, 3, -5, 1 << 40)
    assert out[0] == 5
    plan = runtime.plan([KernelStep(kernels["fail_silently"], [])], 0, 0)
    assert plan.call(0) == (9, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "arguments", [(), (1,), (1, 2, 3), (1, "2"), (1, None), (1, 2.0), (1 << 64, 0), (b"", 0)]
)
def test_wrong_arguments_raise_and_run_nothing(runtime, arguments):
    plan = runtime.plan([FillStep(BufferRef.input(0), 8)], 1, 0)
    with pytest.raises((TypeError, OverflowError)):
        plan.call(*arguments)


def test_minus_one_is_a_value(runtime, kernels, words):
    array, address = words(0)
    plan = runtime.plan(
        [add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef(0))], 1, 0, nvariables=1
    )
    assert plan.call(address, 0, -1) is None
    assert array[0] == -1


@pytest.mark.parametrize(
    "step",
    [
        FillStep(BufferRef.input(1), 8),
        FillStep(BufferRef.input(-1), 8),
        FillStep(BufferRef.input(0, -8), 8),
        FillStep(BufferRef.output(0), 8),
        FillStep(BufferRef.arena(17), 8),
        FillStep(BufferRef.arena(-1), 8),
        FillStep(BufferRef.constant(1 << 63), 8),
        FillStep(BufferRef.input(0), -1),
        FillStep(BufferRef.input(0), 1 << 63),
        FillStep(BufferRef.input(0), 8, scale=2),
        CopyStep(BufferRef.input(0), BufferRef.output(2), 8),
        KernelStep(0, [BufferRef.input(0)], [VariableRef(2)]),
    ],
)
def test_references_are_checked_when_the_plan_is_made(runtime, step):
    with pytest.raises(LaunchError):
        runtime.plan([step], 1, 0, arena_bytes=16, nvariables=2)


def test_the_function_alone_keeps_everything_alive(runtime):
    library = runtime.load(llvm.compiler().compile(KERNELS), ["add_variable"])
    step = KernelStep(
        library["add_variable"], [BufferRef.input(0), BufferRef.input(0)], [VariableRef(0)]
    )
    call = runtime.plan([step] * 100, 1, 0, nvariables=1, keep=[library]).call
    del step, library
    gc.collect()
    junk = [bytearray(4096) for _ in range(1000)]
    word = ctypes.c_int64(0)
    assert call(ctypes.addressof(word), 0, 3) is None
    assert word.value == 300
    del junk


def test_none_is_not_lost(runtime):
    call = runtime.plan([], 0, 0).call
    for _ in range(100_000):
        call(0)
    assert (lambda: None)() is None


def test_calls_leak_nothing(runtime, kernels):
    import sys

    bad = object()
    before = sys.getrefcount(bad)
    plan = runtime.plan([KernelStep(kernels["fail"], [])], 1, 0)
    for _ in range(1000):
        plan.call(0, 0)
        with pytest.raises(TypeError):
            plan.call(bad, 0)
    assert sys.getrefcount(bad) == before


def test_plan_of_many_steps(runtime, kernels, words):
    count = 300_000
    array, address = words(0)
    step = add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef(0))
    plan = runtime.plan([step] * count, 1, 0, nvariables=1, release_gil=True)
    assert plan.call(address, 0, 2) is None
    assert array[0] == 2 * count


def test_one_plan_from_many_threads(runtime, kernels):
    step = add(kernels, BufferRef.arena(0), BufferRef.input(0), VariableRef(0))
    last = add(kernels, BufferRef.output(0), BufferRef.arena(0), VariableRef(0))
    plan = runtime.plan([step, last], 1, 1, arena_bytes=8, nvariables=1, release_gil=True)
    wrong = []

    def work(number):
        words = (ctypes.c_int64 * 3)(number, 0, 0)
        address = ctypes.addressof(words)
        for step in range(2000):
            plan.call(address, address + 8, address + 16, step)
            if words[1] != number + 2 * step:
                wrong.append((number, step))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_released_gil_lets_other_threads_run(runtime, kernels):
    plan = runtime.plan(
        [KernelStep(kernels["spin"], [], [VariableRef(0)])], 0, 0, nvariables=1, release_gil=True
    )
    worker = threading.Thread(target=plan.call, args=(0, 1 << 28))
    worker.start()
    beats = 0
    while worker.is_alive():
        beats += 1
        time.sleep(0.001)
    assert beats > 5


def test_interrupt_stops_a_long_plan_between_steps(runtime, kernels, words):
    array, address = words(0)
    steps = [
        KernelStep(kernels["spin"], [], [VariableRef.constant(1 << 22)]),
        add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef.constant(1)),
    ] * 20_000
    plan = runtime.plan(steps, 1, 0, release_gil=True)
    main = threading.main_thread().ident
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        plan.call(address, 0)
    assert time.monotonic() - start < 20
    timer.join()
    assert 0 < array[0] < 20_000
    short = runtime.plan(steps[1:2], 1, 0, release_gil=True)
    before = array[0]
    assert short.call(address, 0) is None
    assert array[0] == before + 1


def test_signal_handler_may_run_plans_itself(runtime, kernels, words):
    array, address = words(0)
    inner = runtime.plan(
        [add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef.constant(1))],
        1,
        0,
        release_gil=True,
    )
    spin = KernelStep(kernels["spin"], [], [VariableRef.constant(1 << 22)])
    outer = runtime.plan([spin] * 200, 0, 0, release_gil=True)
    old = signal.signal(signal.SIGALRM, lambda *_: inner.call(address, 0))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert outer.call(0) is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert array[0] == 1


@pytest.mark.requires("fork")
def test_child_after_fork_runs_plans(runtime, kernels, words):
    array, address = words(*[0] * 101)
    step = KernelStep(kernels["squares"], [BufferRef.output(0)], [VariableRef.constant(100)])
    plan = runtime.plan([step], 0, 1, release_gil=True)
    assert plan.call(address, 0) is None
    child = os.fork()
    if child == 0:
        array[0] = 0
        plan.call(address, 0)
        os._exit(0 if list(array[1:]) == [i * i for i in range(100)] and array[0] == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_entry_without_python(runtime, kernels, words):
    """``weft_plan`` is what an ahead-of-time caller uses."""
    plan = runtime.plan(
        [
            add(kernels, BufferRef.arena(0), BufferRef.input(0), VariableRef(0)),
            add(kernels, BufferRef.output(0), BufferRef.arena(0), VariableRef(1)),
            KernelStep(kernels["fail"], []),
        ],
        1, 1, arena_bytes=8, nvariables=2,
    )  # fmt: skip
    pointer = ctypes.c_void_p
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[pointer] * 6)(runtime.executor.plan_address)
    data, address = words(5, 0, 0)
    inputs, outputs, arena = words(address)[0], words(address + 8)[0], words(address + 16)[0]
    variables, status = words(10, 100)[0], (ctypes.c_int32 * 8)(*[-1] * 8)
    code = entry(plan.context_address, *map(ctypes.addressof, (inputs, outputs, arena)),
                 ctypes.addressof(variables), ctypes.addressof(status))  # fmt: skip
    assert code == 7
    assert list(status[:3]) == [7, 2, 3]
    assert list(data) == [5, 115, 15]


def test_random_plans_against_python(runtime, kernels, seed):
    rng = random.Random(seed)
    for _ in range(50):
        ninputs, noutputs = rng.randint(1, 5), rng.randint(1, 5)
        nvariables, arena = rng.randint(1, 4), rng.randint(1, 6)
        cells = {}
        spaces = {"input": ninputs, "output": noutputs, "arena": arena}
        for space, count in spaces.items():
            for index in range(count):
                cells[space, index] = rng.randint(-100, 100)
        memory = {space: (ctypes.c_int64 * count)() for space, count in spaces.items()}
        for (space, index), value in cells.items():
            memory[space][index] = value
        variables = [rng.randint(-9, 9) for _ in range(nvariables)]

        def ref(cell):
            space, index = cell
            return (
                BufferRef(space, 0, 8 * index) if space == "arena" else BufferRef(space, index, 0)
            )

        steps = []
        for _ in range(rng.randint(1, 20)):
            target, origin = rng.choice(list(cells)), rng.choice(list(cells))
            match rng.randrange(3):
                case 0:
                    number = rng.randrange(nvariables)
                    steps.append(add(kernels, ref(target), ref(origin), VariableRef(number)))
                    cells[target] = cells[origin] + variables[number]
                case 1:
                    steps.append(CopyStep(ref(target), ref(origin), 8))
                    cells[target] = cells[origin]
                case _:
                    steps.append(FillStep(ref(target), 8, 255))
                    cells[target] = -1
        plan = runtime.plan(
            steps, ninputs, noutputs, 8 * arena, nvariables, release_gil=rng.random() < 0.5
        )
        addresses = [
            ctypes.addressof(memory[space]) + 8 * index
            for space in ("input", "output")
            for index in range(spaces[space])
        ]
        assert plan.call(*addresses, ctypes.addressof(memory["arena"]), *variables) is None
        assert {cell: memory[cell[0]][cell[1]] for cell in cells} == cells


def test_clock_variant_compiles(monkeypatch):
    monkeypatch.setattr(native_ir.platform, "machine", lambda: "aarch64")
    assert "clock_gettime" in native.source()
    assert llvm.LLVMCompiler("aarch64-unknown-linux-gnu", "").compile(native.source(), "O2")
