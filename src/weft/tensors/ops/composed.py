"""Methods composed of others, under PyTorch's names: parts, products, queries, new tensors."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import Any, Self, cast

from weft.errors import AxisError, DTypeError, RangeError, ShapeError, UnsupportedError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.tensors.core import views
from weft.tensors.core.arguments import check_rank, check_tensor, count_of, items_of
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import broadcast_shapes
from weft.tensors.core.strides import steps_to
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.write_lock import every_write
from weft.tensors.docs.composed_sections import COMPOSED
from weft.tensors.docs.documented import documented
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.movement import ints
from weft.tensors.ops.searching import Searching

__all__ = ["Composed"]


@every_write
class Composed(Searching):
    """What is written with a few other methods."""

    __slots__ = ()

    def fliplr(self) -> Self:
        """Return the columns in reverse order."""
        check_rank(self, 2, "fliplr")
        return self.flip(1)

    def flipud(self) -> Self:
        """Return the rows in reverse order."""
        check_rank(self, 1, "flipud")
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Return a plane turned by right angles, from the first of its axes towards the second."""
        a, b = (self._axis(d, "rot90") for d in items_of(dims, "rot90"))
        if a == b:
            raise AxisError("rot90", found=f"axis {a} twice", expected="two axes")
        turns = infer.as_int(k, "rot90") % 4
        if turns == 2:
            return self.flip(a, b)
        if turns == 1:
            return self.transpose(a, b).flip(a)
        return self.flip(a).transpose(a, b) if turns else self.clone()

    def swapdims(self, dim0: int, dim1: int) -> Self:
        """Return the tensor with two axes exchanged."""
        return self.transpose(dim0, dim1)

    def adjoint(self) -> Self:
        """Return each matrix transposed: elements are real."""
        return self.mT

    def hsplit(self, sections: Any) -> tuple[Self, ...]:
        """Return parts of axis 1 (axis 0 of a vector), all of one size, or cut at places."""
        check_rank(self, 1, "hsplit")
        axis = 1 if len(self.shape) > 1 else 0
        if isinstance(sections, int) and sections > 0 and self.shape[axis] % sections:
            raise ShapeError("hsplit", found=f"{self.shape[axis]} elements in {sections} parts",
                             expected="parts of equal size")
        return self.tensor_split(sections, axis)

    def vsplit(self, sections: Any) -> tuple[Self, ...]:
        """Return parts of axis 0, all of one size, or cut at places."""
        check_rank(self, 2, "vsplit")
        axis = 0
        if isinstance(sections, int) and sections > 0 and self.shape[axis] % sections:
            raise ShapeError("vsplit", found=f"{self.shape[axis]} elements in {sections} parts",
                             expected="parts of equal size")
        return self.tensor_split(sections, axis)

    def diagflat(self, offset: int = 0) -> Self:
        """Return the elements, flattened, on a diagonal of a matrix."""
        return self.ravel().diag_embed(offset)

    def as_strided(self, size: Sequence[int], stride: Sequence[int],
                   storage_offset: int | None = None) -> Self:  # fmt: skip
        """Return a view by strides of the memory that this tensor shares."""
        sizes = infer.check_shape(ints((tuple(size),), "as_strided"), "as_strided")
        steps = tuple(count_of(s, "as_strided", 0) for s in items_of(stride, "as_strided"))
        if len(sizes) != len(steps):
            raise ShapeError("as_strided", found=f"{len(steps)} strides for {len(sizes)} axes",
                             expected="one for each")
        start = self.storage_offset() if storage_offset is None else storage_offset
        start = count_of(start, "as_strided", 0)
        base = self._whole_memory()
        last = start + sum((int(n) - 1) * s for n, s in zip(sizes, steps, strict=True))
        if 0 not in sizes and last >= base.shape[0]:
            raise ShapeError("as_strided", found=f"element {last} of {base.shape[0]}",
                             expected="a view within the memory")
        if 0 in sizes:
            return base.narrow(0, 0, 0)._view(views.Reshape(sizes))
        plain = tuple(int(n) for n in sizes)
        if steps_to(plain, 0, steps) is not None:
            return base._view(views.Strided(plain, start, steps))
        return self._wrap(infer.contiguous(
            infer.strided(base._read(), plain, start, steps)), base)

    def index_put(self, indices: Sequence[Any], values: object, accumulate: bool = False) -> Self:
        """Return the tensor with `values` written (or added) at integer indices."""
        return self.clone().index_put_(indices, values, accumulate)

    def put(self, index: object, source: object, accumulate: bool = False) -> Self:
        """Return the tensor with elements written at places in row-major order."""
        places = as_operand(self, index).ravel()
        new = self._of_own_type(source, "put").ravel()
        if new.shape != places.shape:
            raise ShapeError("put", found=f"{new.shape[0]} elements for {places.shape[0]} places",
                             expected="as many of each")
        flat = self.clone().ravel()
        return flat.index_put_((places,), new, accumulate).reshape(self.shape)

    def put_(self, index: object, source: object, accumulate: bool = False) -> Self:
        """Write elements at places in row-major order."""
        return self._update(self.put(index, source, accumulate), "put_")

    def select_scatter(self, src: object, dim: int, index: int) -> Self:
        """Return the tensor with `src` in place of one slice of an axis."""
        out = self.clone()
        out.select(dim, index).copy_(src)
        return out

    def slice_scatter(self, src: object, dim: int = 0, start: int | None = None,
                      end: int | None = None, step: int = 1) -> Self:
        """Return the tensor with `src` in place of a slice ``start:end:step`` of an axis."""
        axis = self._axis(dim, "slice_scatter")
        out = self.clone()
        out[(slice(None),) * axis + (slice(start, end, step),)] = src
        return out

    def diagonal_scatter(self, src: object, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return the tensor with `src` on a diagonal."""
        out = self.clone()
        out.diagonal(offset, dim1, dim2).copy_(src)
        return out

    def fill_diagonal_(self, fill_value: Scalar, wrap: bool = False) -> Self:
        """Set the main diagonal to a number."""
        check_rank(self, 2, "fill_diagonal_")
        if wrap or len(self.shape) > 2:
            raise UnsupportedError("fill_diagonal_", found="wrap or more than two axes",
                                   expected="a matrix")
        self.diagonal().fill_(fill_value)
        return self

    def _like(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options of a new tensor, with this tensor's dtype and device unless given."""
        options.setdefault("device", self._home())
        return options if options.get("dtype") is not None else {**options, "dtype": self.dtype}

    def inner(self, other: object) -> Self:
        """Return sums of products over the last axis of both."""
        second = as_operand(self, other)
        if not self.shape or not second.shape:
            return self.mul(second)
        return self.tensordot(second, ([-1], [-1]))

    def ger(self, other: object) -> Self:
        """Return the outer product of vectors."""
        return self.outer(other)

    def addmv(self, mat: object, vec: object, *, beta: Scalar = 1, alpha: Scalar = 1) -> Self:
        """Return ``beta * self + alpha * (mat @ vec)``."""
        product = as_operand(self, mat).mv(vec)
        return self.mul(beta).add(product, alpha=alpha)

    def addr(self, vec1: object, vec2: object, *, beta: Scalar = 1, alpha: Scalar = 1) -> Self:
        """Return ``beta * self + alpha * outer(vec1, vec2)``."""
        product = as_operand(self, vec1).outer(vec2)
        return self.mul(beta).add(product, alpha=alpha)

    def baddbmm(self, batch1: object, batch2: object, *, beta: Scalar = 1, alpha: Scalar = 1
                ) -> Self:  # fmt: skip
        """Return ``beta * self + alpha * (batch1 @ batch2)``, matrix by matrix."""
        product = as_operand(self, batch1).bmm(batch2)
        return self.mul(beta).add(product, alpha=alpha)

    def cross(self, other: object, dim: int = -1) -> Self:
        """Return the vector product of vectors of three elements."""
        second = as_operand(self, other)
        shape = broadcast_shapes("cross", self.shape, second.shape)
        a, b = self.expand(shape), second.expand(shape)
        axis = a._axis(dim, "cross")
        if not infer.same_dim(shape[axis], 3):
            raise ShapeError("cross", found=f"{shape[axis]} elements", expected="3")
        first = a.roll(-1, axis).mul(b.roll(-2, axis))
        return first.sub(a.roll(-2, axis).mul(b.roll(-1, axis)))

    def matrix_power(self, n: int) -> Self:
        """Return a whole power of each matrix."""
        check_rank(self, 2, "matrix_power")
        if not infer.same_dim(self.shape[-1], self.shape[-2]):
            raise ShapeError("matrix_power", found=f"{self.shape}", expected="square matrices")
        n, size = count_of(n, "matrix_power", 0), self.shape[-1]
        out, square = self._from_node(infer.full((size,), 1, self.dtype)).diag_embed().expand(
            self.shape), self
        while n:
            out, square = (out.matmul(square) if n & 1 else out), square.matmul(square)
            n >>= 1
        return out

    def type_as(self, other: TensorCore) -> Self:
        """Return the elements converted to another tensor's dtype."""
        return self.astype(check_tensor(other, "type_as").dtype)

    def short(self) -> Self:
        """Return the elements as int16."""
        return self.astype(dt.int16)

    def char(self) -> Self:
        """Return the elements as int8."""
        return self.astype(dt.int8)

    def byte(self) -> Self:
        """Return the elements as uint8."""
        return self.astype(dt.uint8)

    def nelement(self) -> int:
        """Return the number of elements."""
        return self.numel()

    def ndimension(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def is_signed(self) -> bool:
        """Return whether elements can be negative."""
        return self.dtype.kind in "if"

    def is_complex(self) -> bool:
        """Return whether elements are complex: never."""
        return False

    def is_nonzero(self) -> bool:
        """Return whether the single element is not zero."""
        return builtins.bool(self)

    def is_same_size(self, other: TensorCore) -> bool:
        """Return whether another tensor has the same shape."""
        return self.shape == check_tensor(other, "is_same_size").shape

    def new_zeros(self, *size: Any, **options: Any) -> Self:
        """Return a tensor of zeros with this tensor's dtype."""
        return cast(Self, _weft().full(ints(size), 0, **self._like(options)))

    def new_ones(self, *size: Any, **options: Any) -> Self:
        """Return a tensor of ones with this tensor's dtype."""
        return cast(Self, _weft().full(ints(size), 1, **self._like(options)))

    def new_empty(self, *size: Any, **options: Any) -> Self:
        """Return a tensor of elements that are not set with this tensor's dtype."""
        return cast(Self, _weft().empty(ints(size), **self._like(options)))

    def new_full(self, size: Any, fill_value: Scalar, **options: Any) -> Self:
        """Return a tensor of one value with this tensor's dtype."""
        return cast(Self, _weft().full(size, fill_value, **self._like(options)))

    def new_tensor(self, data: Any, **options: Any) -> Self:
        """Return a tensor with a copy of `data` and this tensor's dtype."""
        return cast(Self, _weft().tensor(data, **self._like(options)))

    def uniform_(self, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Self:
        """Fill this tensor with uniform random numbers."""
        check_filled(self, "uniform_")
        if low > high:
            raise RangeError("uniform_", found=f"{low} to {high}", expected="a low end first")
        found = _weft().rand(*self.shape, generator=generator, dtype=self.dtype)
        return self.copy_(found.mul(high - low).add(low))

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Self:
        """Fill this tensor with normal random numbers."""
        check_filled(self, "normal_")
        if std < 0:
            raise RangeError("normal_", found=f"std={std}", expected="at least 0")
        found = _weft().randn(*self.shape, generator=generator, dtype=self.dtype)
        return self.copy_(found.mul(std).add(mean))

    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> Self:
        """Fill this tensor with 1 where a draw succeeds, else 0."""
        if isinstance(p, int | float) and not 0 <= p <= 1:
            raise RangeError("bernoulli_", found=f"p={p}", expected="0 to 1")
        return self.copy_(_weft().rand(*self.shape, generator=generator).lt(p))

    def random_(self, low: int = 0, high: int | None = None, *, generator: Any = None) -> Self:
        """Fill this tensor with random whole numbers from `low` on, below `high`."""
        if high is None:
            low, high = (0, low) if low else (0, 1 << min(self.dtype.mantissa + 1, 62) if (
                self.dtype.is_float) else min(int(self.dtype.max), (1 << 62)) + 1)
        return self.copy_(_weft().randint(low, high, self.shape, generator=generator))


documented(Composed, COMPOSED)


def check_filled(x: TensorCore, name: str) -> None:
    """Raise a DTypeError unless a tensor is of floats."""
    if not x.dtype.is_float:
        raise DTypeError(name, found=x.dtype.name, expected="a float type")




def _weft() -> Any:
    """Return the package, whose functions are made of these methods."""
    return sys.modules["weft"]
