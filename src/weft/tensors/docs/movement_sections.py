"""Docstring sections of methods that move, index and order, for `weft.tensors.docs.documented`."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["GATHER", "INDEXING", "MOVEMENT", "ORDERING", "REPETITION", "STRIDES"]

STRIDES: Final[dict[str, Row]] = {
    "contiguous": ("", "same", "", """\
>>> weft.zeros(2, 3).T.contiguous().shape
(3, 2)"""),
    "stride": (
        "dim : int, optional\n    Of one axis.",
        "tuple of int, or int\n    Those of a copy in row-major order, where strides cannot say "
        "them.",
        "dim", """\
>>> weft.ones(2, 3).T.stride()
(1, 3)"""),
    "is_contiguous": ("", "bool\n    True of tensors that are no views.", "", """\
>>> weft.ones(2, 3).T.is_contiguous()
False"""),
    "storage_offset": ("", "int\n    0 of tensors that are no views.", "", """\
>>> weft.ones(2, 3)[1].storage_offset()
3"""),
}  # fmt: skip

MOVEMENT: Final[dict[str, Row]] = {
    "T": ("", "Tensor\n    A view of shape ``(n_k, ..., n_1)``.", "", """\
>>> weft.zeros(2, 3).T.shape
(3, 2)"""),
    "mT": ("", "Tensor\n    A view of shape ``(..., columns, rows)``.", "twoaxes", """\
>>> weft.zeros(4, 2, 3).mT.shape
(4, 3, 2)"""),
    "size": ("dim:size", "tuple of int, or int\n    The shape, or the size of one axis.",
        "axis", """\
>>> weft.zeros(2, 3).size()
(2, 3)
>>> weft.zeros(2, 3).size(-1)
3"""),
    "reshape": ("shape:reshape",
        "Tensor\n    A view, or a tensor with a copy; the number of elements is the same.",
        "elements", """\
>>> weft.arange(6).reshape(2, -1)
tensor([[0, 1, 2],
        [3, 4, 5]])"""),
    "view": ("shape:view",
        "Tensor\n    A view of the same memory.",
        "elements viewmemory viewtype", """\
>>> weft.arange(6).view(2, 3)
tensor([[0, 1, 2],
        [3, 4, 5]])
>>> weft.tensor([1.0]).view(weft.int32)
tensor([1065353216], dtype=weft.int32)"""),
    "reshape_as": ("other:shape", "Tensor\n    Of the shape of `other`.", "elements tensor", """\
>>> weft.arange(4).reshape_as(weft.zeros(2, 2))
tensor([[0, 1],
        [2, 3]])"""),
    "view_as": ("other:shape", "Tensor\n    A view of the shape of `other`.",
        "elements viewmemory tensor", """\
>>> weft.arange(4).view_as(weft.zeros(2, 2))
tensor([[0, 1],
        [2, 3]])"""),
    "flatten": ("start_dim end_dim",
        "Tensor\n    Whose merged axis has the product of their sizes; without axes it "
        "becomes ``(1,)``.",
        "axis", """\
>>> weft.zeros(2, 3, 4).flatten(1).shape
(2, 12)"""),
    "ravel": ("", "Tensor\n    Of shape ``(n,)``.", "", """\
>>> weft.tensor([[1, 2], [3, 4]]).ravel()
tensor([1, 2, 3, 4])"""),
    "unflatten": ("dim sizes", "Tensor\n    With `sizes` in place of the axis.", "axis sizes", """\
>>> weft.arange(6).unflatten(0, (2, -1))
tensor([[0, 1, 2],
        [3, 4, 5]])"""),
    "squeeze": ("dim:squeeze", "Tensor\n    A view; axes of other sizes stay.", "axis", """\
>>> weft.zeros(1, 3, 1).squeeze().shape
(3,)
>>> weft.zeros(1, 3, 1).squeeze(0).shape
(3, 1)"""),
    "unsqueeze": ("dim:new", "Tensor\n    A view with one more axis.", "axis", """\
>>> weft.zeros(2, 3).unsqueeze(1).shape
(2, 1, 3)"""),
    "expand": ("sizes:expand",
        "Tensor\n    A view that repeats without copying; writing to it is an error.",
        "expand", """\
>>> weft.tensor([[1], [2]]).expand(-1, 3)
tensor([[1, 1, 1],
        [2, 2, 2]])"""),
    "expand_as": ("other:shape", "Tensor\n    A view of the shape of `other`.",
        "expand tensor", """\
>>> weft.tensor([[1], [2]]).expand_as(weft.zeros(2, 2))
tensor([[1, 1],
        [2, 2]])"""),
    "broadcast_to": ("shape:target", "Tensor\n    A view of that shape.", "expand", """\
>>> weft.tensor([1, 2]).broadcast_to((2, 2))
tensor([[1, 2],
        [1, 2]])"""),
    "permute": ("dims:order",
        "Tensor\n    A view; axis ``i`` of it is axis ``dims[i]`` of this tensor.",
        "permute", """\
>>> weft.zeros(2, 3, 4).permute(2, 0, 1).shape
(4, 2, 3)"""),
    "transpose": ("dim0 dim1", "Tensor\n    A view.", "axis", """\
>>> weft.zeros(2, 3, 4).transpose(0, -1).shape
(4, 3, 2)"""),
    "swapaxes": ("axis0 axis1", "Tensor\n    A view.", "axis", """\
>>> weft.zeros(2, 3, 4).swapaxes(0, 1).shape
(3, 2, 4)"""),
    "t": ("", "Tensor\n    A view of shape ``(columns, rows)``.", "mosttwo", """\
>>> weft.tensor([[1, 2], [3, 4]]).t()
tensor([[1, 3],
        [2, 4]])"""),
    "movedim": ("source:axes destination", "Tensor\n    A view.", "movedim", """\
>>> weft.zeros(2, 3, 4).movedim(0, -1).shape
(3, 4, 2)"""),
    "moveaxis": ("source:axes destination", "Tensor\n    A view.", "movedim", """\
>>> weft.zeros(2, 3, 4).moveaxis((0, 1), (1, 2)).shape
(4, 2, 3)"""),
    "narrow": ("dim start length", "Tensor\n    A view whose axis has `length` elements.",
        "axis part", """\
>>> weft.arange(6).narrow(0, 2, 3)
tensor([2, 3, 4])"""),
    "select": ("dim index:int", "Tensor\n    A view with one axis less.", "axis index", """\
>>> weft.tensor([[1, 2], [3, 4]]).select(1, 0)
tensor([1, 3])"""),
    "split": ("split_size dim:first", "tuple of Tensor\n    Views.", "axis split", """\
>>> weft.arange(5).split(2)
(tensor([0, 1]), tensor([2, 3]), tensor([4]))
>>> weft.arange(5).split([1, 4])[1]
tensor([1, 2, 3, 4])"""),
    "chunk": ("chunks dim:first", "tuple of Tensor\n    Views.", "axis count", """\
>>> weft.arange(5).chunk(2)
(tensor([0, 1, 2]), tensor([3, 4]))"""),
    "tensor_split": ("", "", "", """\
>>> weft.arange(5).tensor_split(2)
(tensor([0, 1, 2]), tensor([3, 4]))
>>> weft.arange(5).tensor_split([1, 4])[1]
tensor([1, 2, 3])"""),
    "unbind": ("dim:first", "tuple of Tensor\n    Views, each with one axis less.", "axis", """\
>>> weft.tensor([[1, 2], [3, 4]]).unbind()
(tensor([1, 2]), tensor([3, 4]))"""),
    "unfold": ("dimension size:window step",
        "Tensor\n    A view of shape ``(..., (n - size) // step + 1, ..., size)``.",
        "axis window", """\
>>> weft.arange(5).unfold(0, 3, 1)
tensor([[0, 1, 2],
        [1, 2, 3],
        [2, 3, 4]])"""),
    "diagonal": ("offset dim1 dim2",
        "Tensor\n    A view without the two axes, and with the diagonal as its last.",
        "diagonal", """\
>>> weft.tensor([[1, 2], [3, 4]]).diagonal()
tensor([1, 4])"""),
    "flip": ("dims:axes", "same", "axis", """\
>>> weft.tensor([[1, 2], [3, 4]]).flip(1)
tensor([[2, 1],
        [4, 3]])"""),
    "roll": ("shifts dims:roll", "same", "axis roll", """\
>>> weft.arange(5).roll(2)
tensor([3, 4, 0, 1, 2])"""),
}  # fmt: skip

REPETITION: Final[dict[str, Row]] = {
    "repeat": ("sizes:repeat", "Tensor\n    Whose axes are as many times as long.", "repeat", """\
>>> weft.tensor([1, 2]).repeat(2, 2)
tensor([[1, 2, 1, 2],
        [1, 2, 1, 2]])"""),
    "tile": ("reps",
        "Tensor\n    Whose axes are as many times as long; counts for more axes add them in front.",
        "repeats", """\
>>> weft.tensor([1, 2]).tile(2)
tensor([1, 2, 1, 2])"""),
    "pad": ("pad mode value:pad", "Tensor\n    Whose axes are longer by what is added.",
        "pad value", """\
>>> weft.tensor([1, 2]).pad((1, 2))
tensor([0, 1, 2, 0, 0])
>>> weft.tensor([1, 2, 3]).pad((2, 0), mode="reflect")
tensor([3, 2, 1, 2, 3])"""),
    "tril": ("diagonal:triangle", "same", "twoaxes whole", """\
>>> weft.tensor([[1, 2], [3, 4]]).tril()
tensor([[1, 0],
        [3, 4]])"""),
    "triu": ("diagonal:triangle", "same", "twoaxes whole", """\
>>> weft.tensor([[1, 2], [3, 4]]).triu()
tensor([[1, 2],
        [0, 4]])"""),
    "diag": ("diagonal:offset",
        "Tensor\n    A matrix of shape ``(n + |diagonal|, n + |diagonal|)``, or a vector "
        "that is a view of the matrix.",
        "vectors", """\
>>> weft.tensor([1, 2]).diag()
tensor([[1, 0],
        [0, 2]])
>>> weft.tensor([[1, 2], [3, 4]]).diag()
tensor([1, 4])"""),
    "diag_embed": ("offset:embed", "Tensor\n    Of shape ``(..., n + |offset|, n + |offset|)``.",
        "oneaxis", """\
>>> weft.tensor([1, 2]).diag_embed(1)
tensor([[0, 1, 0],
        [0, 0, 2],
        [0, 0, 0]])"""),
}  # fmt: skip

GATHER: Final[dict[str, Row]] = {
    "gather": ("dim index:gather", "Tensor\n    Of the shape of `index`.",
        "axis range:index indextype gathershape", """\
>>> weft.tensor([[1, 2], [3, 4]]).gather(1, weft.tensor([[0], [1]]))
tensor([[1],
        [4]])"""),
    "take_along_dim": ("indices:along dim:flat",
        "Tensor\n    Of the shape of `indices`, broadcast with this one outside of the axis.",
        "axis range:index alongshape", """\
>>> weft.tensor([[3, 1], [2, 4]]).take_along_dim(weft.tensor([[1], [0]]), 1)
tensor([[1],
        [2]])"""),
    "index_select": ("dim index:vector", "Tensor\n    Whose axis is as long as `index`.",
        "axis range:index indextype indexvector", """\
>>> weft.tensor([[1, 2], [3, 4]]).index_select(1, weft.tensor([1, 1]))
tensor([[2, 2],
        [4, 4]])"""),
    "masked_select": ("mask",
        "Tensor\n    A vector of as many elements as are true in the broadcast mask.",
        "broadcast masktype capture", """\
>>> weft.tensor([1, 2, 3]).masked_select(weft.tensor([True, False, True]))
tensor([1, 3])"""),
    "masked_scatter": ("mask source:masked", "same", "broadcast owntype few", """\
>>> weft.tensor([1, 2, 3]).masked_scatter(weft.tensor([True, False, True]), [7, 8])
tensor([7, 2, 8])"""),
    "scatter": ("dim index:scatter src reduce:scatter", "same",
        "axis range:index owntype scattershape reduce", """\
>>> weft.zeros(3).scatter(0, weft.tensor([2, 0]), weft.tensor([5.0, 6.0]))
tensor([6., 0., 5.])"""),
    "scatter_add": ("dim index:scatter src", "same", "axis range:index owntype scattershape", """\
>>> weft.zeros(3).scatter_add(0, weft.tensor([2, 2]), weft.tensor([5.0, 6.0]))
tensor([0., 0., 11.])"""),
    "scatter_reduce": ("", "", "", """\
>>> weft.ones(3).scatter_reduce(0, weft.tensor([2, 2]), weft.tensor([5.0, 6.0]), "amax")
tensor([1., 1., 6.])"""),
    "index_add": ("dim index:vector source:slices alpha:source", "same",
        "axis range:index owntype slices", """\
>>> weft.zeros(3).index_add(0, weft.tensor([0, 0]), weft.tensor([1.0, 2.0]))
tensor([3., 0., 0.])"""),
    "index_copy": ("dim index:vector source:slices", "same", "axis range:index owntype slices", """\
>>> weft.zeros(3).index_copy(0, weft.tensor([0, 2]), weft.tensor([1.0, 2.0]))
tensor([1., 0., 2.])"""),
    "index_fill": ("dim index:vector value:fill", "same", "axis range:index owntype", """\
>>> weft.zeros(3).index_fill(0, weft.tensor([0, 2]), 9.0)
tensor([9., 0., 9.])"""),
}  # fmt: skip

INDEXING: Final[dict[str, Row]] = {
    "index_put_": ("indices values accumulate", "this", "putindices range:index owntype leaf", """\
>>> weft.zeros(3).index_put_([weft.tensor([0, 2])], 1.0)
tensor([1., 0., 1.])"""),
    "copy_": ("source:copy", "this", "broadcast operand leaf", """\
>>> weft.zeros(2, 2).copy_(weft.tensor([1, 2]))
tensor([[1., 2.],
        [1., 2.]])"""),
}  # fmt: skip

ORDERING: Final[dict[str, Row]] = {
    "sort": ("dim descending stable", "sorted", "axis", """\
>>> weft.tensor([3, 1, 2]).sort()
ValuesIndices(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))"""),
    "argsort": ("dim descending stable", "indices", "axis", """\
>>> weft.tensor([3, 1, 2]).argsort(descending=True)
tensor([0, 2, 1])"""),
    "topk": ("k:topk dim largest sorted",
        "(values, indices)\n    Two tensors with `k` elements along the axis.",
        "axis k", """\
>>> weft.tensor([3, 1, 2]).topk(2)
ValuesIndices(values=tensor([3, 2]), indices=tensor([0, 2]))"""),
    "kthvalue": ("k:kth dim keepdim", "picked", "axis k", """\
>>> weft.tensor([3, 1, 2]).kthvalue(2)
ValuesIndices(values=tensor(2), indices=tensor(2))"""),
    "one_hot": ("num_classes",
        "Tensor of int64\n    Of this shape with an axis of `num_classes` behind it.",
        "classes", """\
>>> weft.tensor([0, 2]).one_hot(3)
tensor([[1, 0, 0],
        [0, 0, 1]])"""),
    "nonzero": ("as_tuple",
        "Tensor of int64, or tuple of Tensor\n    Of shape ``(count, axes)``, or a "
        "vector for each axis.",
        "capture", """\
>>> weft.tensor([[0, 5], [7, 0]]).nonzero()
tensor([[0, 1],
        [1, 0]])"""),
    "unique": ("", "", "", """\
>>> weft.tensor([2, 1, 2]).unique()
tensor([1, 2])
>>> weft.tensor([2, 1, 2]).unique(return_counts=True)
(tensor([1, 2]), tensor([1, 2]))"""),
}  # fmt: skip
