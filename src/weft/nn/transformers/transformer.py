"""The transformer (Vaswani et al., 2017): encoder, decoder, and both together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

from weft.errors import RangeError, ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.attention import MultiheadAttention
from weft.nn.containers.modules import ModuleList
from weft.nn.dropout import Dropout
from weft.nn.layers import Linear
from weft.nn.module import Module
from weft.nn.normalization import LayerNorm
from weft.nn.sections import SECTIONS
from weft.tensors.api.creation import full
from weft.tensors.api.tensor import Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]  # fmt: skip

Activation = str | Callable[[Tensor], Tensor]


def _function(activation: Activation, name: str) -> Callable[[Tensor], Tensor]:
    """Return the activation of a name, or the function that was given."""
    if callable(activation):
        return activation
    found = {"relu": F.relu, "gelu": F.gelu}.get(activation)
    if found is None:
        raise RangeError(name, found=f"activation={describe(activation)}",
                         expected="'relu', 'gelu' or a function")
    return found


class _Layer(Module):
    """What encoder and decoder layers share: attention to itself, and a feed-forward network."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int, dropout: float,
                 activation: Activation, layer_norm_eps: float, batch_first: bool,
                 norm_first: bool, bias: bool, crossed: bool) -> None:  # fmt: skip
        super().__init__()
        self.activation = _function(activation, type(self).__name__)

        def attention() -> MultiheadAttention:
            return MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)

        self.self_attn = attention()
        if crossed:
            self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = norm_first
        count = 3 if crossed else 2
        for i in range(1, count + 1):
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for i in range(1, count + 1):
            self.add_module(f"dropout{i}", Dropout(dropout))

    def _fed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _summed(self, x: Tensor, parts: list[Callable[[Tensor], Tensor]]) -> Tensor:
        """Return `x` with the results of parts added, each with its norm and its dropout."""
        for i, part in enumerate(parts, 1):
            norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
            added = dropout(part(norm(x) if self.norm_first else x))
            x = x.add(added) if self.norm_first else norm(x.add(added))
        return x


class TransformerEncoderLayer(_Layer):
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
    activation : {"relu", "gelu"} or callable
        That of the hidden layer.
    layer_norm_eps : float
        Added to variances.
    {batch_first}
    norm_first : bool
        Whether a layer norm stands before its part and not behind the sum.
    bias : bool
        Whether there are offsets.

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
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True
                 ) -> None:  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, False)

    def forward(self, src: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False
                ) -> Tensor:  # fmt: skip
        """Return the encoded sequence."""
        causal = is_causal and src_mask is None

        def attend(x: Tensor) -> Tensor:
            return cast(Tensor, self.self_attn(x, x, x, src_key_padding_mask, False, src_mask,
                                               is_causal=causal)[0])  # fmt: skip

        return self._summed(src, [attend, self._fed])


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoded sequence, and a feed-forward network.

    Inputs ``[T, N, d_model]`` and the encoded sequence ``[S, N, d_model]``, output ``[T, N,
    d_model]``; N comes first with `batch_first`.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first
        As for `TransformerEncoderLayer`.
    bias : bool
        Whether there are offsets.

    Raises
    ------
    ShapeError, RangeError
        If `d_model` does not divide by the heads, or the activation is unknown.

    Examples
    --------
    >>> layer = weft.nn.TransformerDecoderLayer(8, 2, 16).eval()
    >>> layer(weft.ones(5, 1, 8), weft.ones(7, 1, 8)).shape
    (5, 1, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True
                 ) -> None:  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, True)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:  # fmt: skip
        """Return the decoded sequence."""

        def attend(x: Tensor) -> Tensor:
            return cast(Tensor, self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask,
                is_causal=tgt_is_causal and tgt_mask is None)[0])  # fmt: skip

        def look(x: Tensor) -> Tensor:
            return cast(Tensor, self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask,
                is_causal=memory_is_causal and memory_mask is None)[0])  # fmt: skip

        return self._summed(tgt, [attend, look, self._fed])


class TransformerEncoder(Module):
    """Several encoder layers, one after the other.

    Input and output as of the layer.

    Parameters
    ----------
    encoder_layer : Module
        Copied for each of the layers.
    num_layers : int
        How many.
    norm : Module, optional
        Behind the last one.
    enable_nested_tensor, mask_check : bool
        Taken as PyTorch has them, and of no effect.

    Examples
    --------
    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16)
    >>> weft.nn.TransformerEncoder(layer, 2).eval()(weft.ones(5, 1, 8)).shape
    (5, 1, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src: Tensor, mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
                ) -> Tensor:  # fmt: skip
        """Return the encoded sequence."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                        is_causal=bool(is_causal))  # fmt: skip
        return src if self.norm is None else cast(Tensor, self.norm(src))


class TransformerDecoder(Module):
    """Several decoder layers, one after the other.

    Inputs and output as of the layer.

    Parameters
    ----------
    decoder_layer : Module
        Copied for each of the layers.
    num_layers : int
        How many.
    norm : Module, optional
        Behind the last one.

    Examples
    --------
    >>> layer = weft.nn.TransformerDecoderLayer(8, 2, 16)
    >>> weft.nn.TransformerDecoder(layer, 2).eval()(weft.ones(5, 1, 8), weft.ones(7, 1, 8)).shape
    (5, 1, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:  # fmt: skip
        """Return the decoded sequence."""
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                        memory_key_padding_mask, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else cast(Tensor, self.norm(tgt))


class Transformer(Module):
    """Encoder and decoder: sequences ``[S, N, E]`` and ``[T, N, E]`` to ``[T, N, E]``.

    N comes first with `batch_first`.

    Parameters
    ----------
    d_model, nhead : int
        The size E of a vector, and the heads that it divides by.
    num_encoder_layers, num_decoder_layers : int
        How many layers.
    dim_feedforward, dropout, activation
        As for `TransformerEncoderLayer`.
    custom_encoder, custom_decoder : Module, optional
        In place of those made here.
    layer_norm_eps, batch_first, norm_first, bias
        As for `TransformerEncoderLayer`.

    Raises
    ------
    ShapeError, RangeError
        If `d_model` does not divide by the heads, or the activation is unknown.

    Examples
    --------
    >>> net = weft.nn.Transformer(8, 2, 1, 1, 16).eval()
    >>> net(weft.ones(7, 1, 8), weft.ones(5, 1, 8)).shape
    (5, 1, 8)
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = "relu", custom_encoder: Module | None = None,
                 custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True
                 ) -> None:  # fmt: skip
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                   batch_first, norm_first, bias)  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm())
        for p in self.parameters():
            if len(p.shape) > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
                tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False
                ) -> Tensor:  # fmt: skip
        """Return the decoded sequence."""
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError("Transformer", found=f"{src.shape} and {tgt.shape}",
                             expected=f"last axes of {self.d_model}")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return cast(Tensor, self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal))  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: object = None) -> Tensor:
        """Return a mask that hides later elements: ``-inf`` above the diagonal, else 0.

        Parameters
        ----------
        sz : int
            Rows and columns.
        dtype : DType, optional
            float32 by default.

        Returns
        -------
        Tensor
            Shape ``[sz, sz]``.

        Examples
        --------
        >>> weft.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return full((sz, sz), -float("inf"), dtype=dtype).triu(1)


fill_docstrings(globals(), SECTIONS)
