"""Multi-head attention and the transformer encoder layer."""

from __future__ import annotations

from typing import cast

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.dropout import Dropout
from weft.nn.layers import Linear
from weft.nn.module import Module
from weft.nn.normalization import LayerNorm
from weft.nn.sections import SECTIONS
from weft.tensors.api.creation import empty, zeros
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.arguments import choice
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["MultiheadAttention", "TransformerEncoderLayer"]


class MultiheadAttention(Module):
    """Attention over several heads (Vaswani et al., 2017), with PyTorch's parameters.

    Inputs query ``[L, N, E]``, key and value ``[S, N, E]``; output ``[L, N, E]`` and weights ``[N,
    L, S]``. N comes first with `batch_first`, and may be left out.

    Parameters
    ----------
    embed_dim : int
        E, a multiple of `num_heads`.
    num_heads : int
        The parts of E that attend by themselves.
    dropout : float
        Probability with which weights are set to 0 in training.
    bias : bool
        Whether projections have offsets.
    {batch_first}

    Raises
    ------
    ShapeError
        If E does not divide by the heads.

    Examples
    --------
    >>> x = weft.ones(2, 5, 8)
    >>> out, weights = weft.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> out.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 batch_first: bool = False) -> None:  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ShapeError("MultiheadAttention", found=f"{embed_dim} for {num_heads} heads",
                             expected="a size that divides by the heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first = batch_first
        self.in_proj_weight = Parameter(init.xavier_uniform_(empty(3 * embed_dim, embed_dim)))
        self.register_parameter("in_proj_bias", Parameter(zeros(3 * embed_dim)) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if bias:
            init.zeros_(self.out_proj.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return the attended values, and the weights where they are wanted.

        Boolean masks are True where a key may *not* be seen, as in PyTorch's module.

        Parameters
        ----------
        query, key, value : Tensor
            Shapes as in the class's docstring.
        key_padding_mask : Tensor, optional
            Shape ``[N, S]``.
        need_weights : bool
            Whether the weights are returned.
        attn_mask : Tensor, optional
            Shape ``[L, S]`` or ``[N * heads, L, S]``; floats are added.
        average_attn_weights : bool
            Whether weights are averaged over the heads.
        {is_causal}

        Returns
        -------
        tuple of Tensor and Tensor or None
            The output and the weights.

        Examples
        --------
        >>> x = weft.ones(5, 1, 8)
        >>> weft.nn.MultiheadAttention(8, 2)(x, x, x, need_weights=False)[1] is None
        True
        """
        unbatched = len(query.shape) == 2
        parts = [query, key, value]
        if unbatched:
            parts = [t.unsqueeze(0) for t in parts]
        elif not self.batch_first:
            parts = [t.transpose(0, 1) for t in parts]
        n, length, _ = parts[0].shape
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (self._heads(F.linear(t, w, b))
                   for t, w, b in zip(parts, weights, biases, strict=True))  # fmt: skip
        mask = self._mask(attn_mask, key_padding_mask, n)
        scores = q.attention_weights(k, mask, is_causal)
        thinned = F.dropout(scores, self.dropout, self.training)
        out = thinned.matmul(v).transpose(1, 2).reshape(n, length, self.embed_dim)
        out = cast(Tensor, self.out_proj(out))
        if unbatched:
            out = out.squeeze(0)
        elif not self.batch_first:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        shown = scores.mean(1) if average_attn_weights else scores
        return out, shown.squeeze(0) if unbatched else shown

    def _heads(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        return x.reshape(n, length, self.num_heads, -1).transpose(1, 2)

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, n: int) -> Tensor | None:
        masks = []
        if attn_mask is not None:
            m = attn_mask
            if len(m.shape) == 3:
                m = m.reshape(n, self.num_heads, *m.shape[1:])
            masks.append(m.logical_not() if m.dtype.is_bool else m)
        if padding is not None:
            m = padding.reshape(n, 1, 1, padding.shape[-1])
            masks.append(m.logical_not() if m.dtype.is_bool else m)
        if len(masks) < 2:
            return masks[0] if masks else None
        a, b = (m.where(0.0, -float("inf")) if m.dtype.is_bool else m for m in masks)
        return a.add(b)


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual and layer norm.

    Input and output ``[L, N, d_model]``, or ``[N, L, d_model]`` with `batch_first`.

    Parameters
    ----------
    d_model, nhead : int
        The size of a vector, and the heads that it divides by.
    dim_feedforward : int
        The size of the hidden layer.
    dropout : float
        Probability with which elements are set to 0 in training.
    activation : {"relu", "gelu"}
        That of the hidden layer.
    layer_norm_eps : float
        Added to variances.
    {batch_first}
    norm_first : bool
        Whether a layer norm stands before its part and not behind the sum.

    Raises
    ------
    ShapeError, RangeError
        If `d_model` does not divide by the heads, or the activation is unknown.

    Examples
    --------
    >>> weft.nn.TransformerEncoderLayer(8, 2, 16).eval()(weft.ones(5, 1, 8)).shape
    (5, 1, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False) -> None:  # fmt: skip
        super().__init__()
        choice(activation, ("relu", "gelu"), "TransformerEncoderLayer", "activation")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward)
        self.linear2 = Linear(dim_feedforward, d_model)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps) for _ in range(2))
        self.dropout, self.dropout1, self.dropout2 = (Dropout(dropout) for _ in range(3))
        self.activation, self.norm_first = activation, norm_first

    def forward(self, x: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False
                ) -> Tensor:  # fmt: skip
        """Return the encoded sequence."""

        def attend(y: Tensor) -> Tensor:
            out, _ = self.self_attn(y, y, y, src_key_padding_mask, False, src_mask,
                                    is_causal=is_causal)  # fmt: skip
            return cast(Tensor, self.dropout1(out))

        def feed(y: Tensor) -> Tensor:
            hidden = self.linear1(y)
            hidden = hidden.gelu() if self.activation == "gelu" else hidden.relu()
            return cast(Tensor, self.dropout2(self.linear2(self.dropout(hidden))))

        if self.norm_first:
            x = x.add(attend(self.norm1(x)))
            return x.add(feed(self.norm2(x)))
        x = self.norm1(x.add(attend(x)))
        return cast(Tensor, self.norm2(x.add(feed(x))))


fill_docstrings(globals(), SECTIONS)
