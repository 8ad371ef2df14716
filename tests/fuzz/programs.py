"""Random programs, each run in several ways, for as long or as many as wanted.

Program N of seed S is ``drawn.draw("S-N")``. It runs with every value as a result, held against
bounds of kernels, statements and seconds to compile that are linear in its nodes, and then in the
other ways of `drawn_runs`: with its last values alone as results, in a captured function with other
data and other sizes, and in PyTorch where it can. Memory is poisoned.

Run by `make fuzz`. Options: ``--seconds N``, ``--programs N`` (instead), ``--seed S``, ``--resume``
(go on where the last run of this seed stopped), ``--state FOLDER`` (where progress and faults are
kept), ``--threads 1,2`` (of each block of programs in turn), ``--one-way`` (one other way for each
program, in turn, instead of all of them).

Blocks of programs run in processes of their own, so that one that dies or never ends costs a line
in the list of faults: ``faults-S.txt`` beside ``progress-S.json``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "conformance"), str(TESTS.parent / "src")]

BLOCK = 200
PATIENCE = 300  # seconds that one program may take
CHECKED = 50  # one program in so many checks itself
QUICK = 4  # of so many blocks all but one hardly optimise


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--programs", type=int)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "weft-fuzz")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--one-way", action="store_true")
    parser.add_argument("--block", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.block:
        return block(options, *options.block)
    return campaign(options)


class Progress:
    """How far a campaign is: programs, and those of them that are wrong."""

    def __init__(self, options):
        options.state.mkdir(parents=True, exist_ok=True)
        self.file = options.state / f"progress-{options.seed}.json"
        self.faults = options.state / f"faults-{options.seed}.txt"
        self.done = self.wrong = 0
        if options.resume and self.file.exists():
            held = json.loads(self.file.read_text())
            self.done, self.wrong = held["done"], held["wrong"]
        else:
            self.faults.unlink(missing_ok=True)
            self.save()

    def save(self):
        whole = self.file.with_suffix(".new")
        whole.write_text(json.dumps({"done": self.done, "wrong": self.wrong}))
        whole.replace(self.file)

    def fault(self, text):
        self.wrong += 1
        print(text, flush=True)
        with self.faults.open("a") as file:
            file.write(text + "\n\n")


def campaign(options):
    """Run blocks of programs until there are enough of them; return whether one was wrong."""
    began = time.monotonic()
    progress = Progress(options)
    threads = options.threads.split(",")
    first = progress.done

    def goes_on():
        if options.programs:
            return progress.done < options.programs
        return time.monotonic() - began < options.seconds

    while goes_on():
        end = progress.done - progress.done % BLOCK + BLOCK
        end = min(end, options.programs or end)
        limit = None if options.programs else options.seconds - (time.monotonic() - began)
        number = progress.done // BLOCK
        run_block(options, progress, end, limit, threads[number % len(threads)], number)
        seconds = time.monotonic() - began
        print(f"seed {options.seed}: {progress.done} programs, {progress.wrong} wrong, "
              f"{(progress.done - first) / seconds:.1f} a second", flush=True)
    return int(progress.wrong > 0)


def run_block(options, progress, end, limit, threads, number):
    """Run programs up to `end` in processes, the next one where one ends before that."""
    cache = tempfile.mkdtemp(prefix="weft-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm")
                             else None)  # fmt: skip
    env = {**os.environ, "WEFT_CACHE_DIR": cache, "WEFT_NUM_THREADS": threads,
           "WEFT_CONFIG": os.devnull, "OMP_NUM_THREADS": "1",
           "WEFT_FUZZ_QUICK": str(int(options.one_way and number % QUICK > 0)),
           "WEFT_POISON": os.environ.get("WEFT_POISON", ("nan", "ab")[number % 2])}  # fmt: skip
    command = [sys.executable, __file__, "--seed", options.seed, "--state", str(options.state),
               "--resume", "--block", str(progress.done), str(end)]  # fmt: skip
    command += ["--one-way"] if options.one_way else []
    start = time.monotonic()
    with subprocess.Popen(command, env=env) as child:
        seen, since = progress.done, time.monotonic()
        while True:
            try:
                code = child.wait(timeout=2)
                break
            except subprocess.TimeoutExpired:
                held = json.loads(progress.file.read_text())
                if held["done"] != seen:
                    seen, since = held["done"], time.monotonic()
                if limit is not None and time.monotonic() - start > limit:
                    child.terminate()
                    code = 0
                    break
                if time.monotonic() - since > PATIENCE:
                    child.kill()
                    code = f"no end after {PATIENCE} s"
                    break
    shutil.rmtree(cache, ignore_errors=True)
    held = json.loads(progress.file.read_text())
    progress.done, progress.wrong = held["done"], held["wrong"]
    if code:  # the program is not drawn here: that may be what ended the process
        progress.fault(f"program {options.seed}-{progress.done}: the process ended: {code}")
        progress.done += 1
        progress.save()


def block(options, first, end):
    """Run programs of a block in this process."""
    import drawn
    import drawn_runs

    from weft.driver import pipeline
    from weft.driver.context import host_context
    from weft.driver.plans import plan
    from weft.kernelize.memory import concurrency

    pipeline.verifying = True
    if int(os.environ["WEFT_FUZZ_QUICK"]):
        pipeline._PIPELINES = {tier: "quick" for tier in pipeline._PIPELINES}
    # Programs of a few elements let their kernels run at the same time, as large ones do.
    target = host_context().target
    target = target.replace(costs=target.costs.replace(handover_ns=0, group_gain_ns=1))
    host_context()._target, concurrency.LEAST_SHARE = target, 10**9
    plan._WAKE_NANOSECONDS = 0
    progress, parent = Progress(options), os.getppid()
    for number in range(first, end):
        if os.getppid() != parent:  # which was stopped
            break
        name = f"{options.seed}-{number}"
        program = drawn.draw(name)
        every = list(drawn_runs.ways_of(program))
        ways = [way for way in every if way != "checked" or number % CHECKED == 0]
        if options.one_way:
            ways = [ways[number % len(ways)], "torch"]
        problem = drawn_runs.fails(program, ways)
        if problem is not None:
            progress.fault(f"program {name}: {problem}\n{shorter(program, ways)}")
        progress.done = number + 1
        progress.save()
    return 0


def shorter(program, ways):
    """Return a program that fails in the same ways with fewer lines, and how."""
    import drawn
    import drawn_runs

    few = drawn.smaller(program, lambda rest: drawn_runs.fails(rest, ways) is not None)
    return f"{drawn_runs.fails(few, ways)}\n{few}"


if __name__ == "__main__":
    sys.exit(main())
