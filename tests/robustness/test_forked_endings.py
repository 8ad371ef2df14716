"""Children that were forked amid anything end as Python processes do, whichever way they end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requires("fork"), pytest.mark.slow]

TESTS = Path(__file__).parent.parent
PROGRAM = """
import os, random, signal, sys, time
import torture

seed, children = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
wrong = []
chosen = rng.sample(torture.ACTIVITIES, 3)
with torture.Workers(chosen, seed) as workers:
    for number in range(children):
        time.sleep(rng.random() * 0.03)
        inner, how = random.Random(rng.randrange(1 << 30)), number % 3
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.alarm(torture.PATIENCE)
            torture.Workers.__exit__ = lambda *_: None  # its threads are the parent's
            for activity in inner.sample(torture.ACTIVITIES, 4):
                activity(inner)
            if how == 0:
                os._exit(0)
            if how == 1:
                sys.exit(0)
            sys.stderr = open(os.devnull, "w")
            raise ZeroDivisionError
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != how // 2:
            wrong.append((number, how, code))
assert not wrong, ([a.__name__ for a in chosen], wrong)
"""


@pytest.mark.parametrize("tiered", ["0", "1"])
@pytest.mark.parametrize("seed", range(2))
def test_children_end(seed, tiered, tmp_path):
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(seed + os.getpid()), "6"],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": path, "WEFT_CACHE_DIR": str(tmp_path),
             "WEFT_TIERED": tiered})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
