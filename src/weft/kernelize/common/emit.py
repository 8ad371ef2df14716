"""Turn the value of a node at an index into expressions and the loads they need."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr, same_dim
from weft.ir.node import Node, Shape
from weft.ir.op import Op
from weft.ir.stmt import CHECK, Alloc, Assert, Load, Location, Memory, Stmt
from weft.ir.traverse import Tally
from weft.kernelize.common import indexing
from weft.kernelize.common.cost import is_leaf
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.common.softmax import is_weight
from weft.rules.index import simplify


class Key(NamedTuple):
    """One value to be computed: a node at an index, wanted where the mask holds."""

    node: Node
    place: Index
    mask: Expr | None


Widest = dict[tuple[Node, Index], list[tuple[frozenset[Expr], Key]]]
_MANY_MASKED: Final = 64  # values under masks from which on one is sought that serves for others


class Scope:
    """A body under construction; values found in an outer scope are reused in the inner one."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.level: int = 0 if outer is None else outer.level + 1
        self.body: list[Stmt] = []
        self.values: dict[Key, Expr] = {}
        self.loads: dict[tuple[Memory, Index, Expr | None], Expr] = {}


class Emitter:
    """Builds the statements of one kernel.

    Parameters
    ----------
    sources : dict of Node to Memory
        Arrays in memory that are read: leaves and nodes stored by other kernels.
    hoist : bool
        Whether loads go to the outermost scope whose variables they use.
    """

    def __init__(self, sources: dict[Node, Memory], hoist: bool) -> None:
        self.sources = sources
        self.hoist = hoist
        Tally.passes += 1
        self.scope = Scope()
        self.env: dict[Expr, tuple[int, int]] = {}  # ranges of loop variables
        self.whole = True  # whether masks come from pictures alone, not from loops past a range
        self.locations: dict[Stmt, Location] = {}
        self.bound: dict[Node, tuple[Index, Expr]] = {}  # member reductions: place, result
        self.staged: dict[tuple[Node, Index], tuple[Memory, Index]] = {}  # row buffer, its index
        self.checks: list[Node] = []
        self.hints: tuple[tuple[str, Any], ...] = ()  # of the kernel
        self.visited: list[Key] = []
        self._home: dict[Expr, int] = {}  # level of each name
        self._redirects: dict[Key, Key] = {}  # gathers whose source element is being computed
        self._names = 0
        self._levels: dict[Expr, int] = {}
        self._simple: dict[Expr, Expr] = {}
        self._parts: dict[Expr, frozenset[Expr]] = {}
        self._widest: Widest | None = None

    def fresh(self, prefix: str, dtype: DType, level: int | None = None) -> Expr:
        """Return a new name, known from a scope level on."""
        self._names += 1
        made = ex.var(f"{prefix}{self._names}", dtype)
        self._home[made] = self.scope.level if level is None else level
        return made

    def loop_var(self, name: str, extent: int) -> Expr:
        """Return a loop variable of the current scope with its range.

        A loop that never runs keeps a range of two values: a variable known to be 0 would vanish
        from its loads, which could then leave the loop.
        """
        made = ex.var(name)
        self.env[made] = (0, extent - 1 if extent > 0 else 1)
        self._home[made] = self.scope.level
        return made

    def emit(self, stmt: Stmt) -> None:
        """Append a statement to the current scope."""
        self.scope.body.append(stmt)

    def check(self, statement: Assert, node: Node) -> None:
        """Note which node an assertion guards (the place in a user's source is the node's)."""
        self.locations[statement] = Location(CHECK, len(self.checks))
        self.checks.append(node)

    def alloc(self, memory: Memory) -> None:
        """Append an allocation to the current scope."""
        self.emit(Alloc(memory))

    def open(self) -> Scope:
        """Enter a nested scope."""
        self.scope = Scope(self.scope)
        return self.scope

    def close(self) -> tuple[Stmt, ...]:
        """Leave the scope and return its body."""
        done = self.scope
        if done.outer is None:
            raise VerifyError("kernelize", found="the outermost scope closed")
        self.scope = done.outer
        return tuple(done.body)

    def simplify(self, e: Expr) -> Expr:
        """Return an index expression simplified under the loop ranges."""
        found = self._simple.get(e)
        if found is None:
            found = self._simple[e] = simplify(e, self.env)
        return found

    def value(self, node: Node, index: Index, mask: Expr | None = None) -> Expr:
        """Return the value of `node` at `index`, emitting what must be loaded."""
        root = Key(node, tuple(self.simplify(i) for i in index), mask)
        self.whole = mask is None
        stack, masked, self._widest = [root], 0, None
        while stack:
            key = stack[-1]
            if self._known(key) is not None:
                stack.pop()
                continue
            needs = [self._wider(k) for k in self._needs(key)]
            missing = [k for k in needs if self._known(k) is None]
            if missing:
                stack.extend(missing)
                continue
            made = self._make(key, [self._get(k) for k in needs])
            if isinstance(made, Key):
                known = self._known(made)
                if known is None:
                    self._redirects[key] = made
                    stack.append(made)
                    continue
                made = known
            self.scope.values[key] = made
            self.visited.append(key)
            masked += key.mask is not mask
            if masked == _MANY_MASKED:
                self._widest = self._survey(root)
            stack.pop()
        return self._get(root)

    def _known(self, key: Key) -> Expr | None:
        scope: Scope | None = self.scope
        while scope is not None:
            found = scope.values.get(key)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def _wider(self, key: Key) -> Key:
        """Return the key that serves for one: the same value, wanted under fewer conditions."""
        if self._widest is None or key.mask is None:
            return key
        own = self._conditions(key.mask)
        return next((wide for conditions, wide in self._widest.get(key[:2], ())
                     if conditions <= own), key)  # fmt: skip

    def _survey(self, root: Key) -> Widest:
        """Return which values are wanted below one, each under the fewest conditions.

        What assigns to overlapping slices one after another would be computed under each set of
        their masks: a value that is wanted anywhere without a condition serves wherever one holds.
        """
        found: Widest = {}
        queue, number = [(0, 0, root)], 1  # by how many conditions, and the order of arrival
        while queue:
            _, _, key = heappop(queue)
            own, wide = self._conditions(key.mask), found.setdefault(key[:2], [])
            if any(conditions <= own for conditions, _ in wide):
                continue
            wide.append((own, key))
            for need in self._needs(key):
                heappush(queue, (len(self._conditions(need.mask)), number, need))
                number += 1
        return found

    def _conditions(self, mask: Expr | None) -> frozenset[Expr]:
        """Return the conditions that hold together where a mask does."""
        if mask is None:
            return frozenset()
        found = self._parts.get(mask)
        if found is None:
            joined = mask.op is Op.AND and mask.dtype.is_bool
            found = frozenset().union(*map(self._conditions, mask.args)) if joined else (
                frozenset((mask,)))
            self._parts[mask] = found
        return found

    def _get(self, key: Key) -> Expr:
        found = self._known(key)
        if found is None:
            raise VerifyError("kernelize", found=f"{key.node!r} used before it was computed")
        return found

    def _is_memory(self, node: Node, index: Index) -> bool:
        """Whether a value is read from memory at an index; what is staged is at some alone."""
        return (node in self.sources or node in self.bound or (node, index) in self.staged
                or is_leaf(node))

    def _needs(self, key: Key) -> list[Key]:
        """Return the operand values of a key."""
        node, index, mask = key
        if self._is_memory(node, index) or node.op.arity == 0:
            return []
        if node.op.group == "movement":
            where = indexing.source(node, index)
            moved = tuple(self.simplify(i) for i in where.place)
            own = self._mask(where.mask)
            stays = self._conditions(own) <= self._conditions(mask)
            inner = mask if stays else indexing.both(mask, own)
            return [Key(node.args[0], moved, inner)]
        if node.op is Op.GATHER:
            return [Key(node.args[1], index, mask)]
        return [Key(a, index, mask) for a in node.args]

    def _mask(self, mask: Expr | None) -> Expr | None:
        return None if mask is None else indexing.both(None, self.simplify(mask))

    def _make(self, key: Key, args: list[Expr]) -> Expr | Key:
        """Return the value, or the one further key it equals."""
        node, index, _ = key
        op = node.op
        if self._is_memory(node, index):
            return self._from_memory(key)
        if op is Op.CONST:
            return ex.const(node.attr, node.dtype)
        if op is Op.IOTA:
            return ex.cast(index[0], node.dtype)
        if op is Op.VARIABLE:
            return ex.make(Op.VARIABLE, dt.int64, (), node.attr)
        if op.group == "movement":
            own = self._mask(indexing.source(node, index).mask)
            if own is None:
                return args[0]
            return ex.where(own, args[0], ex.const(indexing.fill_value(node), node.dtype))
        if op is Op.GATHER:
            return self._redirects.pop(key, None) or self._gather(key, args[0])
        if op is Op.CONTIGUOUS or op is Op.DETACH:
            return args[0]
        if op is Op.CAST:
            return ex.cast(args[0], node.dtype)
        if op is Op.WHERE:
            return ex.where(args[0], args[1], args[2])
        if not op.is_elementwise:
            raise VerifyError("kernelize", found=f"{node!r} inside a kernel of another kind",
                              expected="a value that can be computed element by element")
        if is_weight(node):
            return args[0] * (1.0 / args[1])  # once for each row, and a tenth of a division's time
        return ex.make(op, node.dtype, tuple(args))

    def _gather(self, key: Key, position: Expr) -> Key:
        node, index, mask = key
        axis = node.attr.axis
        dim = as_expr(node.args[0].shape[axis])
        at = ex.cast(position, dt.int64)
        inside = ex.const(0, dt.int64).le(at) & at.lt(dim)
        if at.op is Op.CONST or self.simplify(inside) is not ex.const(True, dt.bool_):
            legal = inside if mask is None else inside | ~mask
            check = Assert(legal, f"{node.attr.what}: index out of range", at, dim)
            self.check(check, node)
            self.place(check, legal)
        source = list(index)
        # The one element of an axis is read where others read it, and so computed once.
        source[axis] = at if upper_bound(node.args[0].shape[axis]) != 1 else ex.index(0)
        return Key(node.args[0], tuple(source), mask)

    def _from_memory(self, key: Key) -> Expr:
        node, index, mask = key
        if node in self.bound:
            place, result = self.bound[node]
            if index != place:
                raise VerifyError("kernelize", found=f"{node!r} read at {index}",
                                  expected=f"the row index {place}")
            return result
        if (node, index) in self.staged:
            memory, at = self.staged[node, index]
            return self._load(memory, at, None)
        base = node
        while base not in self.sources and base.op is Op.RESHAPE:
            index = indexing.source(base, index).place
            base = base.args[0]
        memory = self.sources[base]
        index = tuple(self.simplify(i) for i in index)
        if not _same_sizes(memory.shape, base.shape):
            position = indexing.flatten(index, base.shape)
            sizes: Shape = tuple(memory.shape)
            index = tuple(self.simplify(i) for i in indexing.unflatten(position, sizes))
        return self._load(memory, index, mask)

    def _load(self, memory: Memory, index: Index, mask: Expr | None) -> Expr:
        if mask is not None and self.whole and self._everywhere(memory, index, mask):
            mask = None
        found = (memory, index, mask)
        scope: Scope | None = self.scope
        while scope is not None:
            if found in scope.loads:
                return scope.loads[found]
            scope = scope.outer
        target = self._scope_of((*index, *(() if mask is None else (mask,))), memory)
        name = self.fresh("v", memory.dtype, target.level)
        target.body.append(Load(name, memory, index, mask))
        target.loads[found] = name
        return name

    def _everywhere(self, memory: Memory, index: Index, mask: Expr) -> bool:
        """Whether an element is there whatever the mask says, which the place does not depend on.

        A parameter of a padded picture is one of all its windows, and so is what is made of it.
        """
        if ex.free_vars(index) & ex.free_vars([mask]):
            return False
        zero, true = ex.const(0, dt.int64), ex.const(True, dt.bool_)
        return all(self.simplify(zero.le(i) & i.lt(n)) is true
                   for i, n in zip(index, memory.shape, strict=True))

    def place(self, stmt: Stmt, *exprs: Expr) -> None:
        """Append a statement to the outermost scope that knows every name of some expressions."""
        self._scope_of(exprs, None).body.append(stmt)

    def _scope_of(self, exprs: tuple[Expr, ...], memory: Memory | None) -> Scope:
        """Return the outermost scope that knows every name of the expressions."""
        scope = self.scope
        if not self.hoist or (memory is not None and memory.scope != "global"):
            return scope
        level = max((self.level(e) for e in exprs), default=0)
        while scope.level > level and scope.outer is not None:
            scope = scope.outer
        return scope

    def level(self, e: Expr) -> int:
        """Return the level of the innermost name of an expression."""
        found = self._levels.get(e)
        if found is None:
            found = max((self._home.get(v, 0) for v in ex.free_vars([e])), default=0)
            self._levels[e] = found
        return found

    def bind(self, name: Expr, level: int | None = None) -> None:
        """Record the scope level from which a name made elsewhere is known."""
        self._home[name] = self.scope.level if level is None else level


def _same_sizes(a: tuple[Expr, ...], b: Shape) -> bool:
    return len(a) == len(b) and all(
        same_dim(x.attr if x.op is Op.CONST else x, y) for x, y in zip(a, b, strict=True)
    )
