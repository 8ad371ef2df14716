"""Docstring entries of parameters that methods share."""

from __future__ import annotations

from typing import Final

__all__ = ["PARAMETERS"]

# By name; of parameters that mean something else elsewhere, by name and what tells them apart.
PARAMETERS: Final = {
    # operands
    "other": """other : Tensor, array or number
    The second operand, broadcast with this tensor; a number takes this tensor's type if it can.""",
    "other:divisor": """other : Tensor, array or number
    The divisor, broadcast with this tensor; a number takes this tensor's type if it can.""",
    "other:abscissa": """other : Tensor, array or number
    The x coordinates, broadcast with this tensor, which holds the y coordinates.""",
    "other:sign": """other : Tensor, array or number
    Whose signs count, broadcast with this tensor.""",
    "other:bits": """other : Tensor, array or int
    The second operand, of integers or bool, broadcast with this tensor.""",
    "other:shift": """other : Tensor, array or int
    By how many bits, broadcast with this tensor.""",
    "other:exponent": """other : Tensor, array or number
    The exponent, broadcast to this tensor's shape.""",
    "other:shape": """other : Tensor
    Whose shape is taken; its elements and dtype do not matter.""",
    "alpha": """alpha : number, optional
    A factor of `other`.""",
    "base": """base : Tensor, array or number
    What is raised to the powers that this tensor holds, broadcast with it.""",
    "a:where": """a : Tensor, array or number
    The elements where the condition is true.""",
    "b:where": """b : Tensor, array or number
    The elements where it is false.""",
    "a:factor": """a : Tensor, array or number
    The first factor.""",
    "b:factor": """b : Tensor, array or number
    The second factor.""",
    "a:dividend": """a : Tensor, array or number
    The dividend.""",
    "b:divisor": """b : Tensor, array or number
    The divisor.""",
    "value:scale": """value : number, optional
    A factor of what is added.""",
    "end": """end : Tensor, array or number
    The value at weight 1; this tensor is the value at weight 0.""",
    "weight:lerp": """weight : Tensor, array or number
    How far to go from this tensor to `end`.""",
    "weight": """weight : Tensor, array or number
    The slope of negative elements, broadcast with this tensor.""",
    "rounding_mode": """rounding_mode : {None, 'floor', 'trunc'}, optional
    None gives the true quotient; else it is rounded down, or towards zero.""",
    "rtol": """rtol : float, optional
    The relative tolerance.""",
    "atol": """atol : float, optional
    The absolute tolerance.""",
    "equal_nan": """equal_nan : bool, optional
    Whether two NaN are close.""",
    # types
    "targets": """*args : dtype, device or Tensor
    A dtype or its name, a device, or a tensor whose dtype and device are taken.""",
    "dtype:to": """dtype : dtype or str, optional
    The dtype of the result; None keeps it.""",
    "dtype:required": """dtype : dtype or str
    The dtype of the result: ``weft.float32``, ``"float32"``, or NumPy's.""",
    "dtype:width": """dtype : dtype or str
    A type of as many bits as this tensor's.""",
    "dtype:sum": """dtype : dtype or str, optional
    The type to compute in and to return; integers and bool give int64 by default.""",
    "dtype:mean": """dtype : dtype or str, optional
    The float type to convert the elements to before.""",
    "device": """device : str, optional
    ``family[:ordinal or name][/pair]``, as `weft.devices` lists them, or ``auto``.""",
    "stream": """stream : None
    There are no streams to choose from.""",
    "copy": """copy : bool, optional
    Whether to copy where nothing is converted.""",
    # elementwise functions
    "decimals": """decimals : int, optional
    To how many decimals, from -300 to 300; integers stay as they are.""",
    "negative_slope": """negative_slope : number, optional
    The factor of negative elements.""",
    "alpha:elu": """alpha : number, optional
    The limit towards minus infinity is ``-alpha``.""",
    "approximate": """approximate : {'none', 'tanh'}, optional
    Whether Phi is computed by erf, or approximated by tanh.""",
    "beta": """beta : number, optional
    The sharpness of the bend at 0.""",
    "threshold": """threshold : number, optional
    Where ``beta * x`` is larger, the result is ``x``.""",
    "min_val": """min_val : number, optional
    The lower limit.""",
    "max_val": """max_val : number, optional
    The upper limit.""",
    "min": """min : number, Tensor or None, optional
    The lower limit, broadcast with this tensor; None for none.""",
    "max": """max : number, Tensor or None, optional
    The upper limit, broadcast with this tensor; None for none.""",
    "min:required": """min : number or Tensor
    The lower limit, broadcast with this tensor.""",
    "max:required": """max : number or Tensor
    The upper limit, broadcast with this tensor.""",
    "nan": """nan : number, optional
    What replaces NaN.""",
    "posinf": """posinf : number, optional
    What replaces infinity; the largest value of the type by default.""",
    "neginf": """neginf : number, optional
    What replaces minus infinity; the smallest value of the type by default.""",
    # axes
    "dim": """dim : int
    The axis; a negative one counts from the last; also as ``axis=``.""",
    "dim:one": """dim : int, optional
    The axis to reduce; all of them by default; also as ``axis=``.""",
    "dim:first": """dim : int, optional
    The axis, the first by default; a negative one counts from the last; also as ``axis=``.""",
    "dim:second": """dim : int, optional
    The axis along which norms are taken; also as ``axis=``.""",
    "dim:axes": """dim : int or sequence of int, optional
    The axes to reduce, all by default; also as ``axis=``.""",
    "dim:max": """dim : int or Tensor, optional
    The axis to reduce, all by default, which gives values and indices; ``axis=``, as in NumPy,
    gives values alone. A tensor is compared element by element.""",
    "dim:arg": """dim : int, optional
    The axis to search; by default all elements, counted in row-major order; also as ``axis=``.""",
    "dim:size": """dim : int, optional
    The axis whose size is returned; also as ``axis=``.""",
    "dim:squeeze": """dim : int or sequence of int, optional
    The axes that are dropped if their size is 1; all by default; also as ``axis=``.""",
    "dim:new": """dim : int
    Where the new axis is in the result; a negative one counts from its last; also as ``axis=``.""",
    "dim:flat": """dim : int, optional
    The axis; by default all elements, in row-major order; also as ``axis=``.""",
    "keepdim": """keepdim : bool, optional
    Whether reduced axes stay, with size 1; also as ``keepdims=``.""",
    "correction": """correction : number, optional
    What is subtracted from the count of elements to give the divisor.""",
    "unbiased": """unbiased : bool, optional
    PyTorch's older name: True is a correction of 1, False of 0.""",
    "p": """p : number, inf, -inf or 'fro', optional
    The order of the norm; ``fro`` is 2.""",
    "eps": """eps : number, optional
    The least norm that is divided by.""",
    "n": """n : int, optional
    How many times differences are taken.""",
    "dim0": """dim0 : int
    One axis.""",
    "dim1": """dim1 : int
    Another axis.""",
    "dim2": """dim2 : int
    The axis of the columns.""",
    "axis0": """axis0 : int
    One axis.""",
    "axis1": """axis1 : int
    Another axis.""",
    "dims:order": """*dims : int or sequence of int
    Each axis once.""",
    "dims:axes": """*dims : int or sequence of int
    The axes to reverse; also as ``axis=``.""",
    "source:axes": """source : int or sequence of int
    The axes to move.""",
    "destination": """destination : int or sequence of int
    Where each of them is in the result.""",
    "start_dim": """start_dim : int, optional
    The first axis to merge.""",
    "end_dim": """end_dim : int, optional
    The last axis to merge.""",
    # shapes
    "shape:reshape": """*shape : int or sequence of int
    The sizes; one may be -1, which is computed from the others.""",
    "shape:view": """*shape : int, sequence of int, or dtype
    The sizes, of which one may be -1; or a dtype of as many bits as this one.""",
    "shape:target": """shape : sequence of int
    The sizes; axes are aligned from the last.""",
    "sizes": """sizes : sequence of int
    The sizes that the axis is split into; one may be -1.""",
    "sizes:expand": """*sizes : int or sequence of int
    The sizes, aligned from the last axis; -1 keeps the size of an axis.""",
    "sizes:repeat": """*sizes : int or sequence of int
    How often each axis is repeated, at least one count for each.""",
    "reps": """*reps : int or sequence of int
    How often the last axes are repeated.""",
    "start": """start : int
    The first element; a negative one counts from the end.""",
    "length": """length : int
    How many elements.""",
    "index:int": """index : int
    Which slice; a negative one counts from the end.""",
    "split_size": """split_size : int or sequence of int
    The size of the parts, or of each part.""",
    "chunks": """chunks : int
    The number of parts.""",
    "dimension": """dimension : int
    The axis along which the window slides.""",
    "size:window": """size : int
    The number of elements in a window.""",
    "step": """step : int
    The distance from one window to the next, in elements.""",
    "offset": """offset : int, optional
    Which diagonal: above the main one if positive, below it if negative.""",
    "offset:embed": """offset : int, optional
    Which diagonal: above the main one if positive, below it if negative.""",
    "diagonal:offset": """diagonal : int, optional
    Which diagonal: above the main one if positive, below it if negative.""",
    "diagonal:triangle": """diagonal : int, optional
    The diagonal that bounds the triangle, 0 for the main one.""",
    "shifts": """shifts : int or sequence of int
    By how many elements towards the end, for each axis.""",
    "dims:roll": """dims : int or sequence of int, optional
    The axes; by default all elements, in row-major order; also as ``axis=``.""",
    "pad": """pad : sequence of int
    ``(left, right)`` for the last axis, then for the one before it, and so on.""",
    "mode": """mode : {'constant', 'reflect', 'replicate', 'circular'}, optional
    What the border holds: a value, or elements of this tensor.""",
    "value:pad": """value : number, optional
    What the border holds in mode ``constant``, by default 0; other modes take none.""",
    # indices
    "index:gather": """index : Tensor of integers
    From 0 to ``n - 1``, of as many axes as this tensor.""",
    "index:scatter": """index : Tensor of integers
    From 0 to ``n - 1``, of as many axes as this tensor: where each element of `src` goes.""",
    "index:vector": """index : Tensor of integers
    A vector; negative indices count from the end of the axis.""",
    "indices:along": """indices : Tensor of integers
    Of as many axes as this tensor; negative indices count from the end of the axis.""",
    "indices": """indices : sequence of Tensor
    Integers for each of the first axes, broadcast with each other.""",
    "values": """values : Tensor, array or number
    Of this tensor's dtype; broadcast to what the indices choose.""",
    "accumulate": """accumulate : bool, optional
    Whether to add instead of replacing.""",
    "src": """src : Tensor, array or number
    Of this tensor's dtype, and at least as large as `index` along each axis; or a number.""",
    "source:slices": """source : Tensor, array or number
    Of this tensor's dtype: a slice for each index.""",
    "prepend": """prepend : Tensor, optional
    Joined before the elements along the axis.""",
    "append": """append : Tensor, optional
    Joined behind the elements along the axis.""",
    "ddof": """ddof : number, optional
    NumPy's name of `correction`.""",
    "alpha:source": """alpha : number, optional
    A factor of `source`.""",
    "source:masked": """source : Tensor, array or nested list
    Of this tensor's dtype, with at least as many elements as are true in `mask`.""",
    "source:copy": """source : Tensor, array or number
    The new elements, broadcast to this shape and converted to this dtype.""",
    "reduce:scatter": """reduce : {None, 'add', 'multiply'}, optional
    Whether elements are replaced, added to or multiplied.""",
    "mask": """mask : Tensor of bool
    Broadcast with this tensor.""",
    "value:fill": """value : number or Tensor
    The new value, which this tensor's type can hold.""",
    # order
    "descending": """descending : bool, optional
    Whether the largest comes first.""",
    "stable": """stable : bool, optional
    Taken as PyTorch has it; equal elements always keep their order.""",
    "k:topk": """k : int
    How many, at most the size of the axis.""",
    "k:kth": """k : int
    Which value, from 1 for the smallest to the size of the axis.""",
    "largest": """largest : bool, optional
    Whether the largest or the smallest are returned.""",
    "sorted": """sorted : bool, optional
    Taken as PyTorch has it; the result is always sorted.""",
    "num_classes": """num_classes : int, optional
    The size of the new axis; -1 takes the largest index plus 1.""",
    "as_tuple": """as_tuple : bool, optional
    Whether to return the indices of each axis as a vector of its own.""",
    "force": """force : bool, optional
    Whether to return a copy that may be written to.""",
    # shapes and dtypes of new tensors
    "size": """*size : int, or one sequence of int
    The shape; ``shape=`` is another name.""",
    "size:new": """*size : int, or one sequence of int
    The shape.""",
    "size:one": """size : int or sequence of int
    The shape.""",
    "options:new": """**options : object
    ``dtype``, ``device`` and ``requires_grad``, as for `weft.full`.""",
    "options": """dtype, device, requires_grad
    As for `full`.""",
    "options:float32": """dtype, device, requires_grad
    As for `full`; float32 by default.""",
    "options:rest": """device, requires_grad
    As for `full`.""",
    "like": """like : Tensor
    Gives the shape, and the dtype if none is given.""",
    "device:new": """device : str, optional
    Where the tensor lies; the default device if left out.""",
    "device:name": """device : str, optional
    ``family[:ordinal or name][/pair]``.""",
    "requires_grad": """requires_grad : bool
    Whether gradients of it are recorded.""",
    "data": """data, dtype, device
    As for `tensor`.""",
    "copy:always": """copy : bool, optional
    True copies always, False never.""",
    "dtype:random": """dtype : DType, optional
    A float type of 16 to 64 bits; float32 by default.""",
    "dtype:rand": """dtype : DType, optional
    As for `rand`.""",
    "dtype:float32": """dtype : DType, optional
    float32 by default.""",
    "dtype:int64": """dtype : DType, optional
    int64 by default.""",
    "generator": """generator : Generator, optional
    The stream to draw from; the default one if left out.""",
    "generator:rand": """generator
    As for `rand`.""",
    "generator:own": """generator : Generator, optional
    Of the random numbers.""",
    "steps": """steps : int
    The number of elements, at least 0.""",
    "rows": """row, col : int
    The sizes of the matrix.""",
    "n:whole": """n : int
    At least 0.""",
    # operands of functions and of composed methods
    "x": """x : Tensor
    Of any shape.""",
    "x:array": """x : Tensor or array
    Of any shape.""",
    "x:axes": """x : Tensor or array
    Of at least one axis.""",
    "both": """a, b : Tensor or array
    Broadcast with each other.""",
    "tensors": """tensors : sequence of Tensor or array
    Equal sizes on all other axes.""",
    "tensors:each": """*tensors : Tensor or array
    Of any shapes.""",
    "other:any": """other : Tensor
    Of any shape.""",
    "other:vector": """other : Tensor
    Shape ``[n]``, as this tensor.""",
    "other:list": """other : Tensor, array, nested list or number
    Broadcast with this tensor.""",
    "beta:alpha": """beta, alpha : number, optional
    Factors.""",
    "indexing": """indexing : {"xy", "ij"}
    ``ij`` keeps the order of the axes, ``xy`` exchanges the first two.""",
    "sections": """sections : int or sequence of int
    How many parts, or where they begin.""",
    "src:slice": """src : Tensor
    Of the shape of the slice.""",
    # statistics
    "dim:all": """dim : int or sequence of int, optional
    The axes; all by default.""",
    "dim:optional": """dim : int, optional
    The axis; a negative one counts from the last.""",
    "dim:quantile": """dim : int, optional
    The axis; a negative one counts from the last. None takes all elements.""",
    "keepdim:plain": """keepdim : bool, optional
    Whether reduced axes stay, with size 1.""",
    # layers
    "dim:softmax": """dim : int
    The axis whose elements sum to 1.""",
    "dtype:softmax": """dtype : DType, optional
    Float dtype to compute in and return.""",
    "eps:variance": """eps : float
    Added to the variance.""",
    "normalized_shape": """normalized_shape : int or sequence of int
    The sizes of the last axes, which are normalised together.""",
    "weight:channels": """weight, bias : Tensor, optional
    Factor and offset of each channel, of shape ``[C]``.""",
    "bias": """bias : Tensor, optional
    Offset of each output channel, of shape ``[O]``.""",
    "groups": """groups : int
    Channels are cut into as many groups that do not mix.""",
    "conv2d": """bias, stride, padding, dilation, groups
    As for `conv2d`.""",
    "conv_transpose2d": """bias, stride, padding, output_padding, groups, dilation
    As for `conv_transpose2d`.""",
    "kernel_size": """kernel_size : int or sequence of int
    Size of a window in elements, for each axis.
stride : int or sequence of int, optional
    Step between windows; by default `kernel_size`.""",
    "ceil_mode": """ceil_mode : bool
    Whether a last window that only partly fits counts.""",
    "avg_pool1d": """kernel_size, stride, padding, ceil_mode, count_include_pad
    As for `avg_pool2d`.""",
    "avg_pool2d": """kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    As for `avg_pool2d`.""",
    "return_indices": """return_indices : bool, optional
    Whether their places are returned as well, as one number for all these axes.""",
    "max_pool2d": """kernel_size, stride, padding, dilation, ceil_mode, return_indices
    As for `max_pool2d`.""",
    "output_size": """output_size : int or pair of int
    Sizes of the result's last two axes; None keeps a size.""",
    "target": """target : Tensor
    Broadcasts to the shape of this tensor, the prediction.""",
    "target:probability": """target : Tensor
    Probabilities of 1; broadcasts to the shape of this tensor.""",
    "weight:losses": """weight : Tensor, optional
    Factors of the losses.""",
    "weight:classes": """weight : Tensor, optional
    Factor of each class, of shape ``[C]``; the mean is weighted, too.""",
    "reduction": """reduction : {"mean", "sum", "none"}
    Whether the result is the mean or the sum of all losses (0-d), or the losses themselves.""",
}  # fmt: skip
