"""The counter of what launches cost: figures known by hand, and the interpreter's accesses."""

from collections import defaultdict

import numpy as np
import pytest
from test_launches import linear

import graphs
import launch_costs as lc
import weft
from graphs import el, leaf
from launch_costs import A100, flat, launch_costs
from weft import gpu
from weft.ir import infer
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.renderers.launches.work_items import launches
from weft.strategies.threads.choose import choose_for_threads


def one_block(kernel, *arrays, threads=32):
    """Return what a launch of one block costs."""
    made = linear(kernel, 1, threads, *arrays)
    sizes = {v.attr.name: 1 if v.attr.name.startswith("grid") else arrays[0].size
             for v in made.variables}  # fmt: skip
    (cost,) = launch_costs(made, arrays=dict(zip("xio", arrays, strict=False)), sizes=sizes)
    return cost


def strided(step, dtype=weft.float32):
    @weft.kernel
    def held(x, out):
        kept = gpu.shared.array(2048, dtype)
        t = gpu.threadIdx.x
        kept[t * step] = x[t]
        gpu.syncthreads()
        out[t] = kept[(t ^ 1) * step]  # what its neighbour stored

    return held


@pytest.mark.parametrize(("step", "conflicts"), [(1, 0), (2, 1), (32, 31), (33, 0), (0, 0)])
def test_items_that_want_different_words_of_a_bank_take_turns(step, conflicts):
    x, out = np.zeros((2, 64), np.float32)
    cost = one_block(strided(step), x, out, threads=64)
    assert cost.conflicts == 2 * 2 * conflicts  # a store and a load by each of two warps
    assert cost.shared["kept"].turns == 4 + cost.conflicts


def test_halves_of_a_warp_take_turns_with_eight_bytes_an_item():
    cost = one_block(strided(1, weft.float64), *np.zeros((2, 64)), threads=64)
    assert (cost.conflicts, cost.shared["kept"].turns) == (0, 8)
    cost = one_block(strided(2, weft.float64), *np.zeros((2, 64)), threads=64)
    assert (cost.conflicts, cost.shared["kept"].turns) == (8, 16)


@weft.kernel
def gathered(x, i, out):
    t = gpu.threadIdx.x
    if t < 40:
        out[t] = x[i[t]]


def test_addresses_in_arrays():
    index = np.arange(64) * 16 % 256
    x, out = np.zeros((2, 256), np.float32)
    cost = one_block(gathered, x, index, out, threads=64)
    loads, stores = cost.loads, cost.stores
    assert (loads["x"].nbytes, loads["x"].sectors) == ((16 + 8) * 4, 16 + 8)
    assert (loads["x"].distinct_bytes, loads["x"].distinct_sectors) == (16 * 4, 16)
    assert (loads["i"].nbytes, loads["i"].sectors) == (40 * 8, 10)
    assert (stores["out"].nbytes, stores["out"].requests, stores["out"].coalescing) == (160, 2, 1)
    assert cost.read["x"] == 96


GRAPHS = {
    "chain": lambda: el(Op.ADD, el(Op.MUL, leaf(70, 91), leaf(70, 91)), leaf(70, 91)),
    "softmax": lambda: graphs.softmax(leaf(5, 700)),
    "sum": lambda: infer.reduce(leaf(7, 1001), "sum", (0, 1)),
    "columns": lambda: infer.reduce(leaf(40, 650), "sum", (0,)),
    "turned": lambda: infer.contiguous(infer.permute(leaf(70, 41), (1, 0))),
    "padded": lambda: infer.contiguous(infer.pad(leaf(33, 41), (1, 2), (3, 1), 9)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_accesses_are_those_of_the_interpreter(name, monkeypatch):
    """Each element that the interpreter of launches touches is noted as often, and no other."""
    (step,) = kernelize([GRAPHS[name]()])
    made = flat(choose_for_threads(step.kernel, A100, A100.cores))
    noted, touched = defaultdict(list), defaultdict(list)

    class Kept(lc._Recorder):
        def __call__(self, key, offsets, active):
            super().__call__(key, offsets, active)
            index = np.broadcast_to(offsets, self.items)[active]
            if key[1] != "shared":
                noted[key[0].name, key[1]] += index.tolist()

    class Touched(list):
        def __getitem__(self, at):
            touched[self.name, "loads"].append(at)
            return super().__getitem__(at)

        def __setitem__(self, at, value):
            touched[self.name, "stores"].append(at)
            super().__setitem__(at, value)

    monkeypatch.setattr(lc, "_Recorder", Kept)
    launch_costs(made, every=True)
    (launch,) = launches(made, A100).launches
    names = iter(m.name for m in made.params)

    def lists(array):
        found = Touched(array.ravel().tolist())
        found.name = next(names)
        return found

    monkeypatch.setattr(interpret, "_to_list", lists)
    arrays = [np.zeros(m.size.attr, np.float32) for m in made.params]
    part = made.replace(code=launch.code)
    interpret.run_launch(part, launch.groups, launch.items, arrays)
    assert {k: sorted(v) for k, v in noted.items()} == {k: sorted(v) for k, v in touched.items()}
