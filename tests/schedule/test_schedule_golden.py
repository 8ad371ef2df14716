"""Each primitive before and after, as text that a reader can compare with its docstring."""

import pytest

import schedule_nests as nests
from weft.ir.text.text import print_kernel
from weft.schedule import Schedule


def tiled():
    return Schedule(nests.transpose(9, 10)).tile("i", "j", 4, 8)


CASES = {
    "split_mask": lambda: Schedule(nests.chain(10)).split("i", 4, "mask"),
    "split_peel": lambda: Schedule(nests.chain(10)).split("i", 4, "peel"),
    "split_trim": lambda: Schedule(nests.chain(10)).split("i", 4, "trim"),
    "split_overlap": lambda: Schedule(nests.chain(10)).split("i", 4, "overlap"),
    "split_clamp": lambda: Schedule(nests.chain(10)).split("i", 4, "clamp"),
    "split_reduce_mask": lambda: Schedule(nests.add_sum(10)).split("k", 4, "mask"),
    "split_reduce_peel": lambda: Schedule(nests.argmax(3, 10)).split("k", 4, "peel"),
    "peel": lambda: Schedule(nests.chain(10)).peel("i", 2),
    "fuse": lambda: Schedule(nests.bias(3, 5)).fuse("i", "j"),
    "reorder": lambda: Schedule(nests.bias(3, 5)).reorder("j", "i"),
    "tile": tiled,
    "sink": lambda: Schedule(nests.bias(5, 4)).split("i", 4).sink("i.i"),
    "kinds": lambda: Schedule(nests.chain(64)).split("i", 16).split("i.i", 8).parallel("i.o")
    .unroll("i.i.o").vectorize("i.i.i"),
    "rfactor": lambda: Schedule(nests.add_sum(12)).split("k", 4).rfactor("k.o"),
    "contract": lambda: Schedule(nests.matvec(3, 4)).contract("s"),
    "decompose_reduction": lambda: Schedule(nests.matmul(4, 8, 5)).decompose_reduction("s", "i"),
    "decompose_partial": lambda: Schedule(nests.matvec(4, 10)).split("k", 4).decompose_reduction(
        "s", "i", partial=("k.i",), spill=True),
    "stage": lambda: tiled().stage("x", "j.o", ("i.i", "j.i"), skew=1),
    "block_reduction": lambda: Schedule(nests.matmul(4, 8, 5)).block_reduction("s", "i", "k", 2),
    "share_reduction": lambda: Schedule(nests.matmul(4, 8, 5)).share_reduction("s", "i", "k", 3),
    "window": lambda: Schedule(nests.matmul(4, 8, 5)).window("a", "i"),
    "omit": lambda: Schedule(nests.convolution(5, 6)).omit("s"),
    "omit_zero": lambda: Schedule(nests.convolution(5, 6)).omit("s", zero=True),
    "specialize": lambda: Schedule(nests.convolution(5, 6)).omit("s").decompose_reduction(
        "s", "j").specialize("p", "i"),
    "branch": lambda: Schedule(nests.convolution(5, 6)).omit("s").decompose_reduction(
        "s", "j").branch("p").branch("j"),
    "tensorize": lambda: Schedule(nests.narrow(4, 8, 5, "bf16", "bf16")).tensorize(
        "s", "k", "dot2"),
    "tensorize_bias": lambda: Schedule(nests.narrow(4, 8, 8, "i8", "i8")).tensorize(
        "s", "k", "dot4"),
    "precompute": lambda: Schedule(nests.narrow(4, 9, 5, "f16", "bf16")).split("j", 8).reorder(
        "j.o", "i", "j.i").precompute("y", "j.o", ("k", "j.i")),
    "alias": lambda: Schedule(nests.softmax(2, 5)).alias("x", "b"),
    "unite": lambda: Schedule(nests.softmax(2, 5)).alias("x", "b").unite(),
    "layout": lambda: tiled().stage("x", "j.o", ("i.i", "j.i")).layout("x.s", (1, 0)),
    "pad": lambda: tiled().stage("x", "j.o", ("i.i", "j.i")).pad("x.s", 0, 8),
    "flatten": lambda: tiled().stage("x", "j.o", ("i.i", "j.i")).flatten("x.s", 2),
    "inline": lambda: Schedule(nests.softmax(2, 5)).inline("e"),
    "hoist": lambda: Schedule(nests.matmul(2, 3, 4)).reorder("j", "i").hoist("t"),
    "scan": lambda: Schedule(nests.carried(2, 10)).scan("k", 4),
    "scan_neighbours": lambda: Schedule(nests.carried(2, 10)).scan("k", 4, 2),
    "stream": lambda: Schedule(nests.chain(10)).stream("y"),
    "prefetch_panel": lambda: Schedule(nests.matmul(3, 9, 20, right="jk")).split("j", 4).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).prefetch(
        "b", "i", "j.o", granularity="panel", read="k.s"),
    "prefetch_row_of_panel": lambda: Schedule(nests.matmul(3, 12, 20)).split("j", 4).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).decompose_reduction(
        "s", "j.i").prefetch("b", "k", "j.o", granularity="row", read="k.s", first="i"),
    "prefetch_row": lambda: Schedule(nests.matmul(6, 64, 20)).split("j", 32).split(
        "i", 2).reorder("j.o", "i.o", "i.i", "j.i").decompose_reduction(
        "s", "i.i").prefetch("b", "k", "j.o", granularity="row", first="i.o"),
    "software_pipeline": lambda: Schedule(nests.matmul(6, 64, 20)).split("j", 32).split(
        "i", 2).reorder("j.o", "i.o", "i.i", "j.i").stage("b", "j.o", ("k", "j.i")).
        decompose_reduction("s", "i.i").software_pipeline("b", "k", "j.o", read="k.s", first="i.o"),
    "fuse_prologue_epilogue": lambda: Schedule(nests.matmul(6, 64, 40)).split("j", 32).reorder(
        "j.o", "i", "j.i").block_reduction("s", "j.o", "k", 20).
        fuse_prologue_epilogue("j.o.end", "k.o", "i"),
    "prefetch_rows": lambda: Schedule(nests.matmul(6, 64, 20)).split("j", 32).split(
        "i", 2).reorder("j.o", "i.o", "i.i", "j.i").block_reduction("s", "i.i", "k", 8)
    .decompose_reduction("s.b", "i.i").prefetch(
        "a", "k.o", "i.o", granularity="rows", count=1, read="i.i"),
    "prefetch_pages": lambda: Schedule(nests.bias(4, 128)).split("j", 32).prefetch(
        "x", "j.o", "i", 1, "pages", 4),
    "prefetch": lambda: Schedule(nests.softmax(2, 5)).prefetch("x", "q", "r"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name, golden):
    schedule = CASES[name]()
    lines = ["# before", print_kernel(schedule.start), *[f"# {t}" for t in schedule.trace]]
    golden(f"schedule/{name}.txt", "\n".join([*lines, print_kernel(schedule.bare)]))

