"""What loop nests of vectors are written with: names, loops, registers, masks of lanes."""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, If, Let, Load, Memory, Stmt, Store
from weft.kernelize.common.emit import Emitter

_FIRST = (ex.index(0),)


class Writer:
    """Writes statements to an emitter, each value under a name of its own."""

    em: Emitter
    names = 0
    lanes: int

    def _number(self) -> int:
        self.names += 1
        return self.names

    def _let(self, value: Expr) -> Expr:
        var = ex.var(f"w{self._number()}", value.dtype, value.lanes)
        self.em.emit(Let(var, value))
        return var

    def _loop(self, name: str, most: int) -> Expr:
        self.em.open()
        return self.em.loop_var(f"{name}{self._number()}", most)

    def _end(self, var: Expr, extent: Expr, kind: str = SERIAL) -> None:
        body = self.em.close()
        self.em.emit(For(var, extent, kind, body))

    def _if(self, condition: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...] = ()) -> None:
        self.em.emit(If(condition, then, orelse))

    def _element(self, memory: Memory, *place: Expr) -> Expr:
        var = ex.var(f"e{self._number()}", memory.dtype)
        self.em.emit(Load(var, memory, place))
        return var

    # registers

    def _register(self, name: str, start: Expr) -> Memory:
        made = Memory(f"{name}{self._number()}", start.dtype, (ex.index(1),), "register")
        self.em.alloc(made)
        self._set(made, start)
        return made

    def _set(self, register: Memory, value: Expr) -> None:
        self.em.emit(Store(register, _FIRST, value))

    def _get(self, register: Memory) -> Expr:
        var = ex.var(f"g{self._number()}", register.dtype)
        self.em.emit(Load(var, register, _FIRST))
        return var

    # lanes

    def _every(self, value: Expr) -> Expr:
        return ex.broadcast(value, self.lanes)

    def _first_lanes(self, count: Expr) -> Expr:
        """Return a mask of so many lanes."""
        lane = ex.ramp(ex.const(0, dt.int32), self.lanes)
        return lane.lt(ex.broadcast(ex.cast(count, dt.int32), self.lanes))

    def _counted(self, flags: Expr) -> Expr:
        return self._let(ex.cast(ex.unary(Op.POPCOUNT, ex.bits(flags)), dt.int64))
