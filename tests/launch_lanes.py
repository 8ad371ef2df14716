"""Runs all work-items of a group at the same time, to see where each instruction accesses memory.

What `launch_costs` counts. Only what addresses, bounds and conditions depend on is computed.
"""

from collections import defaultdict

import numpy as np

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.interpret.interpret_linear import LinearCode
from weft.ir.interpret.interpret_scalar import function
from weft.ir.op import Op

ACCESSES = li.LoadInst | li.StoreInst | li.AtomicInst
FAST = {Op.ADD: "{} + {}", Op.SUB: "{} - {}", Op.MUL: "{} * {}", Op.FLOORDIV: "{} // {}",
        Op.MOD: "{} % {}", Op.LT: "{} < {}", Op.LE: "{} <= {}", Op.EQ: "{} == {}",
        Op.NE: "{} != {}", Op.AND: "{} & {}", Op.OR: "{} | {}"}  # fmt: skip


class Lanes(LinearCode):
    """Translates a launch to Python code that runs all work-items of a group at the same time.

    A value is a number if it is the same for all of them, else an array with one for each; the last
    name of `on` says which of them are where the code is. Memories that addresses depend on are
    arrays, those of items with a row for each element.
    """

    def __init__(self, kernel, items, given):
        super().__init__(kernel, {}, item=True)
        self.items, self.given = items, given
        self.private = {i.memory.name for i in kernel.code if isinstance(i, li.StorageInst)
                        and i.memory.scope != "shared"}  # fmt: skip
        self.values, self.kept = self.needed()
        self.on, self.conditions = ["on"], []
        self.objects |= {"np": np, "turns": _turns, "each": _each, "get": _get, "put": _put,
                         "lane": np.arange(items)}  # fmt: skip

    def needed(self):
        """Return the values that addresses depend on, and the memories that hold some."""
        makers, stores = {}, defaultdict(list)
        values, memories, pending = set(), set(), []
        for i in self.kernel.code:
            makers.update({v.id: i for v in i.results()})
            if isinstance(i, li.StoreInst | li.AtomicInst):
                stores[i.memory.name].append(i)
            if isinstance(i, li.Loop | li.IfBegin | li.WhileTest):
                pending += i.operands()
            elif isinstance(i, ACCESSES) and i.memory.name not in self.private:
                pending += [v for v in (i.offset, getattr(i, "mask", None)) if v is not None]
        while pending:
            value = pending.pop()
            if value.id in values:
                continue
            assert value.lanes == 1, f"addresses of vectors: {value!r}"
            values.add(value.id)
            maker = makers[value.id]
            if not isinstance(maker, li.Loop):
                pending += maker.operands()
            if isinstance(maker, ACCESSES) and maker.memory.name not in memories:
                memories.add(maker.memory.name)
                pending += [v for i in stores[maker.memory.name] for v in i.operands()]
        return values, memories

    def translate(self):
        """Return the launch as a function of a recorder, variables and registers."""
        for name in self.kept - self.private:
            if name in self.given:
                self.arrays[name] = self.object(np.ravel(self.given[name]))
        self.emit(f"on = np.ones({self.items}, bool)")
        for inst in self.kernel.code:
            if not isinstance(inst, li.Compute | li.VariableInst | li.SpecialInst) or (
                    inst.result.id in self.values):  # fmt: skip
                handler = HANDLERS.get(type(inst))
                if handler is not None:
                    handler(self, inst)
        self.emit("note.barrier()")
        return self.compile(self.kernel.name, ["note", "variables", "registers"])

    def operation(self, op, operand, result, lanes, attr, args):
        if op is Op.CONST:
            return super().operation(op, operand, result, lanes, attr, args)
        if op in FAST and operand in (dt.int64, dt.bool_):
            return FAST[op].format(*args)
        fn = self.object(function(op, operand, result), (op, operand, result))
        return f"each({fn}, {kind_of(result)}, {', '.join(args)})"

    def access(self, inst):
        """Note an access, and carry it out if addresses depend on it."""
        name, on = inst.memory.name, self.on[-1]
        mask = getattr(inst, "mask", None)
        held = name in self.kept
        if name in self.private and not held:
            return
        offset = self.use(inst.offset)
        if mask is not None:
            on = self.fresh("on")
            self.emit(f"{on} = {self.on[-1]} & {self.use(mask)}")
        if name not in self.private:
            lanes = (inst.value if isinstance(inst, li.StoreInst) else inst.result).lanes
            for kind, types in (("loads", li.LoadInst | li.AtomicInst),
                                ("stores", li.StoreInst | li.AtomicInst)):  # fmt: skip
                if isinstance(inst, types):
                    kind = "shared" if inst.memory.scope == "shared" else kind
                    key = inst.memory, kind, lanes
                    self.emit(f"note({self.object(key, key)}, {offset}, {on})")
        if not held:
            return
        assert name in self.arrays, f"addresses depend on what is in {name}"
        assert not isinstance(inst, li.AtomicInst), f"addresses depend on an atomic of {name}"
        place = f"{offset} * {self.items} + lane" if name in self.private else offset
        if isinstance(inst, li.StoreInst):
            self.emit(f"put({self.arrays[name]}, {place}, {self.use(inst.value)}, {on})")
        elif inst.result.id in self.values:
            fill = "0" if inst.fill is None else self.use(inst.fill)
            self.emit(f"{self.define(inst.result)} = "
                      f"get({self.arrays[name]}, {place}, {on}, {fill})")

    def storage(self, inst):
        name = inst.memory.name
        if name in self.kept:
            assert inst.base is None, f"{name} lies over other memory"
            count = inst.size * (self.items if name in self.private else 1)
            self.arrays[name] = self.fresh("m")
            self.emit(f"{self.arrays[name]} = "
                      f"np.zeros({count}, {kind_of(inst.memory.dtype)})")

    def barrier(self, _):
        self.emit("note.barrier()")

    def loop(self, inst):
        begin = "0" if inst.begin is None else self.use(inst.begin)
        step = "1" if inst.step is None else self.use(inst.step)
        on = self.fresh("on")
        self.begin(f"for {self.define(inst.var)}, {on} in "
                   f"turns({begin}, {self.use(inst.extent)}, {step}, {self.on[-1]}):")
        self.on.append(on)

    def while_begin(self, _):
        on = self.fresh("on")
        self.emit(f"{on} = {self.on[-1]}")
        self.begin("while True:")
        self.on.append(on)

    def while_test(self, inst):
        self.emit(f"{self.on[-1]} = {self.on[-1]} & {self.use(inst.condition)}")
        self.emit(f"if not np.any({self.on[-1]}): break")

    def end_block(self, _):
        self.on.pop()
        self.end()

    def if_begin(self, inst):
        self.conditions.append(self.use(inst.condition))
        self.branch(self.conditions[-1])

    def branch(self, condition):
        on = self.fresh("on")
        self.emit(f"{on} = {self.on[-1]} & {condition}")
        self.emit(f"if np.any({on}):")
        self.indent += 1
        self.emit("pass")
        self.on.append(on)

    def orelse(self, _):
        self.leave()
        self.branch(f"np.logical_not({self.conditions[-1]})")

    def end_if(self, _):
        self.leave()
        self.conditions.pop()

    def leave(self):
        self.on.pop()
        self.indent -= 1


HANDLERS = {
    li.Compute: LinearCode._compute, li.VariableInst: LinearCode._variable,
    li.SpecialInst: LinearCode._special, **dict.fromkeys(ACCESSES.__args__, Lanes.access),
    li.StorageInst: Lanes.storage, li.BarrierInst: Lanes.barrier, li.Loop: Lanes.loop,
    li.EndLoop: Lanes.end_block, li.WhileBegin: Lanes.while_begin,
    li.WhileTest: Lanes.while_test, li.EndWhile: Lanes.end_block, li.IfBegin: Lanes.if_begin,
    li.Else: Lanes.orelse, li.EndIf: Lanes.end_if,
}  # fmt: skip


def kind_of(dtype):
    """Return the type of arrays that hold values of a type."""
    return "bool" if dtype.is_bool else "float" if dtype.is_float else "np.int64"


# what generated code calls


def _turns(begin, extent, step, on):
    """Yield the values of a loop's variable, and which items are in that iteration."""
    if not any(isinstance(x, np.ndarray) for x in (begin, extent, step)):
        for at in range(begin, extent, step):
            yield at, on
        return
    at, on = begin + np.zeros_like(on, np.int64), on & (begin < extent)
    while on.any():
        yield at, on
        at = at + step
        on = on & (at < extent)


def _each(fn, kind, *args):
    """Return an operation on numbers, or on those of each item."""
    if not any(isinstance(a, np.ndarray) for a in args):
        return fn(*args)
    return np.array([fn(*row) for row in zip(*(a.tolist() for a in np.broadcast_arrays(*args)),
                                             strict=True)], kind)  # fmt: skip


def _get(memory, places, on, fill):
    places = np.where(on, places, 0)
    return np.where(on, memory[places], fill)


def _put(memory, places, values, on):
    places, values, on = np.broadcast_arrays(places, values, on)
    memory[places[on]] = values[on]
