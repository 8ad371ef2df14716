"""Docstring sections of composed methods: parts, products, statistics, searches."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["COMPOSED", "SEARCHING", "SPECIAL", "STATISTICS"]

COMPOSED: Final[dict[str, Row]] = {
    "fliplr": ("", "running", "twoaxes", """\
>>> weft.tensor([[1, 2]]).fliplr()
tensor([[2, 1]])"""),
    "flipud": ("", "running", "ShapeError\n    If there is no axis.", """\
>>> weft.tensor([1, 2]).flipud()
tensor([2, 1])"""),
    "rot90": (
        ("k : int, optional\n    How many right angles.",
         "dims : pair of int, optional\n    The axes of the plane."),
        "Tensor\n    With the two axes exchanged if `k` is odd.", "diagonal", """\
>>> weft.tensor([[1, 2], [3, 4]]).rot90()
tensor([[2, 4],
        [1, 3]])"""),
    "swapdims": ("dim0, dim1 : int\n    The axes.", "view", "dim", """\
>>> weft.ones(2, 3).swapdims(0, 1).shape
(3, 2)"""),
    "adjoint": ("", "view", "twoaxes", """\
>>> weft.ones(2, 3).adjoint().shape
(3, 2)"""),
    "hsplit": ("sections", "views", "divisible", """\
>>> [p.shape for p in weft.ones(2, 4).hsplit(2)]
[(2, 2), (2, 2)]"""),
    "vsplit": ("sections", "views", "divisible", """\
>>> [p.shape for p in weft.ones(2, 4).vsplit(2)]
[(1, 4), (1, 4)]"""),
    "diagflat": (
        "offset : int, optional\n    0 for the main diagonal, above it if positive.", "matrix",
        "DTypeError\n    If `offset` is no whole number.", """\
>>> weft.tensor([1, 2]).diagflat()
tensor([[1, 0],
        [0, 2]])"""),
    "as_strided": (
        ("size : sequence of int\n    The shape.",
         "stride : sequence of int\n    Steps along the axes, in elements of the memory.",
         "storage_offset : int, optional\n    The first element; by default that of this tensor."),
        "Tensor\n    A view; where elements share a place it can be read, and not be written.",
        ("ShapeError\n    If the view reaches past the memory, or strides do not belong to the "
         "sizes.",
         "RangeError\n    If a stride or the offset is negative."),
        """\
>>> weft.arange(6).as_strided((2, 2), (3, 1), 1)
tensor([[1, 2],
        [4, 5]])"""),
    "index_put": (
        ("indices : sequence of Tensor\n    One for each of the first axes.",
         "values : Tensor or number\n    Broadcast with the places.",
         "accumulate : bool, optional\n    Whether values are added."),
        "same",
        ("ShapeError\n    If the indices are not all tensors, or shapes do not broadcast.",
         "range:index"),
        """\
>>> weft.zeros(3).index_put((weft.tensor([1]),), weft.tensor(2.0))
tensor([0., 2., 0.])"""),
    "put": (
        ("index : Tensor of integers\n    Places; negative ones count from the end.",
         "source : Tensor\n    As many elements.",
         "accumulate : bool, optional\n    Whether elements are added."),
        "same", ("range:index", "ShapeError\n    If there are not as many elements as places."),
        """\
>>> weft.zeros(2, 2).put(weft.tensor([3]), weft.tensor([1.0]))
tensor([[0., 0.],
        [0., 1.]])"""),
    "put_": (
        "index, source, accumulate\n    As for `put`.", "this",
        ("BoundsError, ShapeError\n    As for `put`.", "leaf"), """\
>>> weft.zeros(2).put_(weft.tensor([1]), weft.tensor([1.0]))
tensor([0., 1.])"""),
    "select_scatter": (
        ("src:slice", "dim : int\n    The axis.", "index : int\n    Which slice."), "same",
        "dim index", """\
>>> weft.zeros(2, 2).select_scatter(weft.ones(2), 0, 1)
tensor([[0., 0.],
        [1., 1.]])"""),
    "slice_scatter": (
        ("src:slice",
         "dim : int, optional\n    The axis.",
         "start, end, step : int, optional\n    The slice."),
        "same", "dim srcshape", """\
>>> weft.zeros(4).slice_scatter(weft.ones(2), 0, 1, 3)
tensor([0., 1., 1., 0.])"""),
    "diagonal_scatter": (
        ("src : Tensor\n    Of the shape of the diagonal.",
         "offset, dim1, dim2 : int, optional\n    As for `diagonal`."),
        "same", "dim srcshape", """\
>>> weft.zeros(2, 2).diagonal_scatter(weft.ones(2))
tensor([[1., 0.],
        [0., 1.]])"""),
    "fill_diagonal_": (
        ("fill_value : number\n    The new value.", "wrap : bool, optional\n    Not supported."),
        "this", ("twoaxes", "UnsupportedError\n    With `wrap`."), """\
>>> weft.zeros(2, 2).fill_diagonal_(1)
tensor([[1., 0.],
        [0., 1.]])"""),
    "inner": (
        "other : Tensor\n    With the same last axis; numbers multiply.",
        "Tensor\n    The other axes of both, one after the other.",
        "ShapeError\n    If the last axes differ.", """\
>>> weft.tensor([1, 2]).inner(weft.tensor([3, 4])).item()
11"""),
    "ger": (
        "other : Tensor\n    A vector.", "matrix", "ShapeError\n    If these are no vectors.", """\
>>> weft.tensor([1, 2]).ger(weft.tensor([3, 4]))
tensor([[3, 4],
        [6, 8]])"""),
    "addmv": (
        ("mat, vec : Tensor\n    A matrix and a vector.", "beta:alpha"), "Tensor\n    A vector.",
        "agree", """\
>>> weft.ones(2).addmv(weft.ones(2, 3), weft.ones(3))
tensor([4., 4.])"""),
    "addr": (("vec1, vec2 : Tensor\n    Vectors.", "beta:alpha"), "matrix", "agree", """\
>>> weft.zeros(1, 2).addr(weft.ones(1), weft.ones(2))
tensor([[1., 1.]])"""),
    "baddbmm": (
        ("batch1, batch2 : Tensor\n    Of three axes.", "beta:alpha"),
        "Tensor\n    Of three axes.", "agree", """\
>>> weft.zeros(1, 1, 1).baddbmm(weft.ones(1, 1, 2), weft.ones(1, 2, 1))
tensor([[[2.]]])"""),
    "cross": (
        ("other:list", "dim : int, optional\n    The axis of the vectors."), "broadcast",
        ("ShapeError\n    If the axis has not three elements.", "dim"), """\
>>> weft.tensor([1.0, 0.0, 0.0]).cross(weft.tensor([0.0, 1.0, 0.0]))
tensor([0., 0., 1.])"""),
    "matrix_power": (
        "n:whole", "same", ("ShapeError\n    If the matrices are not square.", "times"), """\
>>> weft.tensor([[1.0, 1.0], [0.0, 1.0]]).matrix_power(3)
tensor([[1., 3.],
        [0., 1.]])"""),
    "type_as": ("other : Tensor\n    Whose dtype is taken.", "running", "tensor", """\
>>> weft.tensor([1.5]).type_as(weft.tensor([1]))
tensor([1])"""),
    "short": ("", "Tensor of int16\n    Of the same shape; fractions are cut off.", "", """\
>>> weft.tensor([1.5]).short().dtype.name
'int16'"""),
    "char": ("", "Tensor of int8\n    Of the same shape; fractions are cut off.", "", """\
>>> weft.tensor([1.5]).char().dtype.name
'int8'"""),
    "byte": ("", "Tensor of uint8\n    Of the same shape; fractions are cut off.", "", """\
>>> weft.tensor([1.5]).byte().dtype.name
'uint8'"""),
    "nelement": ("", "int\n    The product of the sizes.", "", """\
>>> weft.ones(2, 3).nelement()
6"""),
    "ndimension": ("", "int\n    The length of the shape.", "", """\
>>> weft.ones(2, 3).ndimension()
2"""),
    "is_signed": ("", "bool\n    By the dtype.", "", """\
>>> weft.tensor([1.0]).is_signed()
True"""),
    "is_complex": ("", "bool\n    False.", "", """\
>>> weft.tensor([1.0]).is_complex()
False"""),
    "is_nonzero": ("", "bool\n    Its truth.", "ShapeError\n    If there is not one element.", """\
>>> weft.tensor([2.0]).is_nonzero()
True"""),
    "is_same_size": ("other:any", "bool\n    By the shapes.", "tensor", """\
>>> weft.ones(2).is_same_size(weft.zeros(2))
True"""),
    "new_zeros": ("size:new options:new", "new", "negative", """\
>>> weft.ones(2, dtype=weft.int8).new_zeros(3).dtype.name
'int8'"""),
    "new_ones": ("size:new options:new", "new", "negative", """\
>>> weft.ones(2, dtype=weft.int8).new_ones(3).dtype.name
'int8'"""),
    "new_empty": ("size:new options:new", "new", "negative", """\
>>> weft.ones(2, dtype=weft.int8).new_empty(3).dtype.name
'int8'"""),
    "new_full": (
        ("size:one", "fill_value : number\n    The value.", "options:new"), "new",
        ("negative", "RangeError\n    If the dtype cannot hold the value."), """\
>>> weft.ones(2).new_full((2,), 3)
tensor([3., 3.])"""),
    "new_tensor": (
        ("data : number, nested lists, array or Tensor\n    As for `weft.tensor`.", "options:new"),
        "Tensor\n    Without history.",
        ("RangeError\n    If the dtype cannot hold a value.",
         "ShapeError\n    If lists are ragged."),
        """\
>>> weft.ones(2).new_tensor([1, 2])
tensor([1., 2.])"""),
    "uniform_": (
        ("low, high : float, optional\n    From `low` on, below `high`.", "generator:own"),
        "this", ("floatresult", "RangeError\n    If `low` is above `high`.", "leaf"), """\
>>> weft.empty(3).uniform_(2, 2).tolist()
[2.0, 2.0, 2.0]"""),
    "normal_": (
        ("mean, std : float, optional\n    Of the distribution.", "generator:own"), "this",
        ("floatresult", "RangeError\n    If `std` is negative.", "leaf"), """\
>>> weft.empty(3).normal_(1.0, 0.0).tolist()
[1.0, 1.0, 1.0]"""),
    "bernoulli_": (
        ("p : float or Tensor\n    The probability of 1.", "generator:own"), "this",
        ("RangeError\n    If a number `p` is not 0 to 1.", "leaf"), """\
>>> weft.empty(3).bernoulli_(1.0).tolist()
[1.0, 1.0, 1.0]"""),
    "random_": (
        ("low : int, optional\n    The least; the end, if it is alone.",
         "high : int, optional\n    The end; by default what the dtype holds exactly.",
         "generator:own"),
        "this", ("RangeError\n    If there is no number in between.", "leaf"), """\
>>> weft.empty(3).random_(5, 6).tolist()
[5.0, 5.0, 5.0]"""),
}  # fmt: skip

SEARCHING: Final[dict[str, Row]] = {
    "argwhere": ("", "Tensor of int64\n    Of shape ``[count, axes]``.", "capture", """\
>>> weft.tensor([[0, 1], [2, 0]]).argwhere()
tensor([[0, 1],
        [1, 0]])"""),
    "searchsorted": (
        ("values : Tensor or number\n    Of any shape; with more axes than one, rows of this "
         "tensor's leading shape.",
         "right : bool, optional\n    Whether equal elements stand before a value: that of "
         "``side=\"right\"``.",
         "side : {'left', 'right'}, optional\n    NumPy's name of it.",
         "sorter : Tensor, optional\n    The order that sorts this tensor, if it is not sorted."),
        "Tensor of int64\n    Of the shape of `values`.",
        ("ShapeError\n    If leading axes differ.", "RangeError\n    If `side` is unknown."), """\
>>> weft.tensor([1, 3, 5]).searchsorted(weft.tensor([0, 3, 6]))
tensor([0, 1, 3])"""),
    "bucketize": (
        ("boundaries : Tensor\n    A sorted vector.",
         "right : bool, optional\n    Whether an element that equals a boundary lies behind it."),
        "Tensor of int64\n    Of the same shape, 0 to the number of boundaries.",
        "ShapeError\n    If the boundaries are no vector.", """\
>>> weft.tensor([0, 3, 6]).bucketize(weft.tensor([1, 3, 5]))
tensor([0, 1, 3])"""),
    "isin": (
        ("elements : Tensor, array, nested list or number\n    Of any shape.",
         "invert : bool, optional\n    Whether it is *not* among them."),
        "Tensor of bool\n    Of this tensor's shape.",
        "DTypeError\n    If the elements are no numbers.", """\
>>> weft.tensor([1, 2, 3]).isin([2, 4])
tensor([False,  True, False])"""),
    "unique_consecutive": (
        ("return_inverse : bool, optional\n    Also return the place of each element's run.",
         "return_counts : bool, optional\n    Also return how long each run is."),
        "Tensor, or tuple of Tensor\n    A vector; then the inverse, of this shape, and the "
        "counts, both int64.",
        "capture", """\
>>> weft.tensor([1, 1, 2, 2, 1]).unique_consecutive()
tensor([1, 2, 1])"""),
}  # fmt: skip

SPECIAL: Final[dict[str, Row]] = {
    "sgn": ("", "same", "", """\
>>> weft.tensor([-2.0, 0.0]).sgn()
tensor([-1., 0.])"""),
    "signbit": ("", "bools", "", """\
>>> weft.tensor([-0.0, 1.0]).signbit()
tensor([ True, False])"""),
    "isposinf": ("", "bools", "", """\
>>> weft.tensor([float("inf"), 1.0]).isposinf()
tensor([ True, False])"""),
    "isneginf": ("", "bools", "", """\
>>> weft.tensor([-float("inf"), 1.0]).isneginf()
tensor([ True, False])"""),
    "isreal": ("", "bools", "", """\
>>> weft.tensor([1.0]).isreal()
tensor([ True])"""),
    "heaviside": (
        "values : Tensor or number\n    The results at 0, broadcast with this tensor.",
        "broadcast", "broadcast", """\
>>> weft.tensor([-1.0, 0.0, 2.0]).heaviside(0.5)
tensor([0.0000, 0.5000, 1.0000])"""),
    "logit": (
        "eps : float, optional\n    None limits nothing.", "samefloat",
        "DTypeError\n    If `eps` is no number.", """\
>>> weft.tensor([0.5]).logit()
tensor([0.])"""),
    "sinc": ("", "samefloat", "", """\
>>> weft.tensor([0.0, 1.0]).sinc().abs().lt(1e-6)
tensor([False,  True])"""),
    "xlogy": ("other:list", "broadcastfloat", "broadcast", """\
>>> weft.tensor([0.0, 2.0]).xlogy(weft.tensor([0.0, 1.0]))
tensor([0., 0.])"""),
    "logaddexp2": ("other:list", "broadcastfloat", "broadcast", """\
>>> weft.tensor([0.0]).logaddexp2(weft.tensor([0.0]))
tensor([1.])"""),
    "float_power": (
        "exponent : Tensor or number\n    Broadcast with this tensor.",
        "Tensor of float64\n    Of the broadcast shape.", "broadcast", """\
>>> weft.tensor([2, 3]).float_power(2)
tensor([4., 9.], dtype=weft.float64)"""),
    "ldexp": ("other:list", "broadcastfloat", "broadcast", """\
>>> weft.tensor([1.0]).ldexp(weft.tensor([3]))
tensor([8.])"""),
    "rsub": (
        ("other:list", "alpha : number, optional\n    A factor of this tensor."), "broadcast",
        "broadcast", """\
>>> weft.tensor([1.0]).rsub(3)
tensor([2.])"""),
    "equal": ("other:any", "bool\n    False where the shapes differ.", "tensor", """\
>>> weft.tensor([1, 2]).equal(weft.tensor([1, 2]))
True"""),
}  # fmt: skip

STATISTICS: Final[dict[str, Row]] = {
    "nansum": ("dim:all keepdim:plain", "reduced", "dim", """\
>>> weft.tensor([1.0, float("nan")]).nansum()
tensor(1.)"""),
    "nanmean": ("dim:all keepdim:plain", "reduced", "dim floatresult", """\
>>> weft.tensor([1.0, float("nan")]).nanmean()
tensor(1.)"""),
    "std_mean": (
        ("dim:all",
         "correction : number, optional\n    Squares are divided by ``n - correction``.",
         "keepdim:plain"),
        "tuple of two Tensor\n    As of `std` and `mean`.", "dim floatresult", """\
>>> weft.tensor([1.0, 2.0, 3.0]).std_mean()
(tensor(1.), tensor(2.))"""),
    "quantile": (
        ("q : float or Tensor\n    From 0 to 1; of a vector, the results stand along a new "
         "first axis.",
         "dim:quantile keepdim:plain",
         "interpolation : {'linear', 'lower', 'higher', 'nearest', 'midpoint'}\n    What is "
         "given between two elements."),
        "Tensor\n    Without the axis, with one for a vector of quantiles in front.",
        "dim floatresult quantile", """\
>>> weft.arange(5.0).quantile(0.3)
tensor(1.2000)"""),
    "nanquantile": (
        ("q : float or Tensor\n    As for `quantile`.",
         "dim:quantile keepdim:plain",
         "interpolation : {'linear', 'lower', 'higher', 'nearest', 'midpoint'}\n    As for "
         "`quantile`."),
        "Tensor\n    As of `quantile`.", "dim floatresult quantile", """\
>>> weft.tensor([1.0, float("nan"), 3.0]).nanquantile(0.5)
tensor(2.)"""),
    "mode": (
        "dim:optional keepdim:plain",
        "ValuesIndices\n    Values, and the places where they are found last.", "dim", """\
>>> weft.tensor([1, 2, 2, 3, 3]).mode().values
tensor(2)"""),
    "msort": ("", "same", "", """\
>>> weft.tensor([3, 1]).msort()
tensor([1, 3])"""),
    "dist": (
        ("other:list", "p : number, optional\n    Of the norm."), "Tensor\n    0-d.",
        "broadcast floatresult", """\
>>> weft.tensor([0.0, 0.0]).dist(weft.tensor([3.0, 4.0]))
tensor(5.)"""),
    "cov": (
        "correction : number, optional\n    Sums are divided by ``n - correction``.",
        "covariance", "mosttwo floatresult", """\
>>> weft.tensor([[1.0, 2.0], [2.0, 4.0]]).cov()
tensor([[0.5000, 1.0000],
        [1.0000, 2.0000]])"""),
    "corrcoef": ("", "covariance", "", """\
>>> weft.tensor([[1.0, 2.0], [2.0, 4.0]]).corrcoef()
tensor([[1., 1.],
        [1., 1.]])"""),
    "bincount": (
        ("weights : Tensor, optional\n    What each element counts; of this shape.",
         "minlength : int, optional\n    The least size of the result."),
        "Tensor\n    A vector: int64, or of the weights' float type.",
        ("DTypeError\n    If the elements are no integers.",
         "RangeError\n    If there is a negative one.",
         "ShapeError\n    If there is not one axis, or the weights have another shape."),
        """\
>>> weft.tensor([0, 1, 1, 3]).bincount()
tensor([1, 2, 0, 1])"""),
    "histc": (
        ("bins : int, optional\n    How many.",
         "min, max : float, optional\n    The ends, by default of the elements; what lies "
         "outside does not count."),
        "Tensor\n    A vector of the same dtype.",
        ("RangeError\n    If `bins` is below 1, or `max` below `min`.", "floatresult"), """\
>>> weft.tensor([1.0, 2.0, 1.0]).histc(bins=4, min=0, max=3)
tensor([0., 2., 1., 0.])"""),
}  # fmt: skip
