"""The network, in Weft."""

from __future__ import annotations

import weft
from weft import nn

CHANNELS = (16, 32)
DROPOUT = 0.5


class DigitNet(nn.Module):
    """Two convolutions with batch norm, one pooling, one linear layer: about 10,000 weights."""

    def __init__(self, dropout: float = DROPOUT) -> None:
        super().__init__()
        first, second = CHANNELS
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(second)
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(second * 16, 10)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        """Return the logits ``[n, 10]`` of images ``[n, 1, 8, 8]``."""
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu().max_pool2d(2)
        logits: weft.Tensor = self.classify(self.dropout(x.flatten(1)))
        return logits
