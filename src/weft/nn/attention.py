"""Multi-head attention."""

from __future__ import annotations

from typing import cast

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.layers import Linear
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.combined import cat
from weft.tensors.api.creation import empty, zeros
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["MultiheadAttention"]


def _projection(rows: int, columns: int) -> Parameter:
    return Parameter(init.xavier_uniform_(empty(rows, columns)))


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
    add_bias_kv, add_zero_attn : bool
        Whether a learned key and value, or zeros, are added at the end of keys and values.
    kdim, vdim : int, optional
        The last axes of key and value, where they are not E.
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
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False) -> None:  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ShapeError("MultiheadAttention", found=f"{embed_dim} for {num_heads} heads",
                             expected="a size that divides by the heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn = add_zero_attn
        apart = self.kdim != embed_dim or self.vdim != embed_dim
        for name, columns in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight",
                                    _projection(embed_dim, columns) if apart else None)
        self.register_parameter(
            "in_proj_weight", None if apart else _projection(3 * embed_dim, embed_dim))
        self.register_parameter("in_proj_bias", Parameter(zeros(3 * embed_dim)) if bias else None)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(init.xavier_normal_(empty(1, 1, embed_dim)))
                                    if add_bias_kv else None)  # fmt: skip
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
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if (
            self.in_proj_weight is None) else self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(t, w, b) for t, w, b in zip(parts, weights, biases, strict=True))
        more = 0  # keys and values that are added
        if self.bias_k is not None:
            k, v = (cat([t, b.expand(n, 1, -1)], 1)
                    for t, b in ((k, self.bias_k), (v, self.bias_v)))
            more += 1
        if self.add_zero_attn:
            k, v = (cat([t, zeros(n, 1, self.embed_dim, dtype=t.dtype)], 1) for t in (k, v))
            more += 1
        q, k, v = (self._heads(t) for t in (q, k, v))
        mask = self._mask(attn_mask, key_padding_mask, n, more)
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

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, n: int, more: int
              ) -> Tensor | None:  # fmt: skip
        """Return a mask that is True, or added, where keys are seen: those added always are."""
        masks = []
        if more:
            attn_mask, padding = (None if m is None else F.pad(m, (0, more))
                                  for m in (attn_mask, padding))
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


fill_docstrings(globals(), SECTIONS)
