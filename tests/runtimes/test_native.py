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
from weft.runtimes.native.executor import native, native_ir
from weft.runtimes.native.executor.native import (
    BufferRef,
    CopyStep,
    FillStep,
    KernelStep,
    VariableRef,
)


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


@pytest.mark.slow
def test_the_function_alone_keeps_everything_alive(runtime):
    library = runtime.link(llvm.compiler().compile(KERNELS), ["add_variable"])
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
    for length in (28, 30, 32):  # a busy machine may give this thread few turns
        worker = threading.Thread(target=plan.call, args=(0, 1 << length))
        worker.start()
        beats = 0
        while worker.is_alive():
            beats += 1
            time.sleep(0.001)
        if beats > 5:
            break
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
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        plan.call(address, 0)
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
    assert "clock_gettime" in native.source().text
    assert llvm.LLVMCompiler("aarch64-unknown-linux-gnu", "").compile(native.source().text, "O2")


def squares(kernels, count, index=0):
    return KernelStep(kernels["squares"], [BufferRef.output(index)], [VariableRef.constant(count)])


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("release_gil", [False, True])
def test_steps_of_a_group_all_run_once(runtime, kernels, words, release_gil, eager):
    """Each adds to a word of its own; one before and one after see the same arrays."""
    count = 23
    array, address = words(*[5] * (count + 2))
    first = add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef(0))
    own = [add(kernels, BufferRef.input(0, 8 * i), BufferRef.input(0), VariableRef.constant(i))
           for i in range(1, count + 1)]  # fmt: skip
    last = add(kernels, BufferRef.input(0, 8 * count + 8), BufferRef.input(0, 8), VariableRef(0))
    plan = runtime.plan([first, *own, last], 1, 0, nvariables=1, release_gil=release_gil,
                        groups=[(1, count, eager)])  # fmt: skip
    for call in range(1, 400):
        assert plan.call(address, 0, 1) is None
        assert list(array) == [5 + call, *(5 + call + i for i in range(1, count + 1)), 7 + call]


def test_groups_share_the_work_of_small_kernels(kernels, words):
    """Called again and again, and not only once: threads sleep and are not woken for little."""
    import weft.runtimes.cpu.runtime as cpu

    runtime = cpu.CpuRuntime(llvm.compiler(), llvm.session(), thread_count=2)
    steps = [KernelStep(kernels["spin"], [], [VariableRef.constant(4_000)])] * 4
    plan = runtime.plan(steps, 0, 0, release_gil=True, groups=[(0, 4, False)])
    assert plan.call(0) is None
    assert runtime.threads.workers == 0
    spins = runtime.threads.threads <= len(os.sched_getaffinity(0))
    end = time.monotonic() + 30
    while runtime.threads.workers == 0 and time.monotonic() < end:
        plan.call(0)
    assert runtime.threads.workers == 1 or not spins
    eager = runtime.plan(steps, 0, 0, release_gil=True, groups=[(0, 4, True)])
    assert eager.call(0) is None
    assert runtime.threads.workers == 1
    runtime.threads.shutdown()


def test_a_group_learns_which_way_is_faster(runtime, kernels, words):
    """The record of its second step holds the mean time either way; results are the same."""
    array, address = words(*[0] * 4)
    steps = [add(kernels, BufferRef.input(0, 8 * i), BufferRef.input(0, 8 * i), VariableRef(0))
             for i in range(4)]  # fmt: skip
    plan = runtime.plan(steps, 1, 0, nvariables=1, release_gil=True, groups=[(0, 4, False)])
    apart, together = native_ir.STEP_WORDS + 6, native_ir.STEP_WORDS + 7
    assert plan._steps[apart] == plan._steps[together] == 0
    for call in range(1, 2000):
        assert plan.call(address, 0, 3) is None
        assert list(array) == [3 * call] * 4
    assert plan._steps[apart] > 0
    assert plan._steps[together] >= 0


@pytest.mark.parametrize("eager", [False, True])
def test_the_first_failure_of_a_group_is_told(runtime, kernels, words, eager):
    array, address = words(0, 0, 0)
    steps = [
        add(kernels, BufferRef.output(0), BufferRef.output(0), VariableRef.constant(1)),
        add(kernels, BufferRef.output(0, 8), BufferRef.output(0, 8), VariableRef.constant(1)),
        KernelStep(kernels["fail_silently"], []),
        KernelStep(kernels["fail"], []),
        KernelStep(kernels["fail"], []),
        add(kernels, BufferRef.output(0, 16), BufferRef.output(0, 16), VariableRef.constant(1)),
    ]
    plan = runtime.plan(steps, 0, 1, release_gil=True, groups=[(1, 4, eager)])
    for _ in range(300):
        assert plan.call(address, 0) == (9, 2, 0, 0, 0)
    assert list(array) == [300, 300, 0]
    plan = runtime.plan([*steps[:2], *steps[3:]], 0, 1, release_gil=True, groups=[(1, 3, eager)])
    for _ in range(300):
        assert plan.call(address, 0) == (7, 2, 3, -5, 1 << 40)
    assert array[2] == 0


def test_parallel_kernels_in_a_group(runtime, kernels, words):
    """The pool is busy with the group, so their chunks run one after the other: all of them."""
    arrays = [words(*[0] * 101) for _ in range(3)]
    steps = [squares(kernels, 100, i) for i in range(3)]
    plan = runtime.plan(steps, 0, 3, groups=[(0, 3, True)])
    for _ in range(100):
        for array, _ in arrays:
            array[0] = 0
        assert plan.call(*(address for _, address in arrays), 0) is None
        for array, _ in arrays:
            assert (array[0], list(array[1:])) == (4, [i * i for i in range(100)])


def test_a_group_of_a_large_frame(runtime, kernels, words):
    refs = [BufferRef.output(0), *(BufferRef.input(i) for i in range(64))]
    other = [BufferRef.output(1), *(BufferRef.input(i) for i in range(64))]
    steps = [KernelStep(kernels["sum_64"], r) for r in (refs, other)]
    plan = runtime.plan(steps, 400, 2, groups=[(0, 2, True)])
    data, address = words(*range(400))
    out, target = words(0, 0)
    inputs = [address + 8 * i for i in range(400)]
    assert plan.call(*inputs, target, target + 8, 0) is None
    assert list(out) == [sum(range(64))] * 2
    assert data[399] == 399


def test_groups_from_many_threads(runtime, kernels):
    steps = [add(kernels, BufferRef.arena(8 * i), BufferRef.input(0), VariableRef(0))
             for i in range(6)]  # fmt: skip
    steps += [add(kernels, BufferRef.output(0, 8 * i), BufferRef.arena(8 * i), VariableRef(0))
              for i in range(6)]  # fmt: skip
    plan = runtime.plan(steps, 1, 1, arena_bytes=48, nvariables=1, release_gil=True,
                        groups=[(0, 6, True), (6, 6, True)])  # fmt: skip
    wrong = []

    def work(number):
        data = (ctypes.c_int64 * 13)(number)
        address = ctypes.addressof(data)
        for step in range(500):
            plan.call(address, address + 8, address + 56, step)
            if list(data[1:7]) != [number + 2 * step] * 6:
                wrong.append((number, step))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_signal_waits_for_the_end_of_a_group(runtime, kernels, words):
    array, address = words(0, 0)
    spin = KernelStep(kernels["spin"], [], [VariableRef.constant(1 << 22)])
    one = add(kernels, BufferRef.input(0), BufferRef.input(0), VariableRef.constant(1))
    two = add(kernels, BufferRef.input(0, 8), BufferRef.input(0, 8), VariableRef.constant(1))
    count = 10_000
    plan = runtime.plan([spin, spin, one, two] * count, 1, 0, release_gil=True,
                        groups=[(4 * i, 4, True) for i in range(count)])  # fmt: skip
    timer = threading.Timer(
        0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    )
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        plan.call(address, 0)
    timer.join()
    assert 0 < array[0] == array[1] < count


@pytest.mark.requires("fork")
def test_child_after_fork_runs_groups(runtime, kernels, words):
    arrays = [words(*[0] * 101) for _ in range(2)]
    plan = runtime.plan([squares(kernels, 100, i) for i in range(2)], 0, 2, release_gil=True,
                        groups=[(0, 2, True)])  # fmt: skip
    addresses = [address for _, address in arrays]
    assert plan.call(*addresses, 0) is None
    child = os.fork()
    if child == 0:
        for array, _ in arrays:
            array[0] = 0
        plan.call(*addresses, 0)
        good = all(list(array[1:]) == [i * i for i in range(100)] for array, _ in arrays)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("group", [(-1, 2), (0, 0), (0, 3), (1, 2), (2, 1)])
def test_a_group_has_kernels_only(runtime, kernels, group):
    steps = [KernelStep(kernels["nothing"], []), KernelStep(kernels["nothing"], []),
             FillStep(BufferRef.output(0), 8)]  # fmt: skip
    with pytest.raises(LaunchError, match="kernels"):
        runtime.plan(steps, 0, 1, groups=[(*group, True)])
