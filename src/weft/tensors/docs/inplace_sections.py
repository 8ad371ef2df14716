"""Docstring sections of functions in place, for `weft.tensors.docs.documented`."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["FUNCTIONS"]

FUNCTIONS: Final[dict[str, Row]] = {
    "exp2_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0, 3.0]).exp2_()
tensor([1., 8.])"""),
    "expm1_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).expm1_()
tensor([0.])"""),
    "log_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([1.0]).log_()
tensor([0.])"""),
    "log2_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([8.0]).log2_()
tensor([3.])"""),
    "log10_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([100.0]).log10_()
tensor([2.])"""),
    "log1p_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).log1p_()
tensor([0.])"""),
    "sin_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).sin_()
tensor([0.])"""),
    "cos_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).cos_()
tensor([1.])"""),
    "tan_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).tan_()
tensor([0.])"""),
    "tanh_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).tanh_()
tensor([0.])"""),
    "erf_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).erf_()
tensor([0.])"""),
    "sigmoid_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([0.0]).sigmoid_()
tensor([0.5000])"""),
    "rsqrt_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([4.0]).rsqrt_()
tensor([0.5000])"""),
    "reciprocal_": ("", "this", "floatresult leaf", """\
>>> weft.tensor([4.0]).reciprocal_()
tensor([0.2500])"""),
    "abs_": ("", "this", "leaf", """\
>>> weft.tensor([-1.5, 2.0]).abs_()
tensor([1.5000, 2.0000])"""),
    "sign_": ("", "this", "leaf", """\
>>> weft.tensor([-1.5, 2.0]).sign_()
tensor([-1., 1.])"""),
    "ceil_": ("", "this", "leaf", """\
>>> weft.tensor([1.5]).ceil_()
tensor([2.])"""),
    "floor_": ("", "this", "leaf", """\
>>> weft.tensor([1.5]).floor_()
tensor([1.])"""),
    "trunc_": ("", "this", "leaf", """\
>>> weft.tensor([-1.5]).trunc_()
tensor([-1.])"""),
    "round_": ("", "this", "leaf", """\
>>> weft.tensor([2.5]).round_()
tensor([2.])"""),
    "frac_": ("", "this", "leaf", """\
>>> weft.tensor([1.25]).frac_()
tensor([0.2500])"""),
    "square_": ("", "this", "leaf", """\
>>> weft.tensor([3.0]).square_()
tensor([9.])"""),
    "logical_not_": ("", "this", "leaf", """\
>>> weft.tensor([0.0, 2.0]).logical_not_()
tensor([1., 0.])"""),
    "bitwise_not_": ("", "this", "bitkind leaf", """\
>>> weft.tensor([5]).bitwise_not_()
tensor([-6])"""),
    "nan_to_num_": ("nan posinf neginf", "this", "leaf", """\
>>> weft.tensor([1.0, float("nan")]).nan_to_num_()
tensor([1., 0.])"""),
    "clip_": ("min max", "this", "inplace operand leaf", """\
>>> weft.tensor([-2.0, 2.0]).clip_(-1.0, 1.0)
tensor([-1., 1.])"""),
    "clamp_min_": ("min:required", "this", "inplace operand leaf", """\
>>> weft.tensor([-2.0, 2.0]).clamp_min_(0.0)
tensor([0., 2.])"""),
    "clamp_max_": ("max:required", "this", "inplace operand leaf", """\
>>> weft.tensor([-2.0, 2.0]).clamp_max_(0.0)
tensor([-2., 0.])"""),
    "remainder_": ("other:divisor", "this", "inplace operand leaf", """\
>>> weft.tensor([7.0, -7.0]).remainder_(3)
tensor([1., 2.])"""),
    "fmod_": ("other:divisor", "this", "inplace operand leaf", """\
>>> weft.tensor([7.0, -7.0]).fmod_(3)
tensor([1., -1.])"""),
    "floor_divide_": ("other:divisor", "this", "inplace operand leaf", """\
>>> weft.tensor([7.0, -7.0]).floor_divide_(2)
tensor([3., -4.])"""),
    "bitwise_and_": ("other:bits", "this", "inplace operand leaf", """\
>>> weft.tensor([6]).bitwise_and_(3)
tensor([2])"""),
    "bitwise_or_": ("other:bits", "this", "inplace operand leaf", """\
>>> weft.tensor([6]).bitwise_or_(3)
tensor([7])"""),
    "bitwise_xor_": ("other:bits", "this", "inplace operand leaf", """\
>>> weft.tensor([6]).bitwise_xor_(3)
tensor([5])"""),
    "bitwise_left_shift_": ("other:shift", "this", "inplace operand leaf", """\
>>> weft.tensor([6]).bitwise_left_shift_(1)
tensor([12])"""),
    "bitwise_right_shift_": ("other:shift", "this", "inplace operand leaf", """\
>>> weft.tensor([6]).bitwise_right_shift_(1)
tensor([3])"""),
    "logical_and_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 0.0]).logical_and_(weft.tensor([2.0, 3.0]))
tensor([1., 0.])"""),
    "logical_or_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 0.0]).logical_or_(weft.tensor([2.0, 3.0]))
tensor([1., 1.])"""),
    "logical_xor_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 0.0]).logical_xor_(weft.tensor([2.0, 3.0]))
tensor([0., 1.])"""),
    "eq_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).eq_(1)
tensor([1., 0.])"""),
    "ne_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).ne_(1)
tensor([0., 1.])"""),
    "lt_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).lt_(1)
tensor([0., 0.])"""),
    "le_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).le_(1)
tensor([1., 0.])"""),
    "gt_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).gt_(1)
tensor([0., 1.])"""),
    "ge_": ("other", "this", "inplace operand leaf", """\
>>> weft.tensor([1.0, 2.0]).ge_(1)
tensor([1., 1.])"""),
    "tril_": ("diagonal:triangle", "this", "twoaxes whole leaf", """\
>>> weft.ones(2, 2).tril_()
tensor([[1., 0.],
        [1., 1.]])"""),
    "triu_": ("diagonal:triangle", "this", "twoaxes whole leaf", """\
>>> weft.ones(2, 2).triu_()
tensor([[1., 1.],
        [0., 1.]])"""),
    "cumsum_": ("dim", "this", "axis leaf", """\
>>> weft.ones(3).cumsum_(0)
tensor([1., 2., 3.])"""),
    "cumprod_": ("dim", "this", "axis leaf", """\
>>> weft.full((3,), 2.0).cumprod_(0)
tensor([2., 4., 8.])"""),
}  # fmt: skip
