"""The same model in eager PyTorch, for a comparison of times."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from examples.chargpt.model import CONTEXT, HEADS, WIDTH, CharGPT
from torch.nn import functional as F


def forward(weights: dict[str, torch.Tensor], blocks: int, tokens: torch.Tensor) -> torch.Tensor:
    """Return what `CharGPT.forward` does."""

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    batch, length = tokens.shape
    x = weights["characters.weight"][tokens] + weights["positions.weight"][:length]
    for i in range(blocks):
        b = f"blocks.{i}"
        heads = linear(f"{b}.qkv", norm(f"{b}.norm1", x))
        q, k, v = heads.reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(f"{b}.out", seen.transpose(1, 2).reshape(batch, length, WIDTH))
        x = x + linear(f"{b}.down", F.gelu(linear(f"{b}.up", norm(f"{b}.norm2", x))))
    return linear("head", norm("norm", x))


def seconds(model: CharGPT, prompt: np.ndarray[Any, Any], length: int) -> float:
    """Return how long eager PyTorch takes to sample, warm."""
    weights = {name: torch.tensor(t.tolist()) for name, t in model.state_dict().items()}
    taken = 0.0
    with torch.inference_mode():
        for _ in range(2):
            tokens = torch.from_numpy(prompt[None])
            begin = time.perf_counter()
            for _ in range(length):
                scores = forward(weights, len(model.blocks), tokens[:, -CONTEXT:])[:, -1]
                noise = -(-(torch.rand_like(scores) + 1e-9).log() + 1e-9).log()
                tokens = torch.cat([tokens, (scores + noise).argmax(-1, keepdim=True)], 1)
            taken = time.perf_counter() - begin
    return taken
