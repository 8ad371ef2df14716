"""The primitive `tensorize`: sums of products of narrow elements as dot products of words."""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import Accumulator, Axis, Body, Kernel, Let, Load, Reduce, Stmt
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis.space import Copy, Edit, Site, ceildiv, constant, find_reduce

_GROUPS: Final[dict[Operation, int]] = {Op.DOT2: 2, Op.DOT4: 4, Op.DOT4S: 4, Op.MAD: 1}
OPERATIONS: Final[dict[str, Operation]] = {op.name: op for op in _GROUPS}
SIDES: Final = ("left", "right")
_SHIFTED: Final = 0x80808080  # four bytes of 128, or -128


def tensorize(kernel: Kernel, accumulator: str, axis: str, operation: str,
              bias: str = "left", multiple: int = 1) -> Kernel:
    """Sum the products along an axis in groups that one instruction adds ("tensorize" in TVM).

    reduce k in n (s) {s + cast.f32(a[k]) * cast.f32(b[k])}                         (a, b: bf16)
    ->  reduce k.q in n/2 (s) { let s.left  = a[2*k.q] | a[2*k.q + 1] << 16         (as bits)
                                let s.right = b[2*k.q] | b[2*k.q + 1] << 16
                                dot2(s, s.left, s.right) }

    With ``mad`` the groups are single factors: it adds products of float32 as `contract` does, and
    names the factors, so that what they are computed from can be precomputed.

    ``dot2`` takes pairs of bfloat16 and adds them to a float32; ``dot4`` takes four 8-bit integers
    and adds them to an integer of at most 32 bits. Both sides of a ``dot4`` may be signed or
    unsigned: where they are alike one of them is shifted by 128, and what that adds,

    reduce k.c in n/4 (s.bias) {dot4(s.bias, 128, s.right)},

    is subtracted behind; ``dot4s`` takes signed ones on both sides. A last group that is not full
    is filled up with zeros.

    Parameters
    ----------
    accumulator : str
        Name of the only accumulator of the REDUCE.
    axis : str
        The axis that is cut into groups.
    operation : str
        ``dot2``, ``dot4``, ``dot4s`` or ``mad``.
    bias : str
        ``left`` or ``right``: which side of a ``dot4`` is shifted if both are alike.
    multiple : int
        The number of groups becomes a multiple of it, with groups of zeros.

    Raises
    ------
    ScheduleError
        If the REDUCE is no sum of products of such elements.
    """
    what = f"tensorize({accumulator}, {axis}, {operation})"
    if operation not in OPERATIONS or bias not in SIDES or multiple < 1:
        raise ScheduleError(what, found=f"{operation}, bias={bias}, multiple={multiple}",
                            expected=f"one of {', '.join(OPERATIONS)}, a side, at least 1")
    site = find_reduce(kernel, accumulator, "tensorize")
    return _Tensorize(kernel, site, axis, OPERATIONS[operation], bias, multiple,
                      what).apply()


def narrow_factors(stmt: Reduce) -> tuple[Expr, Expr] | None:
    """Return the two narrow values whose product a REDUCE sums; None if it does not."""
    factors = factors_of(stmt)
    if factors is None:
        return None
    values = [_narrow(f, stmt.accumulators[0].var.dtype) for f in factors]
    return None if values[0] is None or values[1] is None else (values[0], values[1])


def factors_of(stmt: Reduce) -> tuple[Expr, Expr] | None:
    """Return the factors whose products a REDUCE sums, its names written out; None if none."""
    if len(stmt.accumulators) != 1:
        return None
    (acc,) = stmt.accumulators
    if acc.combine.op is not Op.ADD or set(acc.combine.args) != {st.lhs(acc.var), st.rhs(acc.var)}:
        return None
    lets: dict[Expr, Expr] = {}
    for s in stmt.body:
        if isinstance(s, Let):
            (lets[s.var],) = ex.substitute([s.value], lets)
    (update,) = ex.substitute([acc.update], lets)
    if update.op is Op.MAD and update.args[2] is acc.var:
        a, b = update.args[:2]
    elif update.op is Op.ADD and acc.var in update.args:
        term = update.args[1] if update.args[0] is acc.var else update.args[0]
        if term.op is not Op.MUL:
            return None
        a, b = term.args
    else:
        return None
    return None if acc.var in ex.free_vars([a, b]) else (a, b)


def _narrow(e: Expr, total: DType) -> Expr | None:
    """Return the narrow value that a factor was widened from, None if it was not."""
    if total.is_float:
        is_pair = total is dt.float32 and e.op is Op.CAST and e.args[0].dtype is dt.bfloat16
        return e.args[0] if is_pair else None
    if not total.is_integer or total.bits > 32:
        return None
    while e.op is Op.CAST and e.dtype.is_integer and e.dtype.bits > 8 and (
            e.args[0].dtype.is_integer):
        if e.dtype.kind == "u" and e.dtype.bits < total.bits and e.args[0].dtype.kind == "i":
            return None  # a negative number has become a large one
        e = e.args[0]
    return e if e.dtype in (dt.int8, dt.uint8) else None


class _Tensorize:
    """One tensorized REDUCE."""

    def __init__(self, kernel: Kernel, site: Site, axis: str, op: Operation, bias: str,
                 multiple: int, what: str) -> None:
        self.edit, self.site, self.stmt, self.what = Edit(kernel), site, site.reduce, what
        self.op, self.multiple = op, multiple
        known = [a.var.attr for a in self.stmt.axes]
        if axis not in known:
            raise ScheduleError(what, found=f"no axis {axis!r}",
                                expected="one of " + ", ".join(known))
        self.at = known.index(axis)
        self.axis = self.stmt.axes[self.at]
        if self.axis.kind != st.SERIAL:
            raise ScheduleError(what, found=f"the {self.axis.kind} axis {axis}",
                                expected="a serial axis")
        factors = (factors_of if op is Op.MAD else narrow_factors)(self.stmt)
        kind = dt.int32 if _GROUPS[op] == 4 else dt.float32
        total = self.stmt.accumulators[0].var.dtype
        if factors is None or (total is not kind if kind.is_float else not total.is_integer) or (
                op is Op.DOT4S and any(f.dtype is not dt.int8 for f in factors)):
            raise ScheduleError(what, found="no sum of products of narrow elements",
                                expected=f"what {op.name} computes")
        self.factors, self.kind = factors, kind
        self.acc = self.stmt.accumulators[0]
        if not all(isinstance(s, Let | Load) for s in self.stmt.body):
            raise ScheduleError(what, found="statements beside names and loads in the REDUCE",
                                expected="a body that only reads")
        self.group = _GROUPS[op]
        alike = op is Op.DOT4 and factors[0].dtype is factors[1].dtype
        self.biased = SIDES.index(bias) if alike else -1

    def apply(self) -> Kernel:
        edit, acc, name = self.edit, self.acc, str(self.acc.var.attr)
        is_same = self.biased < 0 and acc.var.dtype is self.kind
        total = acc.var if is_same else ex.var(edit.names.fresh(f"{name}.dot"), self.kind)
        init = acc.init
        if init.dtype is not self.kind:
            init = ex.cast(init, self.kind)
        made: Body = (self._sum(total, init, (0, 1), name),)
        if not is_same:
            result = total
            if self.biased >= 0:
                # What the shift of one side adds: 128 times the sum of the other.
                extra = ex.var(edit.names.fresh(f"{name}.bias"), self.kind)
                made = (self._sum(extra, ex.const(0, self.kind), (1 - self.biased,), name), *made)
                result = total - extra
            made = (*made, Let(acc.var, ex.cast(result, acc.var.dtype)))
        return edit.replace(self.site.parents, self.stmt, made)

    def _sum(self, total: Expr, init: Expr, sides: tuple[int, ...], name: str) -> Reduce:
        """Return the REDUCE that multiplies the words of one side by 128, or of both."""
        edit, axis = self.edit, self.axis
        suffix = "q" if len(sides) == 2 else "c"
        point = edit.names.index(f"{axis.var.attr}.{suffix}")
        axes = list(self.stmt.axes)
        groups = ceildiv(axis.extent, self.group * self.multiple) * self.multiple
        axes[self.at] = Axis(point, groups)
        mapping: dict[Expr, Expr] = {}
        if len(sides) == 1:
            for number, a in enumerate(axes):
                if number != self.at:
                    axes[number] = Axis(edit.names.index(f"{a.var.attr}.c"), a.extent, a.kind)
                    mapping[a.var] = axes[number].var
        body: Body = ()
        words = {}
        for side in sides:
            statements, value = self._word(side, point, mapping)
            word = ex.var(edit.names.fresh(f"{name}.{SIDES[side]}"), value.dtype)
            body += (*statements, Let(word, value))
            words[side] = word
        if len(sides) == 1:
            (side,) = sides
            words[1 - side] = ex.const(_SHIFTED, dt.uint32)
        first, second = words[0], words[1]
        if self.op is Op.DOT4 and not self._first_is_unsigned():
            first, second = second, first
        update = (ex.mad(first, second, total) if self.op is Op.MAD
                  else ex.dot(self.op, total, first, second))
        accumulator = Accumulator(total, init, update,
                                  st.lhs(total) + st.rhs(total))
        return Reduce(tuple(axes), (accumulator,), body)

    def _first_is_unsigned(self) -> bool:
        """Whether the left side stands as unsigned bytes, the biased side shifted."""
        kinds = [f.dtype is dt.uint8 for f in self.factors]
        if self.biased >= 0:
            kinds[self.biased] = not kinds[self.biased]
        return kinds[0]

    def _word(self, side: int, point: Expr, mapping: dict[Expr, Expr]) -> tuple[Body, Expr]:
        """Return the loads of one group, and the word that their bits make."""
        value = self.factors[side]
        needed = _slice(self.stmt.body, value)
        n = constant(self.axis.extent)
        bits = value.dtype.bits
        whole: Expr | None = None
        body: Body = ()
        for r in range(self.group):
            at = point * self.group + r
            copy = Copy(self.edit.locations, {**mapping, self.axis.var: at}, self.edit.names,
                        f".{r}")
            loads = copy.body(needed)
            part = copy.expr(value)
            if self.op is not Op.MAD:
                part = _bits(part)
            if (r or self.multiple > 1) and (n is None or n % (self.group * self.multiple)):
                inside = at.lt(self.axis.extent)
                loads = gd.guard(loads, inside, self.what)
                if not _reads_zero(loads, copy.expr(value)):
                    part = ex.where(inside, part, 0)
            body += loads
            if r:
                part = _raised(part, bits * r)
            whole = part if whole is None else whole | part
        assert whole is not None
        # The zeros that fill a group are shifted, too: they meet zeros of the other side.
        return body, whole ^ _SHIFTED if self.biased == side else whole


def _bits(value: Expr) -> Expr:
    """Return the bits of a narrow value at the low end of a word."""
    cast = value.args[0] if value.op is Op.BITCAST else value
    whole = cast.args[0] if cast.op is Op.CAST else value
    if cast is not value and whole.dtype is dt.uint32 and (
            value.dtype.bits + _shift(whole) == whole.dtype.bits):
        return whole  # its high end, of which a narrow value was made
    return ex.cast(ex.bitcast(value, dt.unsigned(value.dtype.bits)), dt.uint32)


def _raised(word: Expr, bits: int) -> Expr:
    """Return a word moved to its high end, so many bits up."""
    if 0 < bits == _shift(word):
        return word.args[0] & (0xFFFFFFFF >> bits << bits)
    return word << bits


def _shift(word: Expr) -> int:
    """Return by how many bits a word is moved down; 0 if it is not."""
    known = word.op is Op.SHR and word.args[1].op is Op.CONST
    return int(word.args[1].attr) if known else 0


def _slice(body: Body, value: Expr) -> Body:
    """Return the statements of a body that a value needs."""
    used = ex.free_vars([value])
    kept: list[Stmt] = []
    for stmt in reversed(body):
        if used & set(stmt.binds()):
            kept.append(stmt)
            used |= ex.free_vars(stmt.exprs())
    return tuple(reversed(kept))


def _reads_zero(body: Body, value: Expr) -> bool:
    """Whether a value is a load that gives 0 where its mask does not hold."""
    return any(isinstance(s, Load) and s.var is value and s.fill is None for s in body)
