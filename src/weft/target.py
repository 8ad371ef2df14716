"""What a device can do, as data: passes and strategies ask it and never the device's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.op import BY_NAME, Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import ORDERS, SCOPES
from weft.store.digest import blake2b

__all__ = ["ARRAY_BYTES", "ASSUMED", "BANKS", "BYTE_COST", "COPY_STEPS", "FLAG_BYTES",
           "GROUP_SIDES", "LARGE_BYTES", "MEASURED", "PRIVATE_BYTES", "REPORTED", "SECTOR_BYTES",
           "SIMT", "STACK_BYTES", "THREAD_TILES", "VECTOR", "CostModel", "Target",
           "native_operations"]

REPORTED: Final = "reported"  # by the driver, the operating system or the processor
MEASURED: Final = "measured"  # by us
ASSUMED: Final = "assumed"  # nobody says; a safe value
VECTOR: Final = "vector"  # styles of devices
SIMT: Final = "simt"
ARRAY_BYTES: Final = 512 << 10  # of one private array
PRIVATE_BYTES: Final = 1 << 20  # of all private arrays of one function
LARGE_BYTES: Final = 12 << 20  # of all, where large panels are worth as much
STACK_BYTES: Final = 64 << 10  # of them on a stack; threads of other programs may have 128 KiB
# What kernels of groups of threads count on, whatever the device.
BANKS: Final = 32  # words that a memory of groups gives at once
GROUP_SIDES: Final = (16, 8)  # threads along a side of a group
THREAD_TILES: Final = (1, 2, 4, 8)  # results along a side of a thread's tile
COPY_STEPS: Final = (16, 8, 4)  # terms that a group copies at once
FLAG_BYTES: Final = 512  # of a group's memory, left for flags
SECTOR_BYTES: Final = 32  # that memory gives at once
BYTE_COST: Final = 4  # multiply-adds in whose time a byte comes from memory


class CostModel(Record):
    """What work takes on a processor, in the figures that strategies and the kernelizer weigh.

    The defaults were measured on processors of servers with vectors of 256 and 512 bits. A backend
    whose device differs gives its `Target` other ones; whoever chooses between forms of a kernel
    asks these and no constant of a module.

    Attributes
    ----------
    parallel_work : int
        Weighted operations below which threads cost more than they gain.
    line_transfer_cycles, line_transfer_work : int
        What a line takes from one thread to another that writes to it, too: cycles, and weighted
        operations where two threads write it by turns.
    handover_ns, group_kernel_ns, group_gain_ns : int
        Nanoseconds: of a parallel region, its imbalance included; of a kernel that is shared out
        and may yet run beside others; that a group of kernels has to save.
    term_rate, waiting_term_rate : int
        Terms of a contraction in the time of as many weighted operations as one has: from
        registers, and of a vector times a matrix, whose elements are waited for.
    step_cost, near_step_cost, whole_step_cost : int
        Half cycles of a step of a tile beside its products: of a narrow tile; of one vector, where
        the first cache has all of it; where units take two whole vectors a cycle.
    products_in_flight : int
        Multiply-adds of which none waits for another.
    quotient_cycles, gather_cost, shared_result_cost : int
        Dividing a vector, in cycles; a gathered operand, in simple operations; a result that
        several threads share, in weighted operations for a multiplication.
    lane_moves, lane_move_bytes, lane_move_wait : int
        Elements, and bytes, that change places in a cycle, in squares that registers hold; times as
        long where units take vectors whole and lines come from memory.
    lane_sum_cycles, lane_store_cycles : int
        Cycles in which the partial sums of a result become one, and in which it leaves its vector.
    matrix_product_cycles, matrix_line_cycles, matrix_store_cycles : int
        Cycles of a product of two tiles, of a line of words that is copied for one, and of a tile
        of results that is stored.
    page_bytes : int
        Of memory that look-ahead does not leave, and after which the sets of a first cache come
        again.
    l2_rate, l3_rate, memory_rate, operation_bytes : int
        Bytes in a cycle from the second cache, the third and memory, and of operands in the time of
        a weighted operation.
    far_row_rate, far_row_wait : int
        Bytes of rows from far in the time of a product, and products in whose time a piece of such
        a row is waited for.
    stream_bytes, memory_bound_bytes : int
        An output that no cache keeps until it is read again, and arrays for which memory is the
        limit.
    image_bytes, gradient_image_bytes, held_result_bytes, held_sum_bytes : int
        What is kept near at most: a box of an image, and for a gradient by weights; results of
        tiles that share rows of a matrix; sums of products of parts.
    lane_array_bytes, stage_bytes : int
        The same of private arrays of all lanes, and of a row between the phases of a kernel.
    streams, followed_run_bytes : int
        Places of a long array that a core reads side by side, and the length of runs that it
        fetches ahead by itself.
    prefetch_row_bytes, prefetch_light_bytes, prefetch_array_bytes : int
        Rows, rows of kernels that hardly compute, and arrays that are worth prefetching.
    prefetch_rows, prefetch_pages, prefetch_streams, prefetch_row_lines : int
        Short rows and pages that are asked for side by side, arrays read at once that leave a core
        lines to ask for, and lines of each page of a row.
    prefetch_block_bytes, prefetch_written_bytes, prefetch_vector_bytes, prefetch_far_bytes : int
        How far requests are ahead: a block of an array, lines that will be written, vectors of a
        long array, and rows of a matrix that comes from memory.
    prefetch_panel_rows, prefetch_whole_panel_rows : int
        Rows that share a copy of a panel, below which the next one is asked for: in general, and
        where units take vectors whole.
    """

    parallel_work: int = 1 << 18
    line_transfer_cycles: int = 128
    line_transfer_work: int = 10_000
    handover_ns: int = 300
    group_kernel_ns: int = 100_000
    group_gain_ns: int = 1_500
    term_rate: int = 6
    waiting_term_rate: int = 2
    step_cost: int = 2
    near_step_cost: int = 5
    whole_step_cost: int = 7
    products_in_flight: int = 8
    quotient_cycles: int = 10
    gather_cost: int = 10
    shared_result_cost: int = 5
    lane_moves: int = 2
    lane_move_bytes: int = 8
    lane_move_wait: int = 3
    lane_sum_cycles: int = 3
    lane_store_cycles: int = 2
    matrix_product_cycles: int = 16
    matrix_line_cycles: int = 8
    matrix_store_cycles: int = 160
    page_bytes: int = 4 << 10
    l2_rate: int = 32
    l3_rate: int = 16
    memory_rate: int = 8
    operation_bytes: int = 4
    far_row_rate: int = 16
    far_row_wait: int = 60
    stream_bytes: int = 32 << 20
    memory_bound_bytes: int = 4 << 20
    image_bytes: int = 160 << 10
    gradient_image_bytes: int = 96 << 10
    held_result_bytes: int = 320 << 10
    held_sum_bytes: int = 4 << 20
    lane_array_bytes: int = 128 << 10
    stage_bytes: int = 128 << 10
    streams: int = 8
    followed_run_bytes: int = 4 << 10
    prefetch_row_bytes: int = 2 << 10
    prefetch_light_bytes: int = 512
    prefetch_array_bytes: int = 8 << 20
    prefetch_rows: int = 16
    prefetch_pages: int = 4
    prefetch_streams: int = 2
    prefetch_row_lines: int = 2
    prefetch_block_bytes: int = 32 << 10
    prefetch_written_bytes: int = 256
    prefetch_vector_bytes: int = 2 << 10
    prefetch_far_bytes: int = 1 << 10
    prefetch_panel_rows: int = 384
    prefetch_whole_panel_rows: int = 192


class Target(Record):
    """One kind of device.

    Attributes
    ----------
    name : str
        Family that a user writes (``cpu``).
    arch : str
        Instruction set (``x86_64``, ``sm_90``).
    cpu : str
        Processor as LLVM names it; empty for a generic one.
    features : tuple of str
        LLVM features with their sign, sorted.
    vector_bytes : int
        Width of the vector registers that code should use, in bytes.
    vector_registers : int
        How many of them.
    whole_vectors : bool
        Whether a unit takes a vector of 512 bits whole, and half of one as long as that; where it
        does not, a vector is worked on in two halves.
    line_bytes, l1_bytes, l2_bytes, l3_bytes : int
        Cache line and capacities in bytes: L1 data and L2 of one core, L3 as shared; 0 for none.
    cores : int
        Cores that this process may use.
    memory_bytes : int
        Device memory in bytes; 0 if nobody says.
    operations : frozenset of (str, str)
        Names of the (op, dtype) that need no decomposition.
    native_conversions : frozenset of str
        Narrow floats (short names) that instructions convert from and to float32.
    emulated : frozenset of str
        Types that are computed with in words, by some hundred instructions an operation.
    style : str
        `VECTOR`: threads with registers of vectors; `SIMT`: many threads, each with one element.
    group_items, max_items, shared_bytes : int
        Of devices of threads: threads of a group, usually and at most, and bytes that a group can
        share.
    item_registers : int
        Of devices of threads: values that one thread keeps in registers, 0 for as many as a tile
        of results takes.
    ieee_extremes : bool
        Whether one instruction gives the IEEE 754 maximum, NaN and signed zeros included.
    orders : tuple of str
        Memory orders that atomic operations and fences can have among several threads.
    wide_atomics, halved_atomics : tuple of str, bool
        Scopes of memories whose elements of 64 bits atomic operations take as a whole, and whether
        sums and bits of such integers are made of two words where nobody asks what was there.
    addresses : tuple of str
        Scopes of memories that have an address.
    clocks, calls : bool
        Whether kernels read a clock, and call functions of this process.
    sources : tuple of (str, str)
        For each figure, who says so: `REPORTED`, `MEASURED` or `ASSUMED`.
    costs : CostModel
        What work takes.
    """

    name: str
    arch: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    vector_bytes: int = 16
    vector_registers: int = 16
    whole_vectors: bool = False
    line_bytes: int = 64
    l1_bytes: int = 32 << 10
    l2_bytes: int = 256 << 10
    l3_bytes: int = 0
    cores: int = 1
    memory_bytes: int = 0
    operations: frozenset[tuple[str, str]] = frozenset()
    native_conversions: frozenset[str] = frozenset()
    emulated: frozenset[str] = frozenset()
    ieee_extremes: bool = False
    style: str = VECTOR
    group_items: int = 64
    max_items: int = 256
    shared_bytes: int = 16 << 10
    item_registers: int = 0
    orders: tuple[str, ...] = ORDERS
    wide_atomics: tuple[str, ...] = SCOPES
    halved_atomics: bool = False
    addresses: tuple[str, ...] = SCOPES
    clocks: bool = True
    calls: bool = True
    sources: tuple[tuple[str, str], ...] = ()
    costs: CostModel = CostModel()

    def supports(self, op: Operation, dtype: DType) -> bool:
        """Return whether `op` on operands of `dtype` needs no decomposition.

        For a CAST, `dtype` is the narrower float of the two if there is one below 32 bits, and
        the partner is float32; every other pair goes by way of float32.
        """
        return (op.name, dtype.text) in self.operations

    def computes(self, dtype: DType) -> bool:
        """Return whether instructions of the device compute with floats of a type."""
        return self.supports(Op.ADD, dtype) and dtype.text not in self.emulated

    def without(self, operations: Iterable[Operation], dtype: DType) -> Target:
        """Return the target with operations on a type to be decomposed."""
        left = self.operations - {(op.name, dtype.text) for op in operations}
        return self.replace(operations=left)

    def lanes(self, dtype: DType) -> int:
        """Return how many elements fill a vector register."""
        return max(self.vector_bytes // dtype.itemsize, 1)

    def source(self, field: str) -> str:
        """Return who says what `field` is: reported, measured or assumed."""
        return dict(self.sources).get(field, ASSUMED)

    def fingerprint(self) -> str:
        """Return a digest of everything that changes the code made for this target.

        Memory and core counts are left out: code depends on the threads it is made for, which
        callers add.
        """
        parts = [self.name, self.arch, self.cpu, ",".join(self.features), str(self.vector_bytes),
                 str(self.vector_registers), str(self.whole_vectors), self.style,
                 *([str(self.item_registers)] if self.item_registers else []),
                 f"{self.group_items},{self.max_items},{self.shared_bytes}", ",".join(self.orders),
                 ",".join(self.wide_atomics), ",".join(self.addresses),
                 f"{self.halved_atomics},{self.clocks},{self.calls}",
                 ",".join(sorted(self.native_conversions)), ",".join(sorted(self.emulated)),
                 f"{self.line_bytes},{self.l1_bytes},{self.l2_bytes},{self.l3_bytes}",
                 ",".join(map(str, self.costs.values()))]
        parts += [f"{op}:{d}" for op, d in sorted(self.operations)]
        return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


_EVERYWHERE: Final = (Op.CONST, Op.VAR, Op.VARIABLE, Op.WHERE, Op.CAST, Op.BITCAST, Op.BROADCAST,
                      Op.EXTRACT, Op.HALF, Op.REVERSE, Op.SLIDE, Op.SHUFFLE,
                      Op.BITS, Op.WORDS, Op.UNLIKELY)  # fmt: skip
# Rows that hardware with IEEE floats and the usual integer units has.
_FLOAT: Final = (Op.NEG, Op.ABS, Op.SQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.ADD, Op.SUB,
                 Op.MUL, Op.DIV, Op.COPYSIGN, Op.MIN, Op.MAX, Op.LT, Op.LE, Op.EQ, Op.NE, Op.MAD,
                 Op.FMOD, Op.RAMP)  # fmt: skip
_INTEGER: Final = (Op.NEG, Op.NOT, Op.ABS, Op.POPCOUNT, Op.CLZ, Op.ADD, Op.SUB, Op.MUL,
                   Op.FLOORDIV, Op.MOD, Op.FMOD, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.SHL,
                   Op.SHR, Op.MULHI, Op.LT, Op.LE, Op.EQ, Op.NE, Op.RAMP, Op.PLACES)  # fmt: skip
_BOOL: Final = (Op.NOT, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.LT, Op.LE, Op.EQ, Op.NE)


def native_operations(
    floats: Iterable[DType] = (dt.float32, dt.float64), without: Iterable[Operation] = (),
    dots: Iterable[Operation] = (), scales: bool = False, packs: Iterable[DType] = (),
    numbers: bool = False, tables: bool = False,
) -> frozenset[tuple[str, str]]:
    """Return the table of an ordinary processor: integers of every width, and `floats`.

    What is left to decompositions on every device: the transcendental functions, integer POW,
    FLOORDIV and MOD of floats, RSQRT, RECIPROCAL, SIGMOID and arithmetic on narrow floats. The
    dot products that instructions of the processor compute are given as `dots`;
    `scales` says whether one multiplies by a power of two, `packs` of which elements one brings
    chosen lanes to the front of a vector, `numbers` whether some choose between numbers and NaN,
    `tables` whether one finds numbers in tables that are in registers.
    """
    table = {(op.name, d.text) for op in _EVERYWHERE for d in dt.ALL}
    table |= {(op.name, d.text) for op in _INTEGER for d in dt.ALL if d.is_integer}
    table |= {(op.name, d.text) for op in _FLOAT for d in floats}
    table |= {(op.name, "bool") for op in _BOOL}
    table |= {(op.name, dt.uint32.text) for op in dots}
    table |= {(Op.SCALB.name, d.text) for d in floats if scales}
    table |= {(op.name, d.text) for op in (Op.MAXNUM, Op.MINNUM, Op.NANOF) for d in floats
              if numbers}
    table |= {(Op.LOOKUP.name, dt.uint32.text)} if tables else set()
    table |= {(Op.COMPRESS.name, d.text) for d in packs}
    table -= {(op.name, d.text) for op in without for d in dt.ALL}
    assert all(name in BY_NAME for name, _ in table)
    return frozenset(table)
