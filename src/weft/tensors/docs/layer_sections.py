"""Docstring sections of products, convolutions, normalisations and losses."""

from __future__ import annotations

from typing import Final

from weft.tensors.docs.documented import Row

__all__ = ["CONTRACTION", "CONVOLUTION", "LOSS", "NORMALISATION"]

CONTRACTION: Final[dict[str, Row]] = {
    "matmul": (
        "other : Tensor\n    Shape ``[..., k, n]``, or ``[k]``; this tensor is ``[..., m, k]``, "
        "or ``[k]``.",
        "Tensor\n    Shape ``[..., m, n]``, without the axes that a vector lacks, in the common "
        "dtype; 8- and\n    16-bit floats are summed in float32 and rounded once.",
        "ShapeError\n    If the inner sizes differ, batches do not broadcast, or an operand is "
        "0-d.",
        """\
>>> a = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> a.matmul(weft.tensor([1.0, 1.0])).tolist()
[3.0, 7.0]"""),
    "mm": (
        "other : Tensor\n    Shape ``[k, n]``; this tensor is ``[m, k]``.", "product",
        "ShapeError\n    If an operand is not 2-d, or the inner sizes differ.", """\
>>> weft.tensor([[1, 2], [3, 4]]).mm(weft.eye(2, dtype=weft.int64)).tolist()
[[1, 2], [3, 4]]"""),
    "bmm": (
        "other : Tensor\n    Shape ``[b, k, n]``; this tensor is ``[b, m, k]``.",
        "Tensor\n    Shape ``[b, m, n]``.",
        "ShapeError\n    If an operand is not 3-d, or sizes do not agree.", """\
>>> weft.ones(2, 3, 4).bmm(weft.ones(2, 4, 5)).shape
(2, 3, 5)"""),
    "mv": (
        "other : Tensor\n    Shape ``[k]``; this tensor is ``[m, k]``.",
        "Tensor\n    Shape ``[m]``.",
        "ShapeError\n    If the operands are not 2-d and 1-d, or the inner sizes differ.", """\
>>> weft.tensor([[1, 2], [3, 4]]).mv(weft.tensor([1, 1])).tolist()
[3, 7]"""),
    "dot": ("other:vector", "scalar", "dot", """\
>>> weft.tensor([1, 2, 3]).dot(weft.tensor([1, 1, 2])).item()
9"""),
    "vdot": ("other:vector", "scalar", "dot", """\
>>> weft.tensor([1, 2, 3]).vdot(weft.tensor([1, 1, 2])).item()
9"""),
    "outer": (
        "other : Tensor\n    Shape ``[n]``; this tensor is ``[m]``.",
        "Tensor\n    Shape ``[m, n]``: element i, j is ``self[i] * other[j]``.",
        "ShapeError\n    If an operand is not 1-d.", """\
>>> weft.tensor([1, 2]).outer(weft.tensor([3, 4, 5])).tolist()
[[3, 4, 5], [6, 8, 10]]"""),
    "addmm": (
        ("a, b : Tensor\n    Matrices of shapes ``[m, k]`` and ``[k, n]``; this tensor "
         "broadcasts to ``[m, n]``.",
         "beta, alpha : float\n    Factors of this tensor and of the product."),
        "product", "ShapeError\n    If `a` or `b` is not 2-d, or shapes do not agree.", """\
>>> weft.ones(2).addmm(weft.eye(2), weft.eye(2), alpha=3).tolist()
[[4.0, 1.0], [1.0, 4.0]]"""),
    "linear": (
        ("weight : Tensor\n    Shape ``[out, in]``, or ``[in]``; this tensor is ``[..., in]``.",
         "bias : Tensor, optional\n    Shape ``[out]``."),
        "Tensor\n    Shape ``[..., out]``, without the last axis where the weight is 1-d.",
        ("ShapeError\n    If the last axis is not as long as the weight's last one.",
         "weighttype"),
        """\
>>> x, w = weft.tensor([1.0, 2.0]), weft.tensor([[1.0, 1.0], [0.0, 2.0]])
>>> x.linear(w, weft.tensor([0.5, 0.0])).tolist()
[3.5, 4.0]"""),
    "tensordot": (
        ("other : Tensor\n    The second operand.",
         "dims : int or two sequences of int\n    How many of this tensor's last and of the "
         "other's first axes are summed over; or the\n    axes of the one and those of the "
         "other."),
        "Tensor\n    The axes of this tensor that are left, then those of `other`.",
        "ShapeError\n    If paired axes differ in size, or `dims` is neither.", """\
>>> weft.ones(2, 3, 4).tensordot(weft.ones(4, 3, 5), ([1, 2], [1, 0])).shape
(2, 5)"""),
    "kron": (
        "other : Tensor\n    As many axes as this tensor.",
        "Tensor\n    The size of each axis is the product of both sizes.",
        "ShapeError\n    If the ranks differ.", """\
>>> weft.tensor([1, 2]).kron(weft.tensor([1, 10])).tolist()
[1, 10, 2, 20]"""),
    "trace": (
        "", "Tensor\n    0-d; integers are summed in int64.",
        "AxisError\n    If this tensor is not at least 2-d.", """\
>>> weft.tensor([[1, 2], [3, 4]]).trace().item()
5"""),
    "cosine_similarity": (
        ("other : Tensor\n    Broadcasts with this tensor.",
         "dim : int\n    The axis of the vectors, which the result lacks.",
         "eps : float\n    Norms below it count as `eps`."),
        "Tensor\n    Values in [-1, 1], in a float dtype.", "dim broadcast", """\
>>> weft.tensor([[1.0, 0.0]]).cosine_similarity(weft.tensor([[2.0, 0.0]])).tolist()
[1.0]"""),
}  # fmt: skip

CONVOLUTION: Final[dict[str, Row]] = {
    "conv1d": (
        ("weight : Tensor\n    Shape ``[O, C / groups, K]``; this tensor is ``[N, C, L]`` or "
         "``[C, L]``.",
         "conv2d"),
        "Tensor\n    Shape ``[N, O, L']`` with ``L' = (L + padding - dilation * (K - 1) - 1) // "
        "stride + 1``,\n    where `padding` counts both sides.",
        "conv2d", """\
>>> weft.tensor([[1.0, 2.0, 3.0]]).conv1d(weft.ones(1, 1, 2)).tolist()
[[3.0, 5.0]]"""),
    "conv2d": (
        ("weight : Tensor\n    Shape ``[O, C / groups, KH, KW]``; this tensor is ``[N, C, H, "
         "W]`` or ``[C, H, W]``.",
         "bias",
         "stride, dilation : int or sequence of int\n    Steps between windows, and between "
         "their taps, for each axis; at least 1.",
         "padding : int, sequence of int, \"same\" or \"valid\"\n    Zeros on both sides of "
         "each axis; ``same`` keeps sizes at stride 1.",
         "groups"),
        "Tensor\n    Shape ``[N, O, H', W']``, each size as for `conv1d`.", "kernel weighttype",
        """\
>>> weft.ones(1, 3, 8, 8).conv2d(weft.ones(5, 3, 3, 3), padding=1, stride=2).shape
(1, 5, 4, 4)"""),
    "conv3d": (
        ("weight : Tensor\n    Shape ``[O, C / groups, KD, KH, KW]``; this tensor is ``[N, C, "
         "D, H, W]`` or lacks N.",
         "conv2d"),
        "Tensor\n    Shape ``[N, O, D', H', W']``, each size as for `conv1d`.", "conv2d", """\
>>> weft.ones(1, 2, 4, 4, 4).conv3d(weft.ones(3, 2, 3, 3, 3), padding="same").shape
(1, 3, 4, 4, 4)"""),
    "conv_transpose1d": (
        ("weight : Tensor\n    Shape ``[C, O / groups, K]``; this tensor is ``[N, C, L]``.",
         "conv_transpose2d"),
        "Tensor\n    Shape ``[N, O, L']`` with ``L' = (L - 1) * stride - 2 * padding + dilation "
        "* (K - 1) +\n    output_padding + 1``.",
        "conv_transpose2d", """\
>>> weft.tensor([[[1.0, 2.0]]]).conv_transpose1d(weft.ones(1, 1, 2), stride=2).tolist()
[[[1.0, 1.0, 2.0, 2.0]]]"""),
    "conv_transpose2d": (
        ("weight : Tensor\n    Shape ``[C, O / groups, KH, KW]``; this tensor is ``[N, C, H, "
         "W]``.",
         "bias",
         "stride, padding, dilation : int or sequence of int\n    Those of the convolution "
         "whose adjoint this is.",
         "output_padding : int or sequence of int\n    Elements added at the end of each axis.",
         "groups"),
        "Tensor\n    Shape ``[N, O, H', W']``, each size as for `conv_transpose1d`.",
        "kernel weighttype", """\
>>> weft.ones(1, 3, 4, 4).conv_transpose2d(weft.ones(3, 5, 2, 2), stride=2).shape
(1, 5, 8, 8)"""),
    "conv_transpose3d": (
        ("weight : Tensor\n    Shape ``[C, O / groups, KD, KH, KW]``; this tensor is ``[N, C, "
         "D, H, W]``.",
         "conv_transpose2d"),
        "Tensor\n    Shape ``[N, O, D', H', W']``, each size as for `conv_transpose1d`.",
        "conv_transpose2d", """\
>>> weft.ones(1, 2, 2, 2, 2).conv_transpose3d(weft.ones(2, 1, 2, 2, 2), stride=2).shape
(1, 1, 4, 4, 4)"""),
    "max_pool1d": ("max_pool2d", "pooledmax", "pool", """\
>>> weft.tensor([[1, 3, 2, 4]]).max_pool1d(2).tolist()
[[3, 4]]"""),
    "max_pool2d": (
        ("kernel_size",
         "padding, dilation : int or sequence of int\n    Border of the lowest value, at most "
         "half a window; step between the elements of a\n    window.",
         "ceil_mode",
         "return_indices : bool\n    Whether to return indices into the flattened spatial "
         "axes, too."),
        "pooledmax", "pool", """\
>>> weft.arange(16).reshape(1, 4, 4).max_pool2d(2).tolist()
[[[5, 7], [13, 15]]]"""),
    "max_pool3d": ("max_pool2d", "pooledmax", "pool", """\
>>> weft.ones(1, 2, 4, 4, 4).max_pool3d(2).shape
(1, 2, 2, 2, 2)"""),
    "avg_pool1d": ("avg_pool1d", "pooled", "pool", """\
>>> weft.tensor([[1.0, 3.0, 2.0, 4.0]]).avg_pool1d(2).tolist()
[[2.0, 3.0]]"""),
    "avg_pool2d": (
        ("kernel_size",
         "padding : int or sequence of int\n    Zeros on both sides of each axis, at most half "
         "a window.",
         "ceil_mode",
         "count_include_pad : bool\n    Whether the padding counts as elements of a mean.",
         "divisor_override : int, optional\n    By what sums are divided, in place of their "
         "number of elements."),
        "pooled", "pool", """\
>>> weft.arange(16.0).reshape(1, 4, 4).avg_pool2d(2).tolist()
[[[2.5, 4.5], [10.5, 12.5]]]"""),
    "avg_pool3d": ("avg_pool2d", "pooled", "pool", """\
>>> weft.ones(1, 2, 4, 4, 4).avg_pool3d(2).shape
(1, 2, 2, 2, 2)"""),
    "adaptive_avg_pool1d": (
        "output_size : int\n    Elements of the result's last axis; None keeps the size.",
        "Tensor\n    Shape ``[..., output_size]``.",
        "ShapeError\n    If there is no axis, or a size is below 1.", """\
>>> weft.tensor([[1.0, 3.0, 2.0, 4.0]]).adaptive_avg_pool1d(2).tolist()
[[2.0, 3.0]]"""),
    "adaptive_avg_pool2d": ("output_size", "parts", "poolsize", """\
>>> weft.ones(1, 8, 7, 7).adaptive_avg_pool2d(1).shape
(1, 8, 1, 1)"""),
    "adaptive_avg_pool3d": (
        "output_size : int or sequence of int\n    Elements of the last three axes.",
        "Tensor\n    Shape ``[..., D', H', W']``.", "poolsize", """\
>>> weft.ones(1, 8, 4, 4, 4).adaptive_avg_pool3d(1).shape
(1, 8, 1, 1, 1)"""),
    "adaptive_max_pool1d": (
        ("output_size : int\n    Elements of the result's last axis; None keeps the size.",
         "return_indices"),
        "Tensor\n    Shape ``[..., output_size]``; with places, a named tuple.", "poolsize", """\
>>> weft.tensor([[1.0, 3.0, 2.0, 4.0]]).adaptive_max_pool1d(2).tolist()
[[3.0, 4.0]]"""),
    "adaptive_max_pool3d": (
        ("output_size : int or sequence of int\n    Elements of the last three axes.",
         "return_indices"),
        "Tensor\n    Shape ``[..., D', H', W']``; with places, a named tuple.", "poolsize", """\
>>> weft.ones(1, 8, 4, 4, 4).adaptive_max_pool3d(1).shape
(1, 8, 1, 1, 1)"""),
    "adaptive_max_pool2d": ("output_size return_indices", "parts", "poolsize", """\
>>> weft.arange(6.0).reshape(1, 2, 3).adaptive_max_pool2d((1, 3)).tolist()
[[[3.0, 4.0, 5.0]]]"""),
    "interpolate_nearest": (
        "scale : int\n    How often each pixel is repeated along both axes.",
        "Tensor\n    Shape ``[..., H * scale, W * scale]``.",
        "AxisError\n    If there are fewer than two axes.", """\
>>> weft.tensor([[1, 2]]).interpolate_nearest(2).tolist()
[[1, 1, 2, 2], [1, 1, 2, 2]]"""),
}  # fmt: skip

NORMALISATION: Final[dict[str, Row]] = {
    "softmax": ("dim:softmax dtype:softmax", "normalised", "dim", """\
>>> weft.tensor([0.0, 0.0]).softmax(0).tolist()
[0.5, 0.5]"""),
    "log_softmax": (
        ("dim : int\n    The axis over which the exponentials sum to 1.", "dtype:softmax"),
        "normalised", "dim", """\
>>> weft.tensor([0.0, 1000.0]).log_softmax(0).tolist()
[-1000.0, 0.0]"""),
    "softmin": ("dim:softmax", "normalised", "dim", """\
>>> weft.tensor([3.0, 3.0]).softmin().tolist()
[0.5, 0.5]"""),
    "layer_norm": (
        ("normalized_shape",
         "weight, bias : Tensor, optional\n    Factor and offset of each element, of shape "
         "`normalized_shape`.",
         "eps:variance"),
        "Tensor\n    The shape of this tensor; 16-bit floats compute in float32.", "lastaxes", """\
>>> weft.tensor([[1.0, 3.0]]).layer_norm(2, eps=0.0).tolist()
[[-1.0, 1.0]]"""),
    "rms_norm": (
        ("normalized_shape",
         "weight : Tensor, optional\n    Factor of each element, of shape `normalized_shape`.",
         "eps : float, optional\n    Added to the mean square; by default the dtype's smallest "
         "step from 1."),
        "shape", "lastaxes", """\
>>> weft.tensor([[2.0, 2.0]]).rms_norm(2, eps=0.0).tolist()
[[1.0, 1.0]]"""),
    "batch_norm": (
        ("running_mean, running_var : Tensor, optional\n    Statistics of shape ``[C]``; this "
         "tensor is ``[N, C, ...]``.",
         "weight:channels",
         "training : bool\n    Whether the batch's own statistics are used and the running "
         "ones updated.",
         "momentum : float\n    Share of the batch in the new running statistics.",
         "eps:variance"),
        "shape",
        "ShapeError\n    With fewer than two axes, one running statistic without the other, or "
        "one value for each\n    channel when training.",
        """\
>>> weft.tensor([[1.0], [3.0]]).batch_norm(training=True, eps=0.0).tolist()
[[-1.0], [1.0]]"""),
    "group_norm": (
        ("num_groups : int\n    Divides the channels C of ``[N, C, ...]``.",
         "weight:channels eps:variance"),
        "shape", "ShapeError\n    If the channels do not divide into groups.", """\
>>> weft.tensor([[1.0, 3.0, 5.0, 7.0]]).group_norm(2, eps=0.0).tolist()
[[-1.0, 1.0, -1.0, 1.0]]"""),
    "instance_norm": (
        ("weight, bias : Tensor, optional\n    Factor and offset of each channel, of shape "
         "``[C]``; this tensor is ``[N, C, ...]``.",
         "eps:variance"),
        "shape", "ShapeError\n    If there are no channels.", """\
>>> weft.tensor([[[1.0, 3.0]]]).instance_norm(eps=0.0).tolist()
[[[-1.0, 1.0]]]"""),
    "scaled_dot_product_attention": (
        ("key, value : Tensor\n    Shapes ``[..., S, E]`` and ``[..., S, V]``; this tensor is "
         "``[..., L, E]``.",
         "attn_mask : Tensor, optional\n    Booleans (True takes part) or floats that are "
         "added; broadcast to the scores. The result\n    of a query that may see no key is 0, "
         "and no gradient flows through it.",
         "dropout_p : float\n    0 here; `weft.nn.functional` drops weights.",
         "is_causal : bool\n    Let query i see keys 0 to i.",
         "scale : float, optional\n    By default ``1 / sqrt(E)``.",
         "enable_gqa : bool\n    Let groups of query heads share one key and value head."),
        "Tensor\n    Shape ``[..., L, V]``, in the dtype of this tensor.",
        "ShapeError\n    If shapes do not agree, or `dropout_p` is not 0.", """\
>>> q, k, v = weft.ones(1, 2), weft.ones(2, 2), weft.tensor([[0.0], [1.0]])
>>> q.scaled_dot_product_attention(k, v).tolist()
[[0.5]]"""),
    "attention_weights": (
        ("key : Tensor\n    Shape ``[..., S, E]``; this tensor is ``[..., L, E]``.",
         "attn_mask, is_causal, scale, enable_gqa\n    As for `scaled_dot_product_attention`."),
        "Tensor\n    Shape ``[..., L, S]``; each row sums to 1, or is 0 where a query sees no "
        "key.",
        "ShapeError\n    If shapes do not agree.", """\
>>> weft.ones(2, 4).attention_weights(weft.ones(2, 4), is_causal=True).tolist()
[[1.0, 0.0], [0.5, 0.5]]"""),
}  # fmt: skip

LOSS: Final[dict[str, Row]] = {
    "mse_loss": ("target reduction", "losses", "target floatresult", """\
>>> weft.tensor([1.0, 4.0]).mse_loss(weft.tensor([1.0, 2.0])).item()
2.0"""),
    "triplet_margin_loss": (
        ("positive, negative\n    Examples that are to be near and far, of shape ``[N, D]`` as "
         "this tensor.",
         "margin\n    How much nearer the positive example is to be; at least 0.",
         "p, eps\n    ``d(a, b)`` is the norm of order `p` of ``a - b + eps`` along the last "
         "axis.",
         "swap\n    Whether the distance of both examples counts where it is smaller (Balntas "
         "et al. 2016).",
         "reduction\n    ``mean``, ``sum`` or ``none``."),
        "", "RangeError\n    If the margin is negative.", """\
>>> weft.ones(1, 2).triplet_margin_loss(weft.ones(1, 2), weft.zeros(1, 2)).item()
0.0"""),
    "l1_loss": ("target reduction", "losses", "target floatresult", """\
>>> weft.tensor([1.0, 4.0]).l1_loss(weft.tensor([1.0, 2.0])).item()
1.0"""),
    "smooth_l1_loss": (
        ("target reduction",
         "beta : float\n    Where the forms meet: ``0.5 * e**2 / beta`` below, ``e - 0.5 * "
         "beta`` above."),
        "losses", "target floatresult", """\
>>> weft.tensor([0.5, 3.0]).smooth_l1_loss(weft.zeros(2), reduction="none").tolist()
[0.125, 2.5]"""),
    "huber_loss": (
        ("target reduction",
         "delta : float\n    Where the forms meet: ``0.5 * e**2`` below, ``delta * (e - 0.5 * "
         "delta)`` above."),
        "losses", ("RangeError\n    If `delta` is not above 0.", "target floatresult"), """\
>>> weft.tensor([0.5, 3.0]).huber_loss(weft.zeros(2), "none", delta=2.0).tolist()
[0.125, 4.0]"""),
    "nll_loss": (
        ("target : Tensor\n    Integers of shape ``[N, ...]``; this tensor holds "
         "log-probabilities, ``[N, C, ...]``, or\n    ``[C]`` for one sample.",
         "weight:classes",
         "ignore_index : int\n    Targets that do not count.",
         "reduction"),
        "Tensor\n    0-d, or the shape of `target`.",
        ("ShapeError\n    If shapes do not agree, the targets are no integers, or the "
         "reduction is unknown.",
         "class"),
        """\
>>> weft.tensor([[-0.5, -2.0]]).nll_loss(weft.tensor([1])).item()
2.0"""),
    "cross_entropy": (
        ("target : Tensor\n    Integers of shape ``[N, ...]``, or probabilities of the shape "
         "of this tensor, ``[N, C,\n    ...]`` (``[C]`` for one sample).",
         "weight:classes",
         "ignore_index : int\n    Class indices that do not count.",
         "reduction",
         "label_smoothing : float\n    Share of the target that is spread over all classes, 0 "
         "to 1."),
        "Tensor\n    0-d, or the shape of the targets without classes.",
        ("ShapeError\n    If shapes do not agree, or the reduction is unknown.",
         "RangeError\n    If `label_smoothing` is not 0 to 1.",
         "class"),
        """\
>>> loss = weft.zeros(3, 4).cross_entropy(weft.tensor([0, 1, 3]))
>>> round(loss.item(), 4)  # the logarithm of 4
1.3863"""),
    "binary_cross_entropy": (
        "target:probability weight:losses reduction", "losses", "target floatresult", """\
>>> round(weft.tensor([0.5]).binary_cross_entropy(weft.tensor([1.0])).item(), 4)
0.6931"""),
    "binary_cross_entropy_with_logits": (
        ("target:probability weight:losses",
         "pos_weight : Tensor, optional\n    Factor of the part of the loss that belongs to "
         "targets of 1.",
         "reduction"),
        "losses", "target floatresult", """\
>>> loss = weft.tensor([0.0]).binary_cross_entropy_with_logits(weft.tensor([1.0]))
>>> round(loss.item(), 4)
0.6931"""),
    "kl_div": (
        ("target : Tensor\n    Probabilities, or their logarithms; broadcasts to the shape of "
         "this tensor.",
         "reduction : {\"mean\", \"batchmean\", \"sum\", \"none\"}\n    ``batchmean`` divides "
         "the sum by the size of axis 0.",
         "log_target : bool\n    Whether the target holds logarithms."),
        "losses", "target floatresult", """\
>>> weft.tensor([[0.0]]).kl_div(weft.tensor([[1.0]]), "batchmean").item()
0.0"""),
}  # fmt: skip
