"""What a launch of work-items costs in memory, counted by interpreting it for chosen groups.

::

    (launch,) = launch_costs(kernel)         # a scheduled kernel of loop level
    launch.read["a"], launch.written["c"]    # bytes of global memory in the whole launch
    launch.memory["a"].coalescing            # of the sectors that instructions touch: bytes used
    launch.used                              # of the sectors that groups fetch: bytes used
    launch.conflicts                         # extra turns of shared memory, 0 if there are none

All work-items of a group run at the same time, each instruction for all of them, and 32 neighbours
are a warp. Only what addresses, bounds and conditions depend on is computed, so arrays have no
memory, and a group of a large launch takes milliseconds. Where addresses depend on what is in an
array (indices), that array is given. Arrays begin at a sector and at the first bank.

Of many groups the first, one in the middle and the last are run. The first stands for all but the
last; that it costs what the one in the middle does is checked.
"""

from collections import Counter, defaultdict

import numpy as np

from launch_lanes import Lanes
from weft.ir import linear as li
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize
from weft.renderers.launches.work_items import launches
from weft.target import SIMT, Target, native_operations

A100 = Target("threads", "sm_80", vector_bytes=4, vector_registers=256, line_bytes=128,
              l1_bytes=192 << 10, l2_bytes=40 << 20, memory_bytes=40 << 30, cores=108,
              operations=native_operations(), style=SIMT, group_items=256, max_items=1024,
              shared_bytes=48 << 10)  # fmt: skip
WARP, SECTOR, BANKS, WORD = 32, 32, 32, 4
MANY = 32  # groups up to which all of them are run


class Figures:
    """Numbers that are added up."""

    def figures(self):
        return tuple(vars(self).values())

    def add(self, other, times=1):
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + times * value)


class Traffic(Figures):
    """Accesses of one kind, reads or writes, to one array of global memory.

    Attributes
    ----------
    requests : int
        Instructions of warps.
    nbytes : int
        Bytes that they read or write; what several items of a warp read at once counts once.
    sectors : int
        Sectors of 32 bytes that they touch.
    distinct_bytes, distinct_sectors : int
        The same of each group between two barriers, where a cache holds what was touched before.
    """

    def __init__(self):
        self.requests = self.nbytes = self.sectors = 0
        self.distinct_bytes = self.distinct_sectors = 0

    @property
    def coalescing(self):
        """Which part of the bytes of the sectors that instructions touch they use."""
        return self.nbytes / (self.sectors * SECTOR) if self.sectors else 1.0

    @property
    def used(self):
        """Which part of the bytes of the sectors that a group touches it uses between barriers."""
        return used([self])


class Banks(Figures):
    """Accesses to one array of shared memory.

    Attributes
    ----------
    requests : int
        Instructions of warps.
    turns : int
        Turns that they take: one for each half of a warp that moves 8 bytes an item.
    conflicts : int
        Turns beyond these, where items want different words of one bank.
    """

    def __init__(self):
        self.requests = self.turns = self.conflicts = 0


def used(traffic):
    """Return which part of the bytes of fetched sectors is used, of several `Traffic`."""
    sectors = sum(t.distinct_sectors for t in traffic)
    return sum(t.distinct_bytes for t in traffic) / (sectors * SECTOR) if sectors else 1.0


class LaunchCost:
    """The counts of one launch.

    Attributes
    ----------
    groups, items : int
        Of the launch.
    loads, stores : dict of str to Traffic
        By array of global memory (scratch memory among them), of the whole launch.
    shared : dict of str to Banks
        By array of shared memory, of the whole launch.
    """

    def __init__(self, groups, items):
        self.groups, self.items = groups, items
        self.loads, self.stores = defaultdict(Traffic), defaultdict(Traffic)
        self.shared = defaultdict(Banks)

    @property
    def read(self):
        """Bytes read, by array."""
        return Counter({name: t.nbytes for name, t in self.loads.items()})

    @property
    def written(self):
        """Bytes written, by array."""
        return Counter({name: t.nbytes for name, t in self.stores.items()})

    @property
    def used(self):
        """Which part of the bytes of fetched and written sectors is used, of all arrays."""
        return used([*self.loads.values(), *self.stores.values()])

    @property
    def conflicts(self):
        """Turns of shared memory beyond what conflict-free accesses take."""
        return sum(b.conflicts for b in self.shared.values())

    def tables(self):
        return self.loads, self.stores, self.shared

    def add(self, other, times=1):
        for mine, its in zip(self.tables(), other.tables(), strict=True):
            for name, t in its.items():
                mine[name].add(t, times)

    def figures(self):
        return [{n: t.figures() for n, t in table.items()} for table in self.tables()]

    def lines(self):
        """Yield the counts as text, a line for each array."""
        yield f"{self.groups} groups of {self.items} items"
        for name in sorted({*self.loads, *self.stores}):
            for verb, table in (("read", self.loads), ("written", self.stores)):
                if name in table:
                    t = table[name]
                    yield (f"{name}: {t.nbytes} bytes {verb} by {t.requests} instructions, "
                           f"{t.coalescing:.1%} of their sectors used")
        for name, b in sorted(self.shared.items()):
            yield f"{name}: {b.turns} turns of shared memory, {b.conflicts} conflicts"


def launch_costs(kernel, target=A100, arrays=None, sizes=None, groups=None, every=False):
    """Return what each launch of a kernel costs.

    Parameters
    ----------
    kernel
        A kernel of loop level, scheduled for devices of threads, or one of kernel level.
    target
        Its target.
    arrays
        Arrays that addresses depend on, by name, flat or not.
    sizes
        Values of the variables, by name.
    groups
        The groups of each launch that may be of any number, and the most of the others; by default
        4 for each core, and as many as there is work for.
    every
        Whether all groups are run.
    """
    if not isinstance(kernel, li.LinearKernel):
        kernel = flat(kernel, target)
    found = []
    for launch in launches(kernel, target).launches:
        most = launch.groups or 4 * target.cores
        found.append(_cost(kernel, launch, min(most, groups or most), arrays or {}, sizes or {},
                           every))
    return found


def flat(kernel, target=A100):
    """Return a scheduled kernel at kernel level."""
    return linearize(vectorize(legalize(kernel, target)))


def _cost(linear, launch, groups, arrays, sizes, every):
    code = linear.replace(code=launch.code)
    run = Lanes(code, launch.items, arrays).translate()
    total = LaunchCost(groups, launch.items)

    def one(group):
        cost = LaunchCost(1, launch.items)
        registers = {li.LOCAL_ID: np.arange(launch.items), li.LOCAL_SIZE: launch.items,
                     li.GROUP_ID: group, li.NUM_GROUPS: groups}  # fmt: skip
        run(_Recorder(cost, launch.items), sizes, registers)
        return cost

    if every or groups <= MANY:
        for group in range(groups):
            total.add(one(group))
        return total
    first, middle = one(0), one(groups // 2)
    assert first.figures() == middle.figures(), (first.figures(), middle.figures())
    total.add(first, groups - 1)
    total.add(one(groups - 1))
    return total


class _Recorder:
    """Takes the accesses of one group, and counts them in pieces."""

    PIECE = 512  # accesses of one instruction that are counted at once

    def __init__(self, cost, items):
        self.cost, self.items = cost, items
        self.pending, self.seen = defaultdict(list), defaultdict(list)

    def __call__(self, key, offsets, active):
        """Note an access: `key` says of what memory, its kind, and elements side by side."""
        waiting = self.pending[key]
        waiting.append(np.where(active, offsets, -1))
        if len(waiting) == self.PIECE:
            self.count(key)

    def barrier(self):
        """Forget what a cache holds."""
        for key in list(self.pending):
            self.count(key)
        for (kind, name, size), parts in self.seen.items():
            (elements,) = _different(np.concatenate(parts)[None])
            (sectors,) = _different(elements[None] * size // SECTOR)
            t = getattr(self.cost, kind)[name]
            t.distinct_bytes += len(elements) * size
            t.distinct_sectors += len(sectors)
        self.seen.clear()

    def count(self, key):
        memory, kind, lanes = key
        offsets = np.array(self.pending.pop(key))
        offsets = np.pad(offsets, ((0, 0), (0, -self.items % WARP)), constant_values=-1)
        warps = offsets.reshape(-1, WARP)
        warps = warps[(warps >= 0).any(1)]
        size = memory.dtype.itemsize
        t = getattr(self.cost, kind)[memory.name]
        t.requests += len(warps)
        if kind == "shared":
            self.count_turns(t, warps, size, lanes)
            return
        elements = _spread(warps, lanes)
        (different,) = _different(elements)
        t.nbytes += len(different) * size
        t.sectors += len(_different(np.where(elements < 0, -1, elements * size // SECTOR))[0])
        self.seen[kind, memory.name, size].append(different)

    def count_turns(self, banks, warps, size, lanes):
        width = max(size * lanes // WORD, 1)  # words of an item
        parts = warps.reshape(-1, max(WARP // width, 1))  # items that have a turn together
        parts = parts[(parts >= 0).any(1)]
        words = _spread(np.where(parts < 0, -1, parts * size // WORD), width)
        chosen, rows = _different(words, np.arange(len(words))[:, None])
        places = np.bincount(rows * BANKS + chosen % BANKS, minlength=len(words) * BANKS)
        turns = places.reshape(-1, BANKS).max(1)
        banks.turns += int(turns.sum())
        banks.conflicts += int((turns - 1).sum())


def _spread(places, count):
    """Return `count` places side by side in the place of each, -1 for -1."""
    wide = np.where(places[:, :, None] < 0, -1, places[:, :, None] + np.arange(count))
    return wide.reshape(len(places), places.shape[1] * count)


def _different(numbers, *rows):
    """Return the numbers of all rows but -1, each once in its row, and what is said of its row."""
    rising = (numbers[:, 1:] >= numbers[:, :-1]).all()
    ordered = numbers if rising else np.sort(numbers, axis=1)
    chosen = ordered >= 0
    chosen[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return (ordered[chosen], *(np.broadcast_to(r, ordered.shape)[chosen] for r in rows))
