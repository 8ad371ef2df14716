"""Layers with weights: linear, bilinear, convolution, embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from weft.errors import BoundsError, ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.creation import empty
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.arguments import check_tensor, choice
from weft.tensors.docs.documented import fill_docstrings
from weft.tensors.ops.contraction import as_pair

__all__ = ["Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
           "ConvTranspose3d", "Embedding", "Linear"]  # fmt: skip

Pair = int | Sequence[int]


def _weight(*shape: int, dtype: object = None) -> Parameter:
    return Parameter(init.kaiming_uniform_(empty(*shape, dtype=dtype), a=math.sqrt(5)))


def _bias(size: int, fan_in: int, dtype: object = None) -> Parameter:
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(init.uniform_(empty(size, dtype=dtype), -bound, bound))


class Linear(Module):
    """The affine map of the last axis, ``x @ weight.T + bias``.

    Input ``[..., in_features]``, output ``[..., out_features]``.

    Parameters
    ----------
    in_features, out_features : int
        The sizes of the last axis before and after.
    {bias dtype}

    Attributes
    ----------
    weight, bias : Parameter
        Shapes ``[out_features, in_features]`` and ``[out_features]``.

    Raises
    ------
    ShapeError, DTypeError
        At a call, if the input has another size or dtype.

    Examples
    --------
    >>> weft.nn.Linear(3, 2)(weft.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 dtype: object = None) -> None:  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _weight(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", _bias(out_features, in_features, dtype) if bias else None)

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine map of the last axis."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias=" + str(
            self.bias is not None)


class Bilinear(Module):
    """The bilinear map of the last axes, ``x @ weight[k] @ y + bias[k]`` for each k.

    Inputs ``[..., in1_features]`` and ``[..., in2_features]``, output ``[..., out_features]``.

    Parameters
    ----------
    in1_features, in2_features, out_features : int
        The sizes of the last axes.
    {bias}

    Attributes
    ----------
    weight, bias : Parameter
        Shapes ``[out, in1, in2]`` and ``[out]``.

    Examples
    --------
    >>> weft.nn.Bilinear(2, 3, 4)(weft.ones(5, 2), weft.ones(5, 3)).shape
    (5, 4)
    """

    def __init__(self, in1_features: int, in2_features: int, out_features: int,
                 bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        bound = 1 / math.sqrt(in1_features)
        self.weight = Parameter(
            init.uniform_(empty(out_features, in1_features, in2_features), -bound, bound))
        self.register_parameter("bias", _bias(out_features, in1_features) if bias else None)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return the bilinear map of the last axes."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class _Conv(Module):
    """What convolutions of all ranks share."""

    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1,
                 padding: Pair | str = 0, dilation: Pair = 1, groups: int = 1, bias: bool = True, *,
                 padding_mode: str = "zeros", dtype: object = None) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if in_channels % groups or out_channels % groups:
            raise ShapeError(name, found=f"{in_channels} to {out_channels} channels, {groups} "
                             "groups", expected="channels that divide by groups")
        kernel = as_pair(kernel_size, self._rank, name)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.dilation = (as_pair(n, self._rank, name) for n in (stride, dilation))
        self.padding: Any = padding if isinstance(padding, str) else as_pair(
            padding, self._rank, name)
        self.groups, self.padding_mode = groups, padding_mode
        choice(padding_mode, ("zeros", "reflect", "replicate", "circular"), name, "padding_mode")
        if isinstance(padding, str):
            choice(padding, ("same", "valid"), name, "padding")
        self.weight = _weight(out_channels, in_channels // groups, *kernel, dtype=dtype)
        fan_in = in_channels // groups * math.prod(kernel)
        self.register_parameter("bias", _bias(out_channels, fan_in, dtype) if bias else None)

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of the input."""
        padding = self.padding
        if self.padding_mode != "zeros" and padding != "valid":
            input = input.pad(self._border(), mode=self.padding_mode)
            padding = 0
        return input._conv(self._rank, self.weight, self.bias, self.stride, padding,
                           self.dilation, self.groups)

    def _border(self) -> list[int]:
        """Return what is added before and behind each axis, the last one first."""
        name = type(self).__name__
        if self.padding == "same":
            steps = as_pair(self.dilation, self._rank, name)
            spans = [d * (k - 1) for d, k in zip(steps, self.kernel_size, strict=True)]
            return [p for span in reversed(spans) for p in (span // 2, span - span // 2)]
        edge = as_pair(cast(Any, self.padding), self._rank, name)
        return [p for e in reversed(edge) for p in (e, e)]

    def extra_repr(self) -> str:
        """Return the sizes."""
        return _shown(self, self._rank, self.in_channels, self.out_channels, {
            "padding": self.padding, "dilation": self.dilation, "output_padding": 0,
            "groups": self.groups, "padding_mode": self.padding_mode}, self.stride)  # fmt: skip


class Conv1d(_Conv):
    """Convolution of sequences: input ``[N, C, L]``, output ``[N, O, L']`` (or without N).

    ``L' = (L + padding - dilation * (K - 1) - 1) // stride + 1``, where `padding` counts both
    sides.

    {Parameters: channels steps groups padding_mode dtype}
    {Attributes: weight:convolution}
    {Raises: convolution}

    Examples
    --------
    >>> weft.nn.Conv1d(2, 4, 3)(weft.ones(1, 2, 8)).shape
    (1, 4, 6)
    """

    _rank = 1


class Conv2d(_Conv):
    """Convolution of images: input ``[N, C, H, W]``, output ``[N, O, H', W']`` (or without N).

    Sizes are those of `Conv1d` for each axis.

    {Parameters: channels steps groups padding_mode dtype}
    {Attributes: weight:convolution}
    {Raises: convolution}

    Examples
    --------
    >>> weft.nn.Conv2d(3, 8, 3, padding=1)(weft.ones(1, 3, 16, 16)).shape
    (1, 8, 16, 16)
    """

    _rank = 2


class Conv3d(_Conv):
    """Convolution of volumes: input ``[N, C, D, H, W]``, output ``[N, O, D', H', W']``.

    Sizes are those of `Conv1d` for each axis.

    {Parameters: channels steps groups padding_mode dtype}
    {Attributes: weight:convolution}
    {Raises: convolution}

    Examples
    --------
    >>> weft.nn.Conv3d(1, 2, 3)(weft.ones(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    _rank = 3


class _ConvTranspose(Module):
    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1,
                 padding: Pair = 0, output_padding: Pair = 0, groups: int = 1, bias: bool = True,
                 dilation: Pair = 1, padding_mode: str = "zeros") -> None:  # fmt: skip
        super().__init__()
        kernel = as_pair(kernel_size, self._rank, type(self).__name__)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        name = type(self).__name__
        self.stride, self.padding, self.output_padding, self.dilation = (
            as_pair(n, self._rank, name) for n in (stride, padding, output_padding, dilation))
        self.groups = groups
        choice(padding_mode, ("zeros",), name, "padding_mode")
        self.weight = _weight(in_channels, out_channels // groups, *kernel)
        fan_in = out_channels // groups * math.prod(kernel)
        self.register_parameter("bias", _bias(out_channels, fan_in) if bias else None)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return the transposed convolution of the input."""
        methods = input.conv_transpose1d, input.conv_transpose2d, input.conv_transpose3d
        added = self.output_padding if output_size is None else self._added(input, output_size)
        return methods[self._rank - 1](self.weight, self.bias, self.stride, self.padding, added,
                                       self.groups, self.dilation)  # fmt: skip

    def _added(self, input: Tensor, output_size: Sequence[int]) -> list[int]:
        """Return the output padding that gives a size."""
        name, rank = type(self).__name__, self._rank
        sizes = tuple(output_size)[-rank:]
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in zip(
            input.shape[-rank:], self.stride, self.padding, self.dilation, self.kernel_size,
            strict=True)]  # fmt: skip
        if len(sizes) != rank or any(not m <= n < m + s for n, m, s in zip(
            sizes, least, self.stride, strict=True)):  # fmt: skip
            most = [m + s - 1 for m, s in zip(least, self.stride, strict=True)]
            raise ShapeError(name, found=f"output_size={tuple(output_size)}",
                             expected=f"{tuple(least)} to {tuple(most)}")
        return [n - m for n, m in zip(sizes, least, strict=True)]

    def extra_repr(self) -> str:
        """Return the sizes."""
        return _shown(self, self._rank, self.in_channels, self.out_channels, {
            "padding": self.padding, "dilation": self.dilation, "groups": self.groups,
            "output_padding": self.output_padding}, self.stride)  # fmt: skip


class ConvTranspose1d(_ConvTranspose):
    """Adjoint of `Conv1d`: input ``[N, C, L]``, output ``[N, O, L']``.

    ``L' = (L - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1``.

    {Parameters: channels adjoint groups padding_mode:zeros}
    {Attributes: weight:adjoint}

    Examples
    --------
    >>> weft.nn.ConvTranspose1d(2, 1, 2, stride=2)(weft.ones(1, 2, 4)).shape
    (1, 1, 8)
    """

    _rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Adjoint of `Conv2d`: input ``[N, C, H, W]``, output ``[N, O, H', W']``.

    Sizes are those of `ConvTranspose1d` for each axis.

    {Parameters: channels adjoint groups padding_mode:zeros}
    {Attributes: weight:adjoint}

    Examples
    --------
    >>> weft.nn.ConvTranspose2d(2, 1, 2, stride=2)(weft.ones(1, 2, 4, 4)).shape
    (1, 1, 8, 8)
    """


class ConvTranspose3d(_ConvTranspose):
    """Adjoint of `Conv3d`: input ``[N, C, D, H, W]``, output ``[N, O, D', H', W']``.

    Sizes are those of `ConvTranspose1d` for each axis.

    {Parameters: channels adjoint groups padding_mode:zeros}
    {Attributes: weight:adjoint}

    Examples
    --------
    >>> weft.nn.ConvTranspose3d(2, 1, 2, stride=2)(weft.ones(1, 2, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    _rank = 3


class Embedding(Module):
    """A table of vectors, looked up by integers.

    Input integers ``[...]``, output ``[..., embedding_dim]``.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows and columns of the table.
    padding_idx : int, optional
        A row that begins as zeros and gets no gradient.
    dtype : DType, optional
        That of the table; float32 by default.
    _weight : Tensor, optional
        The table, in place of normally distributed numbers.

    Attributes
    ----------
    weight : Parameter
        Shape ``[num_embeddings, embedding_dim]``.

    {Raises: index}

    Examples
    --------
    >>> weft.nn.Embedding(10, 4)(weft.tensor([[1, 2, 9]])).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *,
                 dtype: object = None, _weight: Tensor | None = None) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise BoundsError("Embedding", found=f"padding_idx={padding_idx}",
                              expected=f"{-num_embeddings} to {num_embeddings - 1}")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            _weight = init.normal_(empty(num_embeddings, embedding_dim, dtype=dtype))
            if padding_idx is not None:
                _weight[padding_idx] = 0.0
        elif check_tensor(_weight, "Embedding").shape != (num_embeddings, embedding_dim):
            raise ShapeError("Embedding", found=f"a table of {_weight.shape}",
                             expected=f"{(num_embeddings, embedding_dim)}")
        self.weight = Parameter(_weight)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True,
                        padding_idx: int | None = None) -> Self:  # fmt: skip
        """Return a layer with a given table.

        Parameters
        ----------
        embeddings : Tensor
            Shape ``[num_embeddings, embedding_dim]``.
        freeze : bool
            Whether the table is not learned.
        padding_idx : int, optional
            A row that gets no gradient.

        Returns
        -------
        Embedding
            The layer.

        Raises
        ------
        ShapeError
            If the table has not two axes.

        Examples
        --------
        >>> weft.nn.Embedding.from_pretrained(weft.ones(3, 2))(weft.tensor(1)).tolist()
        [1.0, 1.0]
        """
        if len(check_tensor(embeddings, "from_pretrained").shape) != 2:
            raise ShapeError("from_pretrained", found=f"{embeddings.shape}", expected="two axes")
        rows, columns = embeddings.shape
        made = cls(rows, columns, padding_idx, _weight=embeddings)
        made.weight.requires_grad_(not freeze)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Return the vectors at the indices."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


def _shown(layer: Any, rank: int, inputs: int, outputs: int,
           options: Mapping[str, Any], stride: Any) -> str:  # fmt: skip
    """Return what `repr` shows of a convolution: options that are not the usual ones."""

    def each(value: Any) -> Any:
        return value if isinstance(value, str) else as_pair(value, rank, "repr")

    text = f"{inputs}, {outputs}, kernel_size={layer.kernel_size}, stride={each(stride)}"
    for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
        if each(options[name]) != each(usual):
            value = each(options[name])
            text += f", {name}={value!r}" if isinstance(value, str) else f", {name}={value}"
    text += f", groups={options['groups']}" if options["groups"] != 1 else ""
    text += ", bias=False" if layer.bias is None else ""
    mode = options.get("padding_mode", "zeros")
    return text + (f", padding_mode={mode}" if mode != "zeros" else "")


fill_docstrings(globals(), SECTIONS)
