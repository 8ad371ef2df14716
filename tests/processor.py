"""A unit for tests of cost: what a fixed piece of Python takes of the CPU here and now.

Seconds measure the machine and what else runs on it; the ratio to this unit hardly does.
"""

import time


def unit():
    """Return the seconds of the CPU that 100,000 steps of plain Python take, some 10 ms."""
    return min(timed(_steps) for _ in range(3))


def timed(work):
    """Return the seconds of the CPU that this thread takes for a call."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _steps():
    table = {}
    for k in range(100_000):
        table[k & 1023] = (k, str(k))
