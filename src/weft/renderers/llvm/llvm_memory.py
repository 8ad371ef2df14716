"""Memory access of the LLVM renderer: loads, stores, masks, gathers, what may alias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import LinearKernel, Value
from weft.ir.op import MATRICES, Op, Operation
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.llvm.llvm_types import Module, splat, stored, suffix, vector
from weft.target import STACK_BYTES

if TYPE_CHECKING:
    from weft.renderers.llvm import llvm_dot
    from weft.renderers.llvm.llvm_types import FunctionWriter
else:
    llvm_dot = Late("weft.renderers.llvm.llvm_dot")

__all__ = ["Memories", "address", "displace", "from_memory", "load", "prefetch", "stack_bytes",
           "store", "to_memory"]

_ACCESSES: Final = (li.LoadInst, li.StoreInst)
_FAR: Final = 1 << 48  # elements, more than any array has
_MATRIX: Final = (256, 4)  # lanes and their bytes
_MOVED: Final = (Op.SHUFFLE, Op.REVERSE, Op.SLIDE)  # what takes lanes to other lanes


class Memories:
    """The memories of a kernel: their slots, and which of them cannot overlap.

    Parameters of kernels made from graphs never overlap: the host program allocates outputs
    afresh. A kernel that a user wrote (kind ``custom``) says so with the hint ``noalias``.
    """

    def __init__(self, module: Module, kernel: LinearKernel) -> None:
        self.module = module
        self.slots = {m.name: i for i, m in enumerate(kernel.params)}
        hints = dict(kernel.meta.hints)
        self.noalias = bool(hints.get("noalias", kernel.meta.kind != "custom"))
        code = _Code(kernel)
        touched = dict.fromkeys(i.memory.name for i in code.accesses)
        self.whole = _whole(code)
        self.flags = _flags(code)
        self.sums = _sums(code)
        self.read_as_tiles = _read_as_tiles(code)
        self.factors = _factors(code, module.target.l1_bytes)
        self.places = {i.result.id: i for i in code.computed(Op.PLACES)}
        changed = {i.memory.name for i in code.stores} | {i.memory.name for i in code.atomics}
        self.changed = changed if self.noalias else {m.name for m in kernel.params} | changed
        self.scopes: dict[str, str] = {}
        lies_over = {i.memory.name: i.base.name for i in code.storages if i.base is not None}
        if self.noalias and code.stores and len(touched) > 1:
            domain = module.node('!{!"kernel"}')
            nodes: dict[str, str] = {}
            for name in touched:
                own = lies_over.get(name, name)
                if own not in nodes:
                    nodes[own] = module.node(f'!{{!"{_plain(own)}", {domain}}}')
                self.scopes[name] = nodes[own]
        self.tags: dict[str, str] = {}

    def slot(self, mem: Memory) -> int:
        """Return the position of a parameter."""
        return self.slots[mem.name]

    def tag(self, mem: Memory) -> str:
        """Return the metadata of an access to `mem`, with a comma in front, or nothing."""
        if mem.name not in self.scopes:
            return ""
        found = self.tags.get(mem.name)
        if found is None:
            mine = self.scopes[mem.name]
            others = ", ".join(dict.fromkeys(s for s in self.scopes.values() if s != mine))
            own = self.module.node(f"!{{{self.scopes[mem.name]}}}")
            rest = self.module.node(f"!{{{others}}}")
            found = self.tags[mem.name] = f", !alias.scope {own}, !noalias {rest}"
        return found


class _Code:
    """The instructions of a kernel that are about memory, and its computations by operation.

    Found in one pass, because much is asked of them; each list is in program order.
    """

    def __init__(self, kernel: LinearKernel) -> None:
        self.params = kernel.params
        self.by_operation: dict[Operation, list[li.Compute]] = {}
        self.accesses: list[li.LoadInst | li.StoreInst] = []
        self.atomics: list[li.AtomicInst] = []
        self.storages: list[li.StorageInst] = []
        for inst in kernel.code:
            if isinstance(inst, li.Compute):
                self.by_operation.setdefault(inst.op, []).append(inst)
            elif isinstance(inst, _ACCESSES):
                self.accesses.append(inst)
            elif isinstance(inst, li.StorageInst):
                self.storages.append(inst)
            elif isinstance(inst, li.AtomicInst):
                self.atomics.append(inst)
        self.loads = [i for i in self.accesses if isinstance(i, li.LoadInst)]
        self.stores = [i for i in self.accesses if isinstance(i, li.StoreInst)]

    def computed(self, *operations: Operation) -> list[li.Compute]:
        """Return the computations of some operations, those of one after those of another."""
        return [i for op in operations for i in self.by_operation.get(op, ())]

    def zeros(self) -> set[int]:
        """Return the constants 0."""
        return {i.result.id for i in self.computed(Op.CONST) if i.attr == 0}


def _whole(code: _Code) -> dict[int, Value]:
    """Return masked loads of all lanes or none whose lanes are moved, with their conditions.

    LLVM takes such a load, which reads nothing where its mask does not hold, into the shuffle
    after it if a choice by the same mask follows. But a masked shuffle reads all of its operand.
    """
    same = {i.result.id: i.args[0] for i in code.computed(Op.BROADCAST) if i.args[0].lanes == 1}
    if not same:
        return {}
    moved = {a.id for i in code.computed(*_MOVED) for a in i.args}
    return {i.result.id: same[i.mask.id] for i in code.loads
            if i.mask is not None and i.mask.id in same and i.result.id in moved
            and i.offset.lanes == 1 and i.fill is None}


def _flags(code: _Code) -> set[str]:
    """Return registers of bools that are always read and written whole: they hold bits.

    As bytes they would be turned into a mask at each use, and back.
    """
    sizes = {i.memory.name: i.size for i in code.storages
             if i.memory.scope == "register" and i.memory.dtype.is_bool}
    if not sizes:
        return set()
    zero = code.zeros()
    partly = {i.memory.name for i in code.atomics}
    for inst in code.accesses:
        name = inst.memory.name
        if name not in sizes:
            continue
        value = inst.result if isinstance(inst, li.LoadInst) else inst.value
        if inst.mask is not None or inst.offset.id not in zero or value.lanes != sizes[name]:
            partly.add(name)
    return sizes.keys() - partly


def _sums(code: _Code) -> set[str]:
    """Return the memories that hold sums of products of bfloat16 alone, which are never subnormal.

    The instructions for those products flush their results.
    """
    found = {i.result.id for i in code.computed(Op.DOT2, Op.MATRIX2)}
    if not found:
        return set()
    found |= code.zeros()
    known: set[str] = set()
    others = {i.memory.name for i in code.atomics}
    others |= {i.base.name for i in code.storages if i.base is not None}
    others |= {m.name for m in code.params}
    for _ in range(2):  # those that products are stored to, and their copies
        wrong = others | {s.memory.name for s in code.stores if s.value.id not in found}
        known = {s.memory.name for s in code.stores} - wrong
        found |= {i.result.id for i in code.loads if i.memory.name in known and i.fill is None}
    return known


def _read_as_tiles(code: _Code) -> set[str]:
    """Return the memories whose elements are factors of products of matrices."""
    factors = {a.id for i in code.computed(*MATRICES) for a in i.args[1:]}
    return {i.memory.name for i in code.loads if i.result.id in factors} if factors else set()


def _factors(code: _Code, near: int) -> dict[str, bool]:
    """Return the memories of factors that are read as tiles, and whether past the first cache.

    Those that the first cache cannot keep are read past it, and leave their place in it to those
    that it can. Not where each result of a step has several products: some of their factors are
    read again in the same step.
    """
    products = {i.result.id for i in code.computed(*MATRICES)}
    if not products:
        return {}
    results = {(i.memory.name, i.offset.id) for i in code.stores if i.value.id in products}
    several = len(results) < len(products)
    read = _read_as_tiles(code)
    return {i.memory.name: not several for i in code.storages
            if i.memory.name in read and i.memory.scope == "local"
            and (several or i.size * i.memory.dtype.itemsize > near)}


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


def stack_bytes(allocas: list[str], inst: li.StorageInst) -> tuple[int, bool]:
    """Return the bytes of a private array, in whole cache lines, and whether the stack has them.

    Small ones find room there although large ones come first: LLVM makes registers of them.
    """
    size = max(-(-inst.size * inst.memory.dtype.itemsize // 64) * 64, 64)
    total = size + sum(int(a.partition("[")[2].partition(" ")[0]) for a in allocas)
    small = size <= STACK_BYTES // 8
    return size, total <= STACK_BYTES + (STACK_BYTES // 2 if small else 0)


def address(w: FunctionWriter, mem: Memory, base: str, offset: Value, inside: bool) -> str:
    """Return the address (or vector of addresses) of an element offset.

    Addresses that lie constants apart begin at one pointer: then neither those constants nor what
    is added to them are added up for each, in registers of their own.
    """
    if offset.id in w.displaced:
        start, distance = w.displaced[offset.id]
        within = inside and distance >= 0 and ranges.of(w.module.ranges, start)[0] >= 0
        first = address(w, mem, base, start, within)
        if first != base and w.module.hides:
            first = _hidden(w, first)
        return _element(w, mem, first, f"i64 {distance}", within)
    text = w.ref(offset)
    if offset.lanes == 1 and text == "0":
        return base
    return _element(w, mem, base, w.typed(offset), inside)


def _element(w: FunctionWriter, mem: Memory, base: str, offset: str, inside: bool) -> str:
    pointer = "inbounds " if inside else ""
    return w.once(f"getelementptr {pointer}{stored(mem.dtype)}, ptr {base}, {offset}")


def _hidden(w: FunctionWriter, pointer: str) -> str:
    """Return the same pointer without its origin, which costs no instruction of the machine.

    LLVM asks for each address how it changes with each loop around. For those that lie constants
    apart it asks once so, and finds the same: that was up to a tenth of its time.
    """
    name = "llvm.launder.invariant.group.p0"
    w.module.declare(f"declare ptr @{name}(ptr)")
    return w.once(f"call ptr @{name}(ptr {pointer})")


def displace(w: FunctionWriter, inst: li.Compute) -> bool:
    """Leave the sum of an index and a constant to its uses, nearly all of which are addresses."""
    if inst.op is not Op.ADD or inst.result.dtype is not dt.int64 or inst.result.lanes > 1:
        return False
    start, more = inst.args
    distance = w.module.numbers.get(more.id)
    if distance is None or start.id in w.module.literals:
        return False
    start, before = w.displaced.get(start.id, (start, 0))
    if abs(before + distance) >= _FAR:
        return False
    w.displaced[inst.result.id] = start, before + distance
    return True


def to_memory(w: FunctionWriter, value: Value) -> str:
    """Return the operand text of a value as it lies in memory."""
    if value.dtype.kind != "b":
        return w.ref(value)
    return w.new(f"zext {w.typed(value)} to {vector('i8', value.lanes)}")


def from_memory(w: FunctionWriter, text: str, value: Value) -> str:
    """Return the register text of what was read; any byte but 0 is true."""
    if value.dtype.kind != "b":
        return text
    zero = splat("i8", value.lanes, "0")
    return w.new(f"icmp ne {vector('i8', value.lanes)} {text}, {zero}")


def _mask(w: FunctionWriter, mask: Value | None) -> str | None:
    """Return the operand text of a mask, None if it always holds."""
    if mask is None or w.module.numbers.get(mask.id) is True:
        return None
    return w.ref(mask)


def load(w: FunctionWriter, memories: Memories, inst: li.LoadInst, base: str) -> None:
    """Write a load of any form."""
    value, mem = inst.result, inst.memory
    if mem.name in memories.flags:
        w.names[value.id] = w.new(f"load {vector('i1', value.lanes)}, ptr {base}")
        return
    mask = _mask(w, inst.mask)
    kind = vector(stored(mem.dtype), value.lanes)
    zero = "0" if stored(mem.dtype)[0] == "i" else "0.0"
    if inst.fill is not None:
        fill = to_memory(w, inst.fill)
    else:
        fill = zero if value.lanes == 1 else "zeroinitializer"
    tag = memories.tag(mem)
    pitched = memories.places.get(inst.offset.id)
    if pitched is not None and mask is None and mem.name in memories.read_as_tiles:
        at = address(w, mem, base, pitched.args[0], True)
        text = llvm_dot.load_matrix(w, at, False, pitched.attr * mem.dtype.itemsize)
    elif inst.offset.lanes > 1:
        at = address(w, mem, base, inst.offset, mask is None)
        text = _gather(w, value, kind, at, mask, fill, mem, tag)
    elif mask is None:
        at = address(w, mem, base, inst.offset, True)
        if mem.name in memories.factors and (value.lanes, mem.dtype.itemsize) == _MATRIX:
            text = llvm_dot.load_matrix(w, at, memories.factors[mem.name])
        else:
            text = w.new(f"load {kind}, ptr {at}, align {mem.dtype.itemsize}{tag}")
    elif value.id in memories.whole:
        at = address(w, mem, base, inst.offset, False)
        zeros = f"@zeros.{suffix(stored(mem.dtype), value.lanes)}"
        w.module.declare(f"{zeros} = private unnamed_addr constant [{value.lanes} x "
                         f"{stored(mem.dtype)}] zeroinitializer, align 64")
        at = w.new(f"select i1 {w.ref(memories.whole[value.id])}, ptr {at}, ptr {zeros}")
        text = w.new(f"load {kind}, ptr {at}, align {mem.dtype.itemsize}{tag}")
    elif value.lanes > 1 and inst.mask is not None and inst.mask.lanes > 1:
        at = address(w, mem, base, inst.offset, False)
        masks = vector("i1", value.lanes)
        name = f"llvm.masked.load.{suffix(stored(mem.dtype), value.lanes)}.p0"
        w.module.declare(f"declare {kind} @{name}(ptr, i32, {masks}, {kind})")
        text = w.new(f"call {kind} @{name}(ptr {at}, i32 {mem.dtype.itemsize}, {masks} {mask}, "
                     f"{kind} {fill}){tag}")
        if mem.name in memories.changed:
            # LLVM 22 joins a masked load with a choice by its mask, where the choice stands: behind
            # what is written to the same memory in between.
            text = w.new(f"freeze {kind} {text}")
    else:
        text = _guarded(w, mem, base, inst.offset, kind, mask, fill, tag)
    name = from_memory(w, text, value)
    w.names[value.id] = name
    if mem.name in memories.sums:
        w.normal.add(value.id)


def _gather(w: FunctionWriter, value: Value, kind: str, at: str, mask: str | None, fill: str,
            mem: Memory, tag: str) -> str:  # fmt: skip
    pointers, masks = vector("ptr", value.lanes), vector("i1", value.lanes)
    name = f"llvm.masked.gather.{suffix(stored(mem.dtype), value.lanes)}.v{value.lanes}p0"
    w.module.declare(f"declare {kind} @{name}({pointers}, i32, {masks}, {kind})")
    every = mask or "splat (i1 true)"
    return w.new(f"call {kind} @{name}({pointers} {at}, i32 {mem.dtype.itemsize}, {masks} {every}, "
                 f"{kind} {fill}){tag}")


def _guarded(w: FunctionWriter, mem: Memory, base: str, offset: Value, kind: str, mask: str,
             fill: str, tag: str) -> str:  # fmt: skip
    """Read under a branch: a scalar mask."""
    read, on = w.label("read"), w.label("on")
    before = w.block
    w.put(f"br i1 {mask}, label %{read}, label %{on}")
    w.begin(read)
    at = address(w, mem, base, offset, False)
    got = w.new(f"load {kind}, ptr {at}, align {mem.dtype.itemsize}{tag}")
    w.put(f"br label %{on}")
    w.begin(on)
    return w.new(f"phi {kind} [ {fill}, %{before} ], [ {got}, %{read} ]")


def store(w: FunctionWriter, memories: Memories, inst: li.StoreInst, base: str) -> None:
    """Write a store of any form."""
    value, mem = inst.value, inst.memory
    if mem.name in memories.flags:
        w.put(f"store {w.typed(value)}, ptr {base}")
        return
    mask = _mask(w, inst.mask)
    kind, size = vector(stored(mem.dtype), value.lanes), mem.dtype.itemsize
    text = to_memory(w, value)
    tag = memories.tag(mem)
    if inst.offset.lanes > 1:
        at = address(w, mem, base, inst.offset, mask is None)
        pointers, masks = vector("ptr", value.lanes), vector("i1", value.lanes)
        name = f"llvm.masked.scatter.{suffix(stored(mem.dtype), value.lanes)}.v{value.lanes}p0"
        w.module.declare(f"declare void @{name}({kind}, {pointers}, i32, {masks})")
        w.put(f"call void @{name}({kind} {text}, {pointers} {at}, i32 {size}, "
              f"{masks} {mask or 'splat (i1 true)'}){tag}")
        return
    if mask is None:
        at = address(w, mem, base, inst.offset, True)
        if w.tiles and mem.scope == "local" and (value.lanes, size) == _MATRIX:
            llvm_dot.store_matrix(w, value, at)
        elif inst.streaming and value.lanes > 1:
            # A vector of several registers is stored register by register.
            width = min(value.lanes * size, w.module.target.vector_bytes)
            _stream(w, text, kind, at, width, size, tag)
        else:
            w.put(f"store {kind} {text}, ptr {at}, align {size}{tag}")
    elif value.lanes > 1 and inst.mask is not None and inst.mask.lanes > 1:
        at = address(w, mem, base, inst.offset, False)
        masks = vector("i1", value.lanes)
        name = f"llvm.masked.store.{suffix(stored(mem.dtype), value.lanes)}.p0"
        w.module.declare(f"declare void @{name}({kind}, ptr, i32, {masks})")
        text = _apart(w, text, stored(mem.dtype), value.lanes)
        w.put(f"call void @{name}({kind} {text}, ptr {at}, i32 {size}, {masks} {mask}){tag}")
    else:
        write, on = w.label("write"), w.label("on")
        w.put(f"br i1 {mask}, label %{write}, label %{on}")
        w.begin(write)
        at = address(w, mem, base, inst.offset, False)
        w.put(f"store {kind} {text}, ptr {at}, align {size}{tag}")
        w.put(f"br label %{on}")
        w.begin(on)


def _apart(w: FunctionWriter, text: str, scalar: str, lanes: int) -> str:
    """Return a vector that a masked store does not join with what narrowed it.

    With AVX-512 LLVM 22 makes one store of a truncation and a masked store, and where the mask is
    known to hold in a single lane, a store of that lane before it was truncated: two or four times
    as many bytes as there are, past the end of the array. Bytes and words are also truncated by
    what LLVM writes arithmetic in that has no instruction of their own.
    """
    target = w.module.target
    if target.arch != "x86_64" or "-avx512f" in target.features or not (
            scalar in ("i8", "i16") or (scalar == "i32" and w.narrows)):
        return text
    bits = int(scalar[1:]) * lanes
    one, count = {16: ("half", 1), 32: ("float", 1), 64: ("double", 1)}.get(
        bits, ("float", bits // 32))
    kind, floats = vector(scalar, lanes), vector(one, count)
    cast = w.new(f"bitcast {kind} {text} to {floats}")
    held = w.intrinsic(f"llvm.arithmetic.fence.{suffix(one, count)}", floats, (floats, cast))
    return w.new(f"bitcast {floats} {held} to {kind}")


def _stream(w: FunctionWriter, text: str, kind: str, at: str, width: int, size: int,
            tag: str) -> None:  # fmt: skip
    """Write a non-temporal store, which needs an aligned address, with a plain one beside it."""
    w.streams = True
    address = w.new(f"ptrtoint ptr {at} to i64")
    low = w.new(f"and i64 {address}, {width - 1}")
    aligned = w.new(f"icmp eq i64 {low}, 0")
    past, plain, on = w.label("past"), w.label("plain"), w.label("on")
    w.put(f"br i1 {aligned}, label %{past}, label %{plain}")
    w.begin(past)
    w.put(f"store {kind} {text}, ptr {at}, align {width}, !nontemporal {w.module.nontemporal}{tag}")
    w.put(f"br label %{on}")
    w.begin(plain)
    w.put(f"store {kind} {text}, ptr {at}, align {size}{tag}")
    w.put(f"br label %{on}")
    w.begin(on)


def prefetch(w: FunctionWriter, inst: li.PrefetchInst, base: str) -> None:
    """Write a prefetch for reading into all levels."""
    # Not from one pointer: what is not in a hot loop, LLVM would add up for each of them.
    at = _element(w, inst.memory, base, w.typed(inst.offset), False)
    w.perform("llvm.prefetch.p0", ("ptr", at), ("i32", "0"), ("i32", "3"), ("i32", "1"))
