"""Layers of neural networks, with PyTorch's names, parameters and first values."""

from weft.frontend.tensor import Parameter
from weft.nn import functional, init
from weft.nn.activations import *  # noqa: F403 - the layers' own list of names
from weft.nn.activations import __all__ as _activations
from weft.nn.attention import MultiheadAttention, TransformerEncoderLayer
from weft.nn.layers import *  # noqa: F403 - the layers' own list of names
from weft.nn.layers import __all__ as _layers
from weft.nn.module import (
    Module,
    ModuleDict,
    ModuleList,
    ParameterList,
    Sequential,
    StateError,
)

__all__ = [
    "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "ParameterList",
    "Sequential", "StateError", "TransformerEncoderLayer", "functional", "init",
]  # fmt: skip
__all__ += _activations
__all__ += _layers
