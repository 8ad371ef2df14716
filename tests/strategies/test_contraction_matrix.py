"""Contractions by products of matrices: by the interpreter, and as assembly for AMX."""

import pytest

import schedule_nests as nests
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.backends import cpu
from weft.compilers.llvm import compiler
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import MATRICES, Op
from weft.ir.stmt import Load, Store
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize
from weft.strategies import choose
from weft.strategies.common import nest
from weft.strategies.matrix_units import matrix_gemm
from weft.target import CostModel

FEATURES = tuple(f"+{name}" for name in (
    "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512bw", "avx512dq",
    "avx512f", "avx512vl", "avx512vnni", "f16c", "fma", "sse2"))  # fmt: skip
TARGET = cpu.target_from("x86_64", "sapphirerapids", FEATURES,
                         {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20})
WITHOUT = TARGET.replace(operations=frozenset(
    o for o in TARGET.operations if o[0] not in [op.name for op in MATRICES]))
UNSIGNED = TARGET.replace(operations=frozenset(
    o for o in TARGET.operations if o[0] != Op.MATRIX4S.name))
KINDS = [("bf16", "bf16"), ("i8", "i8"), ("u8", "i8")]


def fills(cost, side):
    """Return how often the copy of an operand is filled."""
    name = f"s.{side}.p"
    return 4 * cost.written[name] / cost.private[name]


def assembly(kernel, target=TARGET):
    lowered = linearize(vectorize(legalize(choose(kernel, target, 1), target)))
    return compiler().assembly(cpu.renderer(target).render(lowered, "k").text).splitlines()


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("layout", ["ik,kj", "ki,jk"])
@pytest.mark.parametrize("shape", [(16, 16, 33), (33, 40, 70), (5, 70, 40), (40, 7, 33)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_schedule_is_exact(kinds, layout, shape, threads):
    kernel = nests.narrow(*shape, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, threads)
    assert Cost(made).unit == "matrix"
    assert_same(kernel, made)


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("shape", [(5, 70, 40), (17, 34, 133), (9, 18, 140)])
def test_few_rows_of_operands_that_lie_alike_become_columns(kinds, shape):
    """Columns of a tile have to be turned in registers, rows are copied as they lie."""
    kernel = nests.narrow(*shape, *kinds, "ik", "jk")
    made = choose(kernel, TARGET, 1)
    cost = Cost(made)
    assert cost.unit == "matrix"
    turned = kinds[0] == kinds[1]  # unsigned bytes are those of the rows
    steps = cost.multiplications / (-(-shape[0] // 16) * 2)  # of all pairs of tiles
    assert (fills(cost, "right") == steps) is turned
    assert_same(kernel, made)


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("shape", "layout", "side"), [
    ((70, 20, 96), "ik,kj", "left"),  # the rows of one block of columns
    ((70, 20, 70), "ik,kj", "left"),  # with a last step that is not full
    ((70, 60, 64), "ik,kj", "left"),  # of two blocks
    ((70, 60, 64), "ki,kj", ""),  # which would be turned twice
    ((70, 140, 64), "ik,kj", ""),
    ((20, 140, 96), "ik,kj", "right"),  # the columns of one tile of rows
    ((9, 150, 70), "ik,kj", "right"),
    ((9, 150, 70), "ki,kj", "right"),
])
def test_what_tiles_hardly_share_is_copied_step_by_step(kinds, shape, layout, side):
    kernel = nests.narrow(*shape, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, 1)
    cost = Cost(made)
    steps = cost.multiplications / 4  # of all groups of four tiles
    assert [s for s in ("left", "right") if fills(cost, s) == steps] == ([side] if side else [])
    assert_same(kernel, made)


def test_few_rows_take_broad_tiles():
    """A line of each row of the matrix would be too little to ask for at once."""
    for rows, broad in ((16, True), (17, False)):
        cost = Cost(choose(nests.narrow(rows, 70, 64), TARGET, 1))
        assert cost.private["s.right.p"] == 1024 * (4 if broad else 2)


@pytest.mark.parametrize("kinds", [("u8", "u8"), ("i8", "u8")])
def test_other_kinds_of_bytes_take_vectors(kinds):
    kernel = nests.narrow(17, 33, 40, *kinds)
    made = choose(kernel, TARGET, 1)
    assert Cost(made).unit == "dot"
    assert_same(kernel, made)


@pytest.mark.parametrize(("kinds", "product"), [(KINDS[0], "tdpbf16ps"), (KINDS[1], "tdpbssd"),
                                               (KINDS[2], "tdpbusd")])
def test_results_stay_in_tile_registers(kinds, product):
    """Nothing but loads and products in the loop: no tile is stored or filled there."""
    lines = assembly(nests.narrow(128, 128, 256, *kinds))
    products = [at for at, line in enumerate(lines) if line.strip().startswith(product)]
    assert len(products) == 4
    body = lines[products[0] : products[-1]]
    assert not any("tilestored" in line or "zmm" in line for line in body)
    assert sum("tileloadd" in line for line in lines) <= 8
    assert sum("ldtilecfg" in line for line in lines) == 1
    assert not any("call" in line.split() for line in lines)


def test_each_tile_is_loaded_once_in_a_step():
    lines = assembly(nests.narrow(128, 128, 256))
    assert sum("tileloadd" in line for line in lines) == 4


@pytest.mark.parametrize(("columns", "inner", "past"), [
    (128, 64, 0),  # both fit the first cache
    (512, 256, 2),  # the panel of columns does not
    (512, 1024, 4),  # nor do the rows
])
def test_what_the_first_cache_cannot_keep_is_read_past_it(columns, inner, past):
    lines = assembly(nests.narrow(128, columns, inner))
    assert sum(line.split()[:1] == ["tileloaddt1"] for line in lines) == past
    assert sum("tileloadd" in line for line in lines) == 4


def test_a_long_sum_stores_a_tile_in_each_step():
    """The path of stores sleeps after a while, and takes long to wake."""
    def count(inner):
        lines = assembly(nests.narrow(64, 64, inner))
        last = max(at for at, line in enumerate(lines) if line.strip().startswith("tdpbf16ps"))
        behind = lines[last + 1 :]
        loop = next(at for at, line in enumerate(behind) if line.strip().startswith("j"))
        return sum("tilestored" in line for line in behind[:loop])

    assert count(2048) == 1
    assert count(256) == 0


@pytest.mark.parametrize("right", ["kj", "jk"])
def test_what_a_shift_adds_is_exact(right):
    kernel = nests.narrow(9, 18, 522, "i8", "i8", "ik", right)
    made = choose(kernel, UNSIGNED, 1)
    assert Cost(made).unit == "matrix"
    assert_same(kernel, made)


def test_results_are_not_turned_for_short_sums():
    """They are more words than the columns would be."""
    for inner, copies in ((24, 1), (96, 42)):  # of all columns at once, or of each step of a tile
        kernel = nests.narrow(40, 200, inner, "bf16", "bf16", "ik", "jk")
        assert fills(Cost(choose(kernel, TARGET, 1)), "right") == copies


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk", "ki,kj"])
def test_short_sums_of_many_results_take_tiles(kinds, layout, monkeypatch):
    monkeypatch.setattr(matrix_gemm, "MANY", 60 * 40)
    for rows, tiles in ((61, True), (59, False)):
        kernel = nests.narrow(rows, 40, 9, *kinds, *layout.split(","))
        made = choose(kernel, TARGET, 1)
        assert (Cost(made).unit == "matrix") is tiles
        assert_same(kernel, made)


@pytest.mark.slow
@pytest.mark.parametrize(("inner", "rows"), [(9, True), (40, False)])
def test_threads_share_the_rows_of_short_sums(inner, rows, monkeypatch):
    """Each copies all columns then, of which there are more than rows."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 8))
    monkeypatch.setattr(matrix_gemm, "MANY", 1)
    kernel = nests.narrow(130, 170, inner, "bf16", "bf16", "ik", "jk")
    made = choose(kernel, TARGET, 2)
    assert (made.body[0].var.attr, made.body[0].kind) == ("i.o" if rows else "j.o", "parallel")
    assert_same(kernel, made)


def test_few_rows_or_columns_take_vectors():
    for few, right, tiles in ((3, "kj", False), (4, "kj", True), (4, "jk", False)):
        for shape in ((few, 64, 64), (64, few, 64)):
            made = choose(nests.narrow(*shape, right_at=right), TARGET, 1)
            assert (Cost(made).unit == "matrix") is tiles


@pytest.mark.parametrize(("kinds", "layout", "inner"), [
    (("i8", "i8"), "ik,jk", 65), (("i8", "i8"), "ik,kj", 64), (("u8", "i8"), "ki,kj", 64),
    (("bf16", "bf16"), "ik,jk", 65)])
@pytest.mark.parametrize("shape", [(2, 40), (40, 3)])
def test_few_rows_take_tiles_where_vectors_have_no_words(kinds, layout, inner, shape):
    kernel = nests.narrow(*shape, inner, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, 1)
    assert Cost(made).unit == "matrix"
    assert_same(kernel, made)


def test_little_is_computed_twice_and_copied_often():
    """One block of columns, whose last tile overlaps, not several blocks that do."""
    for columns in (68, 39):
        made = choose(nests.narrow(512, columns, 160), TARGET, 1)
        cost, tiles = Cost(made), -(-columns // 32)
        assert cost.multiplications == 512 // 16 * 2 * tiles * 160 // 32
        assert cost.read["b"] == 160 * 32 * tiles


@pytest.mark.parametrize("layout", ["ik,kj", "ki,jk", "ik,jk"])
def test_only_the_last_step_of_a_ragged_sum_is_masked(layout):
    """The steps before it are copied by loops of their own."""
    found = [Cost(choose(nests.narrow(133, 140, inner, "bf16", "bf16", *layout.split(",")), TARGET,
                         1)).masked for inner in (20, 64, 70)]  # one step, two, and three
    assert found == [found[0], 0, found[0]]


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk"])
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("updates", [False, True])
def test_only_the_last_columns_of_an_update_are_masked(layout, kinds, updates):
    """Other results may be computed twice: by tiles that overlap."""
    for columns, ragged in ((38, True), (32, False)):
        kernel = nests.narrow(40, columns, 48, *kinds, *layout.split(","))
        if updates:
            kernel = in_place(kernel)
        made = choose(kernel, TARGET, 1)
        cost = Cost(made, exact=True)
        masked = cost.masks["c"]
        assert bool(masked) is (ragged and updates)
        assert masked < 2 * cost.store_steps["c"]  # and there are as many loads
        assert_same(kernel, made)


def in_place(kernel):
    """Return a kernel that adds its results to what is there."""
    loop = kernel.body[0]
    inner = loop.body[0]
    store = inner.body[-1]
    old = ex.var("old", store.memory.dtype)
    body = (*inner.body[:-1], Load(old, store.memory, store.index),
            Store(store.memory, store.index, old + store.value))
    return kernel.replace(body=(loop.replace(body=(inner.replace(body=body),)),))


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("layout", ["ik,jk", "ki,jk", "ki,kj"])
@pytest.mark.parametrize("inner", [70, 20, 259])
def test_no_element_is_gathered(kinds, layout, inner):
    """Copies of ragged sizes are read as vectors and turned in registers."""
    kernel = nests.narrow(75, 71, inner, *kinds, *layout.split(","))
    assert not any("gather" in line or "scatter" in line for line in assembly(kernel))


@pytest.mark.grid
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("layout", ["ik,jk", "ki,kj"])
def test_threads_that_share_the_rows_copy_the_columns_each(kinds, layout, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 8))
    kernel = nests.narrow(133, 40, 70, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, 2)
    assert Cost(made).shares == [2]
    assert Cost(made).read["b"] == 2 * Cost(choose(kernel, TARGET, 1)).read["b"]
    assert_same(kernel, made)


def test_threads_share_the_copy_of_many_columns():
    for rows, columns, threads, panel in ((64, 512, 2, 256), (64, 512, 1, 512), (512, 64, 2, 64)):
        cost = Cost(choose(nests.narrow(rows, columns, 64), TARGET, threads))
        assert max(cost.private.values()) == panel * 64 * 2


def test_panels_fill_half_of_the_second_cache():
    for l2_bytes in (2 << 20, 512 << 10):
        made = choose(nests.narrow(1024, 1024, 1024), TARGET.replace(l2_bytes=l2_bytes), 1)
        assert max(Cost(made).private.values()) == l2_bytes // 2


@pytest.mark.parametrize("matrices", [True, False])
def test_sums_become_bfloat16_by_one_instruction(matrices):
    """They are never subnormal, which that instruction would flush; what is made of them may be."""
    def converts(change):
        kernel = nests.narrow(64, 64, 256, out="bf16")
        loop = kernel.body[0]
        inner = loop.body[0]
        store = inner.body[-1]
        value = ex.cast(change(store.value.args[0]), dt.bfloat16)
        body = (*inner.body[:-1], store.replace(value=value))
        new = loop.with_bodies((inner.with_bodies(body),))
        kernel = kernel.replace(body=(new,))
        target = TARGET if matrices else WITHOUT
        return any("vcvtneps2bf16" in line for line in assembly(kernel, target))

    assert converts(lambda s: s)
    assert not converts(lambda s: s * 0.5)


def test_a_target_without_tiles_has_no_products_of_matrices():
    made = choose(nests.narrow(33, 40, 70), WITHOUT, 1)
    assert Cost(made).unit == "dot"
