"""Docstring sections of arithmetic and elementwise methods, for `weft.tensors.docs.documented`."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["ARITHMETIC", "ELEMENTWISE"]

ARITHMETIC: Final[dict[str, Row]] = {
    "to_device": ("device stream", "Tensor\n    On the device; this tensor itself if it is there.",
        "device", """\
>>> weft.ones(2).to_device("cpu").device
'cpu'"""),
    "to": ("targets dtype:to device copy",
        "Tensor\n    With the elements in the dtype; this tensor itself if nothing "
        "changes and `copy` is false.",
        "dtype device", """\
>>> weft.tensor([1.7, -1.7]).to(weft.int32)
tensor([ 1, -1], dtype=weft.int32)"""),
    "astype": ("dtype:required copy",
        "Tensor\n    Of the same shape; this tensor itself if nothing changes and `copy` is false.",
        "dtype", """\
>>> weft.tensor([1.7, -1.7]).astype(weft.int64)
tensor([ 1, -1])"""),
    "type": ("dtype:required", "Tensor\n    Of the same shape.", "dtype", """\
>>> weft.tensor([0, 1]).type(weft.bool)
tensor([False,  True])"""),
    "float": ("", "Tensor of float32\n    Of the same shape.", "", """\
>>> weft.tensor([1, 2]).float()
tensor([1., 2.])"""),
    "double": ("", "Tensor of float64\n    Of the same shape.", "", """\
>>> weft.tensor([1, 2]).double()
tensor([1., 2.], dtype=weft.float64)"""),
    "half": ("", "Tensor of float16\n    Of the same shape.", "", """\
>>> weft.tensor([1.5, 2.5]).half()
tensor([1.5000, 2.5000], dtype=weft.float16)"""),
    "bfloat16": ("", "Tensor of bfloat16\n    Of the same shape.", "", """\
>>> weft.tensor([1.5, 2.5]).bfloat16()
tensor([1.5000, 2.5000], dtype=weft.bfloat16)"""),
    "int": ("", "Tensor of int32\n    Of the same shape; fractions are cut off.", "", """\
>>> weft.tensor([1.9, -1.9]).int()
tensor([ 1, -1], dtype=weft.int32)"""),
    "long": ("", "Tensor of int64\n    Of the same shape; fractions are cut off.", "", """\
>>> weft.tensor([1.9, -1.9]).long()
tensor([ 1, -1])"""),
    "bool": ("", "bools", "", """\
>>> weft.tensor([0.0, 0.5]).bool()
tensor([False,  True])"""),
    "bitcast": ("dtype:width", "Tensor\n    Of the same shape.", "bitcast", """\
>>> weft.tensor([1.0]).bitcast(weft.int32)
tensor([1065353216], dtype=weft.int32)"""),
    "clone": ("", "Tensor\n    Of the same shape and dtype, through which gradients flow.", "", """\
>>> x = weft.tensor([1.0, 2.0])
>>> y = x.clone().zero_()
>>> x
tensor([1., 2.])"""),
    "copy": ("", "Tensor\n    Of the same shape and dtype, through which gradients flow.", "", """\
>>> x = weft.tensor([1.0, 2.0])
>>> y = x.copy().zero_()
>>> x
tensor([1., 2.])"""),
    "add": ("other alpha", "pair", "broadcast operand value", """\
>>> weft.tensor([1.0, 2.0]).add(10, alpha=2)
tensor([21., 22.])"""),
    "sub": ("other alpha", "pair", "broadcast operand bools value", """\
>>> weft.tensor([5, 7]).sub(weft.tensor([1, 2]))
tensor([4, 5])"""),
    "mul": ("other", "pair", "broadcast operand value", """\
>>> weft.tensor([[1.0], [2.0]]).mul(weft.tensor([3.0, 4.0]))
tensor([[3., 4.],
        [6., 8.]])"""),
    "div": ("other:divisor rounding_mode",
        "Tensor\n    Of the broadcast shape; a true quotient of integers is float32.",
        "broadcast operand rounding", """\
>>> weft.tensor([7, -7]).div(2)
tensor([ 3.5000, -3.5000])
>>> weft.tensor([7, -7]).div(2, rounding_mode="trunc")
tensor([ 3, -3])"""),
    "floor_divide": ("other:divisor", "pair", "broadcast operand value", """\
>>> weft.tensor([7, -7]).floor_divide(2)
tensor([ 3, -4])"""),
    "remainder": ("other:divisor", "pair", "broadcast operand value", """\
>>> weft.tensor([7, -7]).remainder(3)
tensor([1, 2])"""),
    "fmod": ("other:divisor", "pair", "broadcast operand value", """\
>>> weft.tensor([7, -7]).fmod(3)
tensor([ 1, -1])"""),
    "pow": ("", "", "", """\
>>> weft.tensor([1.0, 2.0, 3.0]).pow(2)
tensor([1., 4., 9.])"""),
    "rpow": ("base", "pair", "broadcast operand", """\
>>> weft.tensor([0, 1, 2]).rpow(2)
tensor([1, 2, 4])"""),
    "maximum": ("other", "pair", "broadcast operand value", """\
>>> weft.tensor([1, 5]).maximum(3)
tensor([3, 5])"""),
    "minimum": ("other", "pair", "broadcast operand value", """\
>>> weft.tensor([1, 5]).minimum(3)
tensor([1, 3])"""),
    "atan2": ("other:abscissa", "pairfloat", "broadcast operand", """\
>>> weft.tensor([1.0, -1.0]).atan2(weft.tensor([1.0, 1.0]))
tensor([ 0.7854, -0.7854])"""),
    "copysign": ("other:sign", "pairfloat", "broadcast operand", """\
>>> weft.tensor([1.0, 2.0]).copysign(-1.0)
tensor([-1., -2.])"""),
    "neg": ("", "same", "kind", """\
>>> weft.tensor([1, -2]).neg()
tensor([-1,  2])"""),
    "positive": ("", "same", "", """\
>>> weft.tensor([1, -2]).positive()
tensor([ 1, -2])"""),
    "abs": ("", "same", "", """\
>>> weft.tensor([1, -2]).abs()
tensor([1, 2])"""),
    "sign": ("", "same", "", """\
>>> weft.tensor([3.0, 0.0, -2.0]).sign()
tensor([1., 0., -1.])"""),
    "square": ("", "same", "", """\
>>> weft.tensor([3, -2]).square()
tensor([9, 4])"""),
    "bitwise_and": ("other:bits", "pair", "broadcast bits value", """\
>>> weft.tensor([6, 5]).bitwise_and(3)
tensor([2, 1])"""),
    "bitwise_or": ("other:bits", "pair", "broadcast bits value", """\
>>> weft.tensor([6, 5]).bitwise_or(3)
tensor([7, 7])"""),
    "bitwise_xor": ("other:bits", "pair", "broadcast bits value", """\
>>> weft.tensor([6, 5]).bitwise_xor(3)
tensor([5, 6])"""),
    "bitwise_left_shift": ("other:shift", "pair", "broadcast bits value", """\
>>> weft.tensor([1, 3]).bitwise_left_shift(2)
tensor([ 4, 12])"""),
    "bitwise_right_shift": ("other:shift", "pair", "broadcast bits value", """\
>>> weft.tensor([8, -8]).bitwise_right_shift(2)
tensor([ 2, -2])"""),
    "bitwise_not": ("", "same", "bitkind", """\
>>> weft.tensor([0, 5]).bitwise_not()
tensor([-1, -6])"""),
    "mulhi": ("other:bits", "pair", "broadcast bits value", """\
>>> weft.tensor([1 << 40]).mulhi(1 << 40)
tensor([65536])"""),
    "logical_not": ("", "bools", "", """\
>>> weft.tensor([0, 3]).logical_not()
tensor([ True, False])"""),
    "logical_and": ("other", "pairbool", "broadcast operand value", """\
>>> weft.tensor([0, 3]).logical_and(weft.tensor([1, 1]))
tensor([False,  True])"""),
    "logical_or": ("other", "pairbool", "broadcast operand value", """\
>>> weft.tensor([0, 3]).logical_or(weft.tensor([0, 0]))
tensor([False,  True])"""),
    "logical_xor": ("other", "pairbool", "broadcast operand value", """\
>>> weft.tensor([0, 3]).logical_xor(weft.tensor([1, 1]))
tensor([ True, False])"""),
    "eq": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).eq(2)
tensor([False,  True, False])"""),
    "ne": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).ne(2)
tensor([ True, False,  True])"""),
    "lt": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).lt(2)
tensor([ True, False, False])"""),
    "le": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).le(2)
tensor([ True,  True, False])"""),
    "gt": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).gt(2)
tensor([False, False,  True])"""),
    "ge": ("other", "pairbool", "broadcast operand", """\
>>> weft.tensor([1, 2, 3]).ge(2)
tensor([False,  True,  True])"""),
    "isnan": ("", "bools", "", """\
>>> weft.tensor([1.0, float("nan")]).isnan()
tensor([False,  True])"""),
    "isinf": ("", "bools", "", """\
>>> weft.tensor([1.0, float("-inf")]).isinf()
tensor([False,  True])"""),
    "isfinite": ("", "bools", "", """\
>>> weft.tensor([1.0, float("inf"), float("nan")]).isfinite()
tensor([ True, False, False])"""),
    "isclose": ("other rtol atol equal_nan", "pairbool", "broadcast operand value", """\
>>> weft.tensor([1.0, 2.0]).isclose(weft.tensor([1.0, 2.1]))
tensor([ True, False])"""),
    "where": ("a:where b:where",
        "Tensor\n    Of the shape that condition, `a` and `b` broadcast to, in the type "
        "in which `a` and `b` meet.",
        "broadcast condition operand", """\
>>> weft.tensor([True, False]).where(weft.tensor([1.0, 2.0]), 0.0)
tensor([1., 0.])"""),
    "masked_fill": ("", "", "", """\
>>> weft.tensor([1.0, 2.0]).masked_fill(weft.tensor([True, False]), -1.0)
tensor([-1., 2.])"""),
}  # fmt: skip

ELEMENTWISE: Final[dict[str, Row]] = {
    "sqrt": ("", "floats", "", """\
>>> weft.tensor([4.0, 2.0]).sqrt()
tensor([2.0000, 1.4142])"""),
    "rsqrt": ("", "floats", "", """\
>>> weft.tensor([4.0, 16.0]).rsqrt()
tensor([0.5000, 0.2500])"""),
    "reciprocal": ("", "floats", "", """\
>>> weft.tensor([4.0, 2.0]).reciprocal()
tensor([0.2500, 0.5000])"""),
    "exp": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).exp()
tensor([1.0000, 2.7183])"""),
    "exp2": ("", "floats", "", """\
>>> weft.tensor([0.0, 3.0]).exp2()
tensor([1., 8.])"""),
    "expm1": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).expm1()
tensor([0.0000, 1.7183])"""),
    "log": ("", "floats", "", """\
>>> weft.tensor([1.0, 2.0]).log()
tensor([0.0000, 0.6931])"""),
    "log2": ("", "floats", "", """\
>>> weft.tensor([1.0, 8.0]).log2()
tensor([0., 3.])"""),
    "log10": ("", "floats", "", """\
>>> weft.tensor([1.0, 1000.0]).log10()
tensor([0., 3.])"""),
    "log1p": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).log1p()
tensor([0.0000, 0.6931])"""),
    "sin": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).sin()
tensor([0.0000, 0.8415])"""),
    "cos": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).cos()
tensor([1.0000, 0.5403])"""),
    "tan": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).tan()
tensor([0.0000, 1.5574])"""),
    "asin": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).asin()
tensor([0.0000, 1.5708])"""),
    "acos": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).acos()
tensor([1.5708, 0.0000])"""),
    "atan": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).atan()
tensor([0.0000, 0.7854])"""),
    "sinh": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).sinh()
tensor([0.0000, 1.1752])"""),
    "cosh": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).cosh()
tensor([1.0000, 1.5431])"""),
    "tanh": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).tanh()
tensor([0.0000, 0.7616])"""),
    "asinh": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).asinh()
tensor([0.0000, 0.8814])"""),
    "acosh": ("", "floats", "", """\
>>> weft.tensor([1.0, 2.0]).acosh()
tensor([0.0000, 1.3170])"""),
    "atanh": ("", "floats", "", """\
>>> weft.tensor([0.0, 0.5]).atanh()
tensor([0.0000, 0.5493])"""),
    "erf": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).erf()
tensor([0.0000, 0.8427])"""),
    "erfc": ("", "floats", "", """\
>>> weft.tensor([0.0, 1.0]).erfc()
tensor([1.0000, 0.1573])"""),
    "floor": ("", "same", "", """\
>>> weft.tensor([1.5, -1.5]).floor()
tensor([1., -2.])"""),
    "ceil": ("", "same", "", """\
>>> weft.tensor([1.5, -1.5]).ceil()
tensor([2., -1.])"""),
    "trunc": ("", "same", "", """\
>>> weft.tensor([1.5, -1.5]).trunc()
tensor([1., -1.])"""),
    "round": ("decimals", "same", "decimals", """\
>>> weft.tensor([0.5, 1.5, -1.2]).round()
tensor([0., 2., -1.])
>>> weft.tensor([1.26]).round(1)
tensor([1.3000])"""),
    "frac": ("", "same", "", """\
>>> weft.tensor([1.5, -1.25]).frac()
tensor([ 0.5000, -0.2500])"""),
    "deg2rad": ("", "composite", "", """\
>>> weft.tensor([180.0, 90.0]).deg2rad()
tensor([3.1416, 1.5708])"""),
    "rad2deg": ("", "composite", "", """\
>>> weft.tensor([0.0, 1.0]).rad2deg()
tensor([ 0.0000, 57.2958])"""),
    "logaddexp": ("other", "pairfloat", "broadcast operand value", """\
>>> weft.tensor([0.0, 1000.0]).logaddexp(weft.tensor([0.0, 1000.0]))
tensor([   0.6931, 1000.6932])"""),
    "sigmoid": ("", "floats", "", """\
>>> weft.tensor([0.0, 2.0]).sigmoid()
tensor([0.5000, 0.8808])"""),
    "relu": ("", "same", "", """\
>>> weft.tensor([-1.0, 2.0]).relu()
tensor([0., 2.])"""),
    "relu6": ("", "same", "", """\
>>> weft.tensor([-1.0, 2.0, 9.0]).relu6()
tensor([0., 2., 6.])"""),
    "leaky_relu": ("negative_slope", "composite", "operand", """\
>>> weft.tensor([-1.0, 2.0]).leaky_relu(0.1)
tensor([-0.1000,  2.0000])"""),
    "prelu": ("weight", "pair", "broadcast operand", """\
>>> weft.tensor([-1.0, 2.0]).prelu(weft.tensor([0.25]))
tensor([-0.2500,  2.0000])"""),
    "elu": ("alpha:elu", "composite", "number", """\
>>> weft.tensor([-1.0, 2.0]).elu()
tensor([-0.6321,  2.0000])"""),
    "selu": ("", "composite", "", """\
>>> weft.tensor([-1.0, 2.0]).selu()
tensor([-1.1113,  2.1014])"""),
    "celu": ("alpha:elu", "composite", "number", """\
>>> weft.tensor([-1.0, 2.0]).celu(2.0)
tensor([-0.7869,  2.0000])"""),
    "gelu": ("approximate", "composite", "approximate", """\
>>> weft.tensor([-1.0, 2.0]).gelu()
tensor([-0.1587,  1.9545])"""),
    "silu": ("", "composite", "", """\
>>> weft.tensor([-1.0, 2.0]).silu()
tensor([-0.2689,  1.7616])"""),
    "mish": ("", "composite", "", """\
>>> weft.tensor([-1.0, 2.0]).mish()
tensor([-0.3034,  1.9440])"""),
    "softplus": ("beta threshold", "composite", "number", """\
>>> weft.tensor([0.0, 30.0]).softplus()
tensor([ 0.6931, 30.0000])"""),
    "logsigmoid": ("", "composite", "", """\
>>> weft.tensor([0.0, -100.0]).logsigmoid()
tensor([  -0.6931, -100.0000])"""),
    "softsign": ("", "composite", "", """\
>>> weft.tensor([-1.0, 3.0]).softsign()
tensor([-0.5000,  0.7500])"""),
    "tanhshrink": ("", "composite", "", """\
>>> weft.tensor([0.0, 1.0]).tanhshrink()
tensor([0.0000, 0.2384])"""),
    "hardtanh": ("min_val max_val", "same", "operand", """\
>>> weft.tensor([-3.0, 0.5, 3.0]).hardtanh()
tensor([-1.0000,  0.5000,  1.0000])"""),
    "hardsigmoid": ("", "composite", "", """\
>>> weft.tensor([-3.0, 0.0, 3.0]).hardsigmoid()
tensor([0.0000, 0.5000, 1.0000])"""),
    "hardswish": ("", "composite", "", """\
>>> weft.tensor([-3.0, 1.0, 3.0]).hardswish()
tensor([-0.0000,  0.6667,  3.0000])"""),
    "hypot": ("other", "pairfloat", "broadcast operand value", """\
>>> weft.tensor([3.0, 5.0]).hypot(weft.tensor([4.0, 12.0]))
tensor([5., 13.])"""),
    "lerp": ("end weight:lerp", "Tensor\n    Of the shape that all three broadcast to.",
        "broadcast operand", """\
>>> weft.tensor([0.0, 10.0]).lerp(weft.tensor([10.0, 20.0]), 0.25)
tensor([ 2.5000, 12.5000])"""),
    "addcmul": ("a:factor b:factor value:scale",
        "Tensor\n    Of the shape that all three broadcast to.",
        "broadcast operand", """\
>>> weft.tensor([1.0, 2.0]).addcmul(weft.tensor([3.0, 4.0]), 2.0, value=0.5)
tensor([4., 6.])"""),
    "addcdiv": ("a:dividend b:divisor value:scale",
        "Tensor\n    Of the shape that all three broadcast to.",
        "broadcast operand", """\
>>> weft.tensor([1.0, 2.0]).addcdiv(weft.tensor([3.0, 4.0]), 2.0)
tensor([2.5000, 4.0000])"""),
    "fmax": ("other", "pair", "broadcast operand value", """\
>>> weft.tensor([1.0, float("nan")]).fmax(weft.tensor([0.0, 5.0]))
tensor([1., 5.])"""),
    "fmin": ("other", "pair", "broadcast operand value", """\
>>> weft.tensor([1.0, float("nan")]).fmin(weft.tensor([0.0, 5.0]))
tensor([0., 5.])"""),
    "clamp": ("min max", "Tensor\n    Of this shape, broadcast with limits that are tensors.",
        "broadcast operand", """\
>>> weft.tensor([-2.0, 0.5, 2.0]).clamp(-1.0, 1.0)
tensor([-1.0000,  0.5000,  1.0000])"""),
    "clip": ("min max", "Tensor\n    Of this shape, broadcast with limits that are tensors.",
        "broadcast operand", """\
>>> weft.tensor([-2.0, 0.5, 2.0]).clip(max=1.0)
tensor([-2.0000,  0.5000,  1.0000])"""),
    "clamp_min": ("min:required", "pair", "broadcast operand", """\
>>> weft.tensor([-2.0, 0.5]).clamp_min(0.0)
tensor([0.0000, 0.5000])"""),
    "clamp_max": ("max:required", "pair", "broadcast operand", """\
>>> weft.tensor([2.0, 0.5]).clamp_max(1.0)
tensor([1.0000, 0.5000])"""),
    "nan_to_num": ("nan posinf neginf", "same", "operand", """\
>>> weft.tensor([float("nan"), float("inf"), 1.0]).nan_to_num(0.0, posinf=9.0)
tensor([0., 9., 1.])"""),
}  # fmt: skip
