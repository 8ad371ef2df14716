"""Docstring entries that layers share, for `weft.tensors.docs.documented.fill_docstrings`."""

from __future__ import annotations

from typing import Final

__all__ = ["SECTIONS"]

# By name; of entries that mean something else elsewhere, by name and what tells them apart.
SECTIONS: Final = {
    # inputs of functions
    "x": """x : Tensor
    Of any shape.""",
    "x:channels": """x : Tensor
    Shape ``[N, C, ...]``.""",
    "tensor": """tensor : Tensor
    Changed in place, without a gradient.""",
    "tensor:weights": """tensor : Tensor
    Of at least two axes, out × in × taps; changed in place, without a gradient.""",
    "bounds": """a, b : float
    The bounds.""",
    "gain": """gain : float
    As of `calculate_gain`.""",
    "training": """training : bool
    False returns `x` itself.""",
    "is_causal": """is_causal : bool
    Let query i see keys 0 to i.""",
    # activations
    "inplace": """inplace : bool
    Whether the result is written to the input, too.""",
    "p": """p : float
    0 to 1.""",
    "threshold": """threshold, value : float
    Where it is, and what takes the others' place.""",
    "lambd": """lambd : float
    The limit.""",
    "dim": """dim : int
    The axis.""",
    # layers with parameters
    "dtype": """dtype : DType, optional
    That of the parameters; float32 by default.""",
    "bias": """bias : bool
    Whether there is an offset.""",
    "channels": """in_channels, out_channels : int
    C and O; both are multiples of `groups`.
kernel_size : int or sequence of int
    Taps along each spatial axis.""",
    "groups": """groups : int
    Channels are cut into as many groups that do not mix.
bias : bool
    Whether each output channel has an offset.""",
    "steps": """stride, dilation : int or sequence of int
    Steps between windows, and between their taps.
padding : int, sequence of int, "same" or "valid"
    Border on both sides of each axis.""",
    "padding_mode": """padding_mode : {"zeros", "reflect", "replicate", "circular"}
    What the border holds.""",
    "padding_mode:zeros": """padding_mode : {"zeros"}
    What the border holds.""",
    "weight:convolution": """weight, bias : Parameter
    Shapes ``[O, C / groups, *kernel_size]`` and ``[O]``.""",
    "convolution": """ShapeError, RangeError
    If channels do not divide by the groups, or the padding mode is unknown.""",
    "adjoint": """stride, padding, dilation : int or sequence of int
    Those of the convolution whose adjoint this is.
output_padding : int or sequence of int
    Elements added at the end of each axis.""",
    "weight:adjoint": """weight, bias : Parameter
    Shapes ``[C, O / groups, *kernel_size]`` and ``[O]``.""",
    # normalisation
    "num_features": """num_features : int
    The channels C.""",
    "eps": """eps : float
    Added to the variance.""",
    "affine": """affine : bool
    Whether each channel has a factor `weight` and an offset `bias`, of shape ``[C]``.""",
    "bias:affine": """bias : bool
    False for factors without offsets.""",
    "statistics": """momentum : float or None
    Share of a batch in the new running statistics; None takes the mean of all batches.""",
    "track_running_stats": """track_running_stats : bool
    Whether there are running statistics, which `eval` uses.""",
    "normalized_shape": """normalized_shape : int or sequence of int
    The sizes of the last axes.""",
    # pooling
    "kernel_size": """kernel_size : int or sequence of int
    Size of a window in elements, for each axis.
stride : int or sequence of int, optional
    Step between windows; by default `kernel_size`.""",
    "padding:maximum": """padding : int or sequence of int
    Border of the lowest value, at most half a window.
dilation : int or sequence of int
    Steps between the elements of a window.
return_indices : bool
    Whether the places of the maxima are returned as well, as one number for all these axes.
ceil_mode : bool
    Whether a last window may end beyond the border.""",
    "padding:mean": """padding : int or sequence of int
    Zeros on both sides of each axis, at most half a window.
ceil_mode : bool
    Whether a last window may end beyond the border.
count_include_pad : bool
    Whether means count the zeros.""",
    "divisor_override": """divisor_override : int, optional
    By what sums are divided, in place of the size of a window.""",
    "output_size": """output_size : int or pair of int
    H' and W'; None keeps a size.""",
    "output_size:three": """output_size : int or sequence of int
    D', H' and W'; None keeps a size.""",
    "return_indices": """return_indices : bool
    Whether the places of the maxima are returned as well, as one number for all these axes.""",
    # recurrent layers
    "input_size": """input_size, hidden_size : int
    Elements of a step, and of a state.""",
    "momentum": """momentum : float or None
    Share of a batch in the new running statistics.""",
    "bias:gates": """bias : bool
    Whether gates have offsets.""",
    "batch_first": """batch_first : bool
    Whether axis 0 is the batch.""",
    "cell": """input_size, hidden_size, bias
    As for `LSTMCell`.""",
    "recurrent": """input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
    As for `LSTM`.""",
    # losses
    "reduction": """reduction : {"mean", "sum", "none"}
    Whether the result is 0-d, or the losses themselves.""",
    "weight:classes": """weight : Tensor, optional
    Factor of each class, of shape ``[C]``.""",
    "margin:cosine": """margin : float
    What a cosine of -1 targets may be.""",
    "full": """full : bool
    Whether the constant is added.""",
    "eps:variance": """eps : float
    The least variance.""",
    "eps:rates": """eps : float
    Added to rates before their logarithm.""",
    "norm": """p : float
    Of the norm.
eps : float
    Added to each difference.
keepdim : bool
    Whether the axis stays, with size 1.""",
    # modules
    "module": """module : Module
    The layer.""",
    "name": """name : str
    The attribute's name.""",
    "prefix": """prefix : str
    Put before each path.""",
    "recurse": """recurse : bool
    Whether those of the layers below count, too.""",
    # results
    "same_tensor": "Tensor\n    The same tensor.",
    "this": "Module\n    This module.",
    "layer": "Module\n    The layer.",
    "handle": "HookHandle\n    Its ``remove()`` takes the hook away.",
    "of_x": "Tensor\n    The shape of `x`.",
    "losses": "Tensor\n    0-d, or the shape of `x`.",
    # errors
    "no_tensor": "DTypeError\n    If `x` is no tensor.",
    "probability": "RangeError\n    If `p` is not 0 to 1.",
    "axis": "AxisError\n    At a call, if there is no such axis.",
    "index": "BoundsError\n    When computed, if an index is past the table.",
    "fit": "ShapeError\n    At a call, if shapes do not fit.",
    "border": "ShapeError\n    At a call, if the border does not fit.",
    "windows": "ShapeError\n    At a call, if windows do not fit.",
    "parts": "ShapeError\n    At a call, if a size is below 1.",
    "last_axes": "ShapeError\n    At a call, if the last axes have other sizes.",
    "batch": "ShapeError\n    At a call, if the input has other channels or another number of "
             "axes.",
    "step": "ShapeError\n    At a call, if the input has another shape.",
    "state": "ShapeError\n    At a call, if the input or the state has another shape.",
    "nonlinearity": "RangeError\n    If the nonlinearity is another.",
    "loss": "ShapeError\n    At a call, if shapes do not agree or the reduction is unknown.",
    "agree": "ShapeError\n    If shapes do not agree, or the reduction is unknown.",
    "two_axes": "ShapeError\n    If the tensor has fewer than two axes.",
    "initial": "ShapeError, RangeError\n    If the tensor has fewer than two axes, or an option is "
               "unknown.",
    "path": "AttributeError\n    If there is none.",
    "mapping": "DTypeError\n    If it is something else.",
    "no_dtype": "DTypeError\n    If the dtype is none of Weft's.",
}  # fmt: skip
