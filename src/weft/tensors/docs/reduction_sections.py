"""Docstring sections of reductions, writes and tensors, for `weft.tensors.docs.documented`."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["CORE", "INPLACE", "REDUCE", "TENSOR"]

REDUCE: Final[dict[str, Row]] = {
    "sum": ("dim:axes keepdim dtype:sum", "reduced", "axis dtype", """\
>>> x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> x.sum(), x.sum(0)
(tensor(10.), tensor([4., 6.]))"""),
    "prod": ("dim:axes keepdim dtype:sum", "reduced", "axis dtype", """\
>>> weft.tensor([[1.0, 2.0], [3.0, 4.0]]).prod(1)
tensor([2., 12.])"""),
    "mean": ("dim:axes keepdim dtype:mean", "reduced", "axis floating dtype", """\
>>> weft.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(1, keepdim=True)
tensor([[1.5000],
        [3.5000]])"""),
    "var": ("dim:axes correction keepdim unbiased ddof", "reduced", "axis floating", """\
>>> weft.tensor([1.0, 2.0, 3.0]).var()
tensor(1.)"""),
    "std": ("dim:axes correction keepdim unbiased ddof", "reduced", "axis floating", """\
>>> weft.tensor([1.0, 2.0, 3.0]).std(correction=0)
tensor(0.8165)"""),
    "var_mean": ("dim:axes correction keepdim", "tuple of two Tensor\n    As of `var` and `mean`.",
        "axis floating", """\
>>> weft.tensor([1.0, 2.0, 3.0]).var_mean()
(tensor(1.), tensor(2.))"""),
    "amax": ("dim:axes keepdim", "reduced", "axis empty", """\
>>> weft.tensor([[1, 5], [7, 3]]).amax(1)
tensor([5, 7])"""),
    "amin": ("dim:axes keepdim", "reduced", "axis empty", """\
>>> weft.tensor([[1, 5], [7, 3]]).amin(1)
tensor([1, 3])"""),
    "aminmax": ("dim:one keepdim", "tuple of two Tensor\n    As of `amin` and `amax`.",
        "axis empty", """\
>>> weft.tensor([[1, 5], [7, 3]]).aminmax()
(tensor(1), tensor(7))"""),
    "max": ("dim:max keepdim", "extreme", "axis empty", """\
>>> x = weft.tensor([[1, 5], [7, 3]])
>>> x.max()
tensor(7)
>>> x.max(1).values, x.max(1).indices
(tensor([5, 7]), tensor([1, 0]))
>>> x.max(axis=1)
tensor([5, 7])"""),
    "min": ("dim:max keepdim", "extreme", "axis empty", """\
>>> x = weft.tensor([[1, 5], [7, 3]])
>>> x.min()
tensor(1)
>>> x.min(1).values, x.min(1).indices
(tensor([1, 3]), tensor([0, 1]))
>>> x.min(axis=1)
tensor([1, 3])"""),
    "argmax": ("dim:arg keepdim", "arg", "axis empty", """\
>>> weft.tensor([[1, 5], [7, 3]]).argmax(1)
tensor([1, 0])"""),
    "argmin": ("dim:arg keepdim", "arg", "axis empty", """\
>>> weft.tensor([[1, 5], [7, 3]]).argmin()
tensor(0)"""),
    "any": ("dim:axes keepdim", "reducedbool", "axis", """\
>>> weft.tensor([[0, 5], [0, 0]]).any(1)
tensor([ True, False])"""),
    "all": ("dim:axes keepdim", "reducedbool", "axis", """\
>>> weft.tensor([[2, 5], [0, 1]]).all(1)
tensor([ True, False])"""),
    "count_nonzero": ("dim:axes", "Tensor of int64\n    Without the reduced axes.", "axis", """\
>>> weft.tensor([[0, 5], [7, 3]]).count_nonzero(1)
tensor([1, 2])"""),
    "logsumexp": ("dim:axes keepdim", "reducedfloat", "axis", """\
>>> weft.tensor([1000.0, 1000.0]).logsumexp(0)
tensor(1000.6932)"""),
    "norm": ("p dim:axes keepdim", "reduced", "axis floating norm", """\
>>> weft.tensor([3.0, 4.0]).norm(), weft.tensor([3.0, -4.0]).norm(1)
(tensor(5.), tensor(7.))"""),
    "normalize": ("p dim:second eps", "same", "axis floating norm", """\
>>> weft.tensor([[3.0, 4.0]]).normalize()
tensor([[0.6000, 0.8000]])"""),
    "median": ("dim:one keepdim", "extreme", "axis empty", """\
>>> weft.tensor([4, 1, 3, 2]).median()
tensor(2)"""),
    "cumsum": ("dim:first dtype:sum", "running", "axis dtype", """\
>>> weft.tensor([1, 2, 3]).cumsum()
tensor([1, 3, 6])"""),
    "cumprod": ("dim:first dtype:sum", "running", "axis dtype", """\
>>> weft.tensor([1, 2, 3]).cumprod()
tensor([1, 2, 6])"""),
    "linear_recurrence": ("", "", "", """\
>>> weft.tensor([1.0, 0.5, 0.5]).linear_recurrence(weft.tensor([8.0, 0.0, 1.0]))
tensor([8., 4., 3.])"""),
    "cummax": ("dim:first", "sorted", "axis", """\
>>> weft.tensor([1, 3, 2]).cummax()
ValuesIndices(values=tensor([1, 3, 3]), indices=tensor([0, 1, 1]))"""),
    "cummin": ("dim:first", "sorted", "axis", """\
>>> weft.tensor([3, 1, 2]).cummin()
ValuesIndices(values=tensor([3, 1, 1]), indices=tensor([0, 1, 1]))"""),
    "logcumsumexp": ("dim:first", "composite", "axis", """\
>>> weft.tensor([0.0, 0.0]).logcumsumexp()
tensor([0.0000, 0.6931])"""),
    "diff": ("n dim prepend append",
        "Tensor\n    Whose axis is shorter by `n`; of bool, whether neighbours differ.",
        "axis times", """\
>>> weft.tensor([1, 4, 9]).diff()
tensor([3, 5])
>>> weft.tensor([1, 4, 9]).diff(2)
tensor([2])"""),
}  # fmt: skip

INPLACE: Final[dict[str, Row]] = {
    "assign": ("source:copy", "this", "broadcast operand leaf", """\
>>> weft.zeros(3).assign(2)
tensor([2., 2., 2.])"""),
    "fill_": ("value:fill", "this", "operand leaf", """\
>>> weft.zeros(3).fill_(7)
tensor([7., 7., 7.])"""),
    "zero_": ("", "this", "leaf", """\
>>> weft.ones(3).zero_()
tensor([0., 0., 0.])"""),
    "add_": ("other alpha", "this", "inplace operand leaf", """\
>>> weft.ones(3).add_(2, alpha=0.5)
tensor([2., 2., 2.])"""),
    "sub_": ("other alpha", "this", "inplace operand leaf", """\
>>> weft.ones(3).sub_(2)
tensor([-1., -1., -1.])"""),
    "mul_": ("other", "this", "inplace operand leaf", """\
>>> weft.ones(3).mul_(weft.tensor([1, 2, 3]))
tensor([1., 2., 3.])"""),
    "div_": ("other:divisor rounding_mode", "this", "inplace operand leaf", """\
>>> weft.ones(3).div_(2)
tensor([0.5000, 0.5000, 0.5000])"""),
    "pow_": ("other:exponent", "this", "inplace operand leaf", """\
>>> weft.full((3,), 2.0).pow_(3)
tensor([8., 8., 8.])"""),
    "neg_": ("", "this", "kind leaf", """\
>>> weft.ones(3).neg_()
tensor([-1., -1., -1.])"""),
    "exp_": ("", "this", "floatresult leaf", """\
>>> weft.zeros(3).exp_()
tensor([1., 1., 1.])"""),
    "sqrt_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([4.0, 9.0]).sqrt_()
tensor([2., 3.])"""),
    "relu_": ("", "this", "leaf", """\
>>> weft.tensor([-1.0, 2.0]).relu_()
tensor([0., 2.])"""),
    "clamp_": ("min max", "this", "inplace operand leaf", """\
>>> weft.tensor([-2.0, 2.0]).clamp_(-1.0, 1.0)
tensor([-1., 1.])"""),
    "lerp_": ("end weight:lerp", "this", "inplace operand leaf", """\
>>> weft.zeros(2).lerp_(weft.tensor([4.0, 8.0]), 0.25)
tensor([1., 2.])"""),
    "addcmul_": ("a:factor b:factor value:scale", "this", "inplace operand leaf", """\
>>> weft.ones(2).addcmul_(weft.tensor([4.0, 8.0]), 0.25)
tensor([2., 3.])"""),
    "addcdiv_": ("a:dividend b:divisor value:scale", "this", "inplace operand leaf", """\
>>> weft.ones(2).addcdiv_(weft.tensor([4.0, 8.0]), 4.0)
tensor([2., 3.])"""),
    "masked_fill_": ("mask value:fill", "this", "inplace condition leaf", """\
>>> weft.zeros(2).masked_fill_(weft.tensor([True, False]), 5.0)
tensor([5., 0.])"""),
    "scatter_": ("dim index:scatter src reduce:scatter", "this",
        "axis range:index owntype scattershape leaf", """\
>>> weft.zeros(3).scatter_(0, weft.tensor([2, 0]), weft.tensor([5.0, 6.0]))
tensor([6., 0., 5.])"""),
    "scatter_add_": ("dim index:scatter src", "this",
        "axis range:index owntype scattershape leaf", """\
>>> weft.zeros(3).scatter_add_(0, weft.tensor([2, 2]), weft.tensor([5.0, 6.0]))
tensor([0., 0., 11.])"""),
    "index_add_": ("dim index:vector source:slices alpha:source", "this",
        "axis range:index owntype slices leaf", """\
>>> weft.zeros(3).index_add_(0, weft.tensor([0, 0]), weft.tensor([1.0, 2.0]))
tensor([3., 0., 0.])"""),
    "index_copy_": ("dim index:vector source:slices", "this",
        "axis range:index owntype slices leaf", """\
>>> weft.zeros(3).index_copy_(0, weft.tensor([0, 2]), weft.tensor([1.0, 2.0]))
tensor([1., 0., 2.])"""),
    "index_fill_": ("dim index:vector value:fill", "this", "axis range:index owntype leaf", """\
>>> weft.zeros(3).index_fill_(0, weft.tensor([1]), 9.0)
tensor([0., 9., 0.])"""),
    "masked_scatter_": ("mask source:masked", "this", "broadcast owntype few leaf", """\
>>> weft.zeros(3).masked_scatter_(weft.tensor([True, False, True]), [7, 8])
tensor([7., 0., 8.])"""),
}  # fmt: skip

CORE: Final[dict[str, Row]] = {
    "requires_grad": ("", "", "setgrad", """\
>>> weft.ones(2, requires_grad=True).requires_grad
True"""),
    "is_leaf": ("", "", "", """\
>>> x = weft.ones(2, requires_grad=True)
>>> x.is_leaf, (x * 2).is_leaf
(True, False)"""),
    "requires_grad_": ("", "", "", """\
>>> weft.ones(2).requires_grad_()
tensor([1., 1.], requires_grad=True)"""),
    "grad": ("", "", "setgradient", """\
>>> x = weft.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])"""),
    "retain_grad": ("", "", "", """\
>>> x = weft.ones(2, requires_grad=True)
>>> y = x * 2
>>> y.retain_grad()
>>> (y * y).sum().backward()
>>> y.grad
tensor([4., 4.])"""),
    "detach_": ("", "", "", """\
>>> y = weft.ones(2, requires_grad=True) * 2
>>> y.detach_().requires_grad
False"""),
    "detach": ("",
        "Tensor\n    A view of the same shape and dtype: writes to it change this "
        "tensor's elements.",
        "", """\
>>> x = weft.ones(2, requires_grad=True)
>>> x.detach()
tensor([1., 1.])"""),
    "ndim": ("", "", "", """\
>>> weft.zeros(2, 3).ndim
2"""),
    "dim": ("", "int", "", """\
>>> weft.zeros(2, 3).dim()
2"""),
    "numel": ("", "int", "", """\
>>> weft.zeros(2, 3).numel()
6"""),
    "nbytes": ("", "", "", """\
>>> weft.zeros(2, 3).nbytes
24"""),
    "itemsize": ("", "", "", """\
>>> weft.zeros(2).itemsize
4"""),
    "element_size": ("", "int", "", """\
>>> weft.zeros(2).element_size()
4"""),
    "device": ("", "", "", """\
>>> weft.zeros(2).device
'cpu'"""),
    "is_floating_point": ("", "bool", "", """\
>>> weft.zeros(2).is_floating_point(), weft.arange(2).is_floating_point()
(True, False)"""),
}  # fmt: skip

TENSOR: Final[dict[str, Row]] = {
    "numpy": ("force",
        "numpy.ndarray\n    Of the same shape; bfloat16 and 8-bit floats have the dtypes "
        "of ml_dtypes.",
        "capture", """\
>>> weft.tensor([1.0, 2.0]).numpy()
array([1., 2.], dtype=float32)"""),
    "realize": ("", "this", "", """\
>>> weft.ones(2).exp().realize().shape
(2,)"""),
    "item": ("", "", "", """\
>>> weft.tensor([1, 2, 3]).sum().item()
6"""),
    "tolist": ("", "list or number\n    Nested lists, or a number of a tensor without axes.",
        "capture lists", """\
>>> weft.tensor([[1, 2], [3, 4]]).tolist()
[[1, 2], [3, 4]]"""),
    "cpu": ("", "Tensor\n    Where `to_device` moves it.", "", """\
>>> weft.ones(2).cpu()
tensor([1., 1.])"""),
    "data": ("", "", "", """\
>>> x = weft.ones(2, requires_grad=True)
>>> x.data = weft.zeros(2)
>>> x
tensor([0., 0.], requires_grad=True)"""),
    "backward": ("", "", "", """\
>>> x = weft.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])"""),
    "register_hook": ("", "", "", """\
>>> x = weft.ones(2, requires_grad=True)
>>> handle = x.register_hook(lambda g: g * 10)
>>> x.sum().backward()
>>> x.grad
tensor([10., 10.])"""),
}  # fmt: skip
