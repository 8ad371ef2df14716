"""Contractions: matmul, einsum and what is made of them, as sums of broadcast products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op
from weft.tensors.core.arguments import check_tensor, count_of, describe, items_of
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import result_dtype
from weft.tensors.docs.documented import documented
from weft.tensors.docs.layer_sections import CONTRACTION
from weft.tensors.ops.arithmetic import as_operand, float_kind
from weft.tensors.ops.inplace_functions import InPlaceFunctions

__all__ = ["Linear", "check_one_dtype", "contract", "einsum"]

L = TypeVar("L", bound="Linear")


def contract(a: Node, b: Node, axes: Sequence[int], dtype: DType) -> Node:
    """Return ``sum(a * b)`` over `axes`; 8- and 16-bit floats multiply and add in float32."""
    wide = dt.compute_dtype(dtype)
    a, b = infer.cast(a, wide), infer.cast(b, wide)
    if wide.is_bool:
        return infer.reduce(infer.elementwise(Op.AND, a, b), "any", axes)
    return infer.cast(infer.reduce(infer.elementwise(Op.MUL, a, b), "sum", axes), dtype)


def _common(a: TensorCore, b: TensorCore) -> DType:
    dtype = result_dtype(a, b)
    return dt.float32 if dtype.is_storage_only else dtype


def check_one_dtype(x: TensorCore, weight: TensorCore, operation: str) -> None:
    """Raise a DTypeError where a layer meets an input of another type than its weight's."""
    if x.dtype is not weight.dtype:
        raise DTypeError(operation, found=f"an input of {x.dtype.name}, a weight of "
                         f"{weight.dtype.name}", expected="one dtype",
                         hint=f"convert the input, x.astype(weft.{weight.dtype.name}), or the "
                         f"layer, layer.to(weft.{x.dtype.name})")


class Linear(InPlaceFunctions):
    """Products that sum over axes."""

    __slots__ = ()

    def matmul(self, other: object) -> Self:
        """Return the matrix product; leading axes are batches and broadcast."""
        second = as_operand(self, other)
        a, b = self._read(), second._read()
        found = f"{self.shape} @ {second.shape}"
        if not self.shape or not second.shape:
            raise ShapeError("matmul", found=found, expected="at least one axis each")
        vector_a, vector_b = a.ndim == 1, b.ndim == 1
        if vector_a:
            a = infer.reshape(a, (1, *a.shape))
        if vector_b:
            b = infer.reshape(b, (*b.shape, 1))
        m, k = a.shape[-2:]
        inner, n = b.shape[-2:]
        if not infer.same_dim(k, inner):
            raise ShapeError("matmul", found=found, expected="inner sizes that agree",
                             hint=f"{k} is not {inner}")
        batch = self._batch(a.shape[:-2], b.shape[:-2], found)
        shape = (*batch, m, n, k)
        order = [*range(b.ndim - 2), b.ndim - 1, b.ndim - 2]
        b = infer.permute(b, order)
        x = infer.expand(infer.reshape(a, (*a.shape[:-2], m, 1, k)), shape)
        y = infer.expand(infer.reshape(b, (*b.shape[:-2], 1, n, k)), shape)
        out = contract(x, y, (len(shape) - 1,), _common(self, second))
        if vector_a or vector_b:
            tail = (() if vector_a else (m,)) + (() if vector_b else (n,))
            out = infer.reshape(out, (*batch, *tail))
        return self._wrap(out, second)

    def _batch(self, a: Shape, b: Shape, found: str) -> Shape:
        out: list[Dim] = []
        for i in range(max(len(a), len(b))):
            x = a[len(a) - 1 - i] if i < len(a) else 1
            y = b[len(b) - 1 - i] if i < len(b) else 1
            if not infer.same_dim(x, y) and not infer.same_dim(x, 1) and not infer.same_dim(y, 1):
                raise ShapeError("matmul", found=found, expected="batch sizes that agree or are 1")
            out.append(y if infer.same_dim(x, 1) else x)
        return tuple(reversed(out))

    def __matmul__(self, other: object) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: object) -> Self:
        return as_operand(self, other).matmul(self)

    def mm(self, other: object) -> Self:
        """Return the product of two matrices, without batches."""
        return self._ranked(other, 2, 2, "mm")

    def bmm(self, other: object) -> Self:
        """Return the products of two batches of matrices."""
        return self._ranked(other, 3, 3, "bmm")

    def mv(self, other: object) -> Self:
        """Return the product of a matrix and a vector."""
        return self._ranked(other, 2, 1, "mv")

    def dot(self, other: object) -> Self:
        """Return the inner product of two vectors."""
        return self._ranked(other, 1, 1, "dot")

    def _ranked(self, other: object, a: int, b: int, name: str) -> Self:
        second = as_operand(self, other)
        if len(self.shape) != a or len(second.shape) != b:
            raise ShapeError(name, found=f"{self.shape} and {second.shape}",
                             expected=f"{a} and {b} axes")
        return self.matmul(second)

    def vdot(self, other: object) -> Self:
        """Return the inner product of two vectors; the same as `dot`, as elements are real."""
        return self.dot(other)

    def outer(self, other: object) -> Self:
        """Return the outer product of two vectors."""
        second = as_operand(self, other)
        if len(self.shape) != 1 or len(second.shape) != 1:
            raise ShapeError("outer", found=f"{self.shape} and {second.shape}",
                             expected="two vectors", hint="ravel() flattens")
        return self.unsqueeze(1).mul(second)

    def addmm(self, a: object, b: object, *, beta: float = 1, alpha: float = 1) -> Self:
        """Return ``beta * self + alpha * (a @ b)``."""
        product = as_operand(self, a)._ranked(b, 2, 2, "addmm")
        scaled = product if alpha == 1 else product.mul(alpha)
        return scaled.add(self if beta == 1 else self.mul(beta))

    def linear(self, weight: object, bias: object = None) -> Self:
        """Return ``self @ weight.T + bias``: the affine map of the last axis."""
        w = as_operand(self, weight)
        check_one_dtype(self, w, "linear")
        if len(w.shape) == 1 and self.shape and self.shape[-1:] == w.shape:
            out = self.matmul(w)  # one result for each row
            return out if bias is None else out.add(bias)
        if len(w.shape) != 2 or not self.shape or self.shape[-1] != w.shape[1]:
            raise ShapeError("linear", found=f"{self.shape} with a weight of {w.shape}",
                             expected="a last axis as long as the weight's second")
        out = self.matmul(w.transpose(0, 1))
        return out if bias is None else out.add(bias)

    def tensordot(self, other: object, dims: int | Sequence[Sequence[int]] = 2) -> Self:
        """Return the sum of products over pairs of axes of two tensors."""
        second = as_operand(self, other)
        if isinstance(dims, int):
            count_of(dims, "tensordot", 0, min(len(self.shape), len(second.shape)))
            a = list(range(len(self.shape) - dims, len(self.shape)))
            b = list(range(dims))
        else:
            if not isinstance(dims, (tuple, list)) or len(dims) != 2:
                raise ShapeError("tensordot", found=f"dims={describe(dims)}",
                                 expected="a number of axes, or two lists of axes")
            a = [self._axis(i, "tensordot") for i in items_of(dims[0], "tensordot")]
            b = [second._axis(i, "tensordot") for i in items_of(dims[1], "tensordot")]
        if len(a) != len(b) or any(self.shape[i] != second.shape[j]
                                   for i, j in zip(a, b, strict=False)):
            raise ShapeError("tensordot", found=f"{self.shape} and {second.shape} over {a}, {b}",
                             expected="pairs of axes of equal size")
        letters = iter(range(len(self.shape) + len(second.shape)))
        left = [next(letters) for _ in self.shape]
        right = [left[a[b.index(j)]] if j in b else next(letters)
                 for j in range(len(second.shape))]  # fmt: skip
        out = [x for i, x in enumerate(left) if i not in a]
        out += [x for j, x in enumerate(right) if j not in b]
        return _pair(self, left, second, right, out)

    def kron(self, other: object) -> Self:
        """Return the Kronecker product of two tensors of equal rank."""
        b = as_operand(self, other)
        if len(self.shape) != len(b.shape):
            raise ShapeError("kron", found=f"{self.shape} and {b.shape}", expected="equal ranks")
        x = self.reshape([m for n in self.shape for m in (n, 1)])
        y = b.reshape([m for n in b.shape for m in (1, n)])
        shape = [m * n for m, n in zip(self.shape, b.shape, strict=True)]
        return x.mul(y).reshape(shape)

    def trace(self) -> Self:
        """Return the sum of the diagonal of a matrix."""
        return self.diagonal().sum(-1)

    def cosine_similarity(self, other: object, dim: int = 1, eps: float = 1e-8) -> Self:
        """Return the cosine of the angle between vectors along an axis."""
        b = as_operand(self, other)
        out = float_kind(result_dtype(self, b))
        x, y = (t.astype(dt.compute_dtype(out)) for t in (self, b))
        product = x.mul(y).sum(dim)
        size = x.norm(2, dim).maximum(eps).mul(y.norm(2, dim).maximum(eps))
        return product.div(size).astype(out)


documented(Linear, CONTRACTION)


def _pair(a: L, left: list[int], b: L, right: list[int], out: list[int]) -> L:
    """Return the sum of products of two operands with labelled axes (each label once a side)."""
    labels = out + [x for x in dict.fromkeys(left + right) if x not in out]
    sizes: dict[int, Dim] = dict(zip(left, a._read().shape, strict=True))
    for label, n in zip(right, b._read().shape, strict=True):
        known = sizes.get(label, 1)
        sizes[label] = n if infer.same_dim(known, 1) else known
    shape = tuple(sizes[x] for x in labels)
    nodes = []
    for t, own in ((a, left), (b, right)):
        present = [x for x in labels if x in own]
        node = infer.permute(t._read(), [own.index(x) for x in present])
        given = dict(zip(present, node.shape, strict=True))
        node = infer.reshape(node, tuple(given.get(x, 1) for x in labels))
        nodes.append(infer.expand(node, shape))
    dtype = _common(a, b)
    axes = tuple(range(len(out), len(labels)))
    if axes:
        return a._wrap(contract(nodes[0], nodes[1], axes, dtype), b)
    return a._wrap(infer.elementwise(
        Op.AND if dtype.is_bool else Op.MUL, infer.cast(nodes[0], dtype),
        infer.cast(nodes[1], dtype)), b)  # fmt: skip


def einsum(equation: str, *operands: L) -> L:
    """Contract operands as `weft.einsum` says, from left to right."""
    if not isinstance(equation, str):
        raise DTypeError("einsum", found=f"the equation {describe(equation)}",
                         expected="text such as 'ij,jk->ik'")
    for t in operands:
        check_tensor(t, "einsum")
    inputs, result = _parse(equation, [len(t.shape) for t in operands])
    sizes: dict[int, int] = {}
    for labels, t in zip(inputs, operands, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            known = sizes.setdefault(label, n)
            if known not in (n, 1) and n != 1:
                raise ShapeError("einsum", found=f"{equation!r} with "
                                 + " and ".join(str(o.shape) for o in operands),
                                 expected="one size for each letter")
            sizes[label] = max(known, n) if 1 in (known, n) else known
    terms = [_diagonals(t, labels) for t, labels in zip(operands, inputs, strict=True)]
    first, labels = terms[0]
    for i, (second, own) in enumerate(terms[1:], 1):
        later = {x for _, ls in terms[i + 1 :] for x in ls} | set(result)
        kept = [x for x in dict.fromkeys(labels + own) if x in later]
        if i == len(terms) - 1:
            kept = result
        first, labels = _pair(first, labels, second, own, kept), kept
    if labels != result:
        gone = [a for a, x in enumerate(labels) if x not in result]
        if gone:
            first = (first.any(gone) if first.dtype.is_bool
                     else first.sum(gone, dtype=first.dtype))  # fmt: skip
        labels = [x for x in labels if x in result]
        first = first.permute([labels.index(x) for x in result])
    return first


def _parse(equation: str, ranks: list[int]) -> tuple[list[list[int]], list[int]]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ShapeError("einsum", found=f"{len(ranks)} operands for {equation!r}",
                         expected=f"{len(parts)}")
    most = 0
    for part, rank in zip(parts, ranks, strict=True):
        if "..." in part:
            most = max(most, rank - len(part.replace("...", "")))
    inputs = []
    for part, rank in zip(parts, ranks, strict=True):
        head, dots, tail = part.partition("...")
        hidden = rank - len(head) - len(tail) if dots else 0
        if hidden < 0 or (not dots and len(head) != rank) or (not (head + tail).isalpha() and (
            head + tail
        )):
            raise ShapeError("einsum", found=f"{part!r} for an operand with {rank} axes",
                             expected="one letter an axis")
        inputs.append([*map(ord, head), *range(-hidden, 0), *map(ord, tail)])
    if arrow:
        head, dots, tail = right.partition("...")
        result = [*map(ord, head), *(range(-most, 0) if dots else ()), *map(ord, tail)]
    else:
        every = [x for labels in inputs for x in labels]
        result = [*range(-most, 0), *sorted(x for x in set(every) if x >= 0 and
                                            every.count(x) == 1)]  # fmt: skip
    known = {x for labels in inputs for x in labels}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ShapeError("einsum", found=f"the result {right!r}",
                         expected="letters of the operands, each once")
    return inputs, result


def _diagonals(t: L, labels: list[int]) -> tuple[L, list[int]]:
    """Take diagonals until each label stands once."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            if t.shape[a] != t.shape[b]:
                raise ShapeError("einsum", found=f"{t.shape}",
                                 expected=f"equal sizes on axes {a} and {b}")
            t = t.diagonal(0, a, b)
            labels = [x for i, x in enumerate(labels) if i not in (a, b)] + [label]
    return t, labels


def check_float(x: TensorCore, name: str) -> None:
    """Raise a DTypeError unless the elements are floats."""
    if not x.dtype.is_float:
        raise DTypeError(name, found=x.dtype.name, expected="a float type")


def as_pair(value: int | Sequence[int], n: int, name: str) -> tuple[int, ...]:
    """Return one number for each of `n` axes.

    Raises
    ------
    ShapeError
        If another count is given.
    """
    if not isinstance(value, (tuple, list)):
        return (infer.as_int(value, name),) * n
    value = [infer.as_int(v, name) for v in value]
    if len(value) == 1:
        return (value[0],) * n
    if len(value) != n:
        raise ShapeError(name, found=f"{tuple(value)}", expected=f"1 or {n} numbers")
    return tuple(value)
