"""The model: a decoder of two blocks over characters, for Weft and, layer by layer, for PyTorch."""

from __future__ import annotations

from typing import Any, Final

import weft
from weft import nn
from weft.nn import functional as F

CONTEXT: Final = 64  # characters that a prediction looks back at
WIDTH: Final = 64
HEADS: Final = 4
BLOCKS: Final = 2


class Block(nn.Module):
    """Attention to what came before, then two layers for each character; both add to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        """Return (batch, length, WIDTH) for (batch, length, WIDTH)."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


class CharGPT(nn.Module):
    """Scores of the next character after each one.

    Parameters
    ----------
    characters
        How many different characters there are.
    """

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, tokens: weft.Tensor) -> weft.Tensor:
        """Return (batch, length, characters) for (batch, length), at most CONTEXT long."""
        x = self.characters(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def sampler(model: CharGPT) -> Any:
    """Return a captured function: tokens (1, length) and a temperature to (1, length + 1)."""

    @weft.jit
    def extend(tokens: weft.Tensor, temperature: float) -> weft.Tensor:
        scores = model(tokens[:, -CONTEXT:])[:, -1] / temperature
        noise = -(-(weft.rand(1, scores.shape[-1]) + 1e-9).log() + 1e-9).log()  # Gumbel's
        return weft.cat([tokens, (scores + noise).argmax(-1, keepdim=True)], 1)

    return extend
