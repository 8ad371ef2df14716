"""Layers of neural networks, with PyTorch's names, parameters and initialisation."""

import sys

from weft.imports import importing

with importing:
    from weft.nn import functional, init
    from weft.nn import parameters as utils
    from weft.nn.activations.along_axes import *  # noqa: F403 - the layers' own list of names
    from weft.nn.activations.along_axes import __all__ as _along_axes
    from weft.nn.activations.elementwise import *  # noqa: F403
    from weft.nn.activations.elementwise import __all__ as _elementwise
    from weft.nn.attention import MultiheadAttention
    from weft.nn.containers.modules import ModuleDict, ModuleList, Sequential
    from weft.nn.containers.parameters import ParameterDict, ParameterList
    from weft.nn.dropout import *  # noqa: F403
    from weft.nn.dropout import __all__ as _dropout
    from weft.nn.layers import *  # noqa: F403 - the layers' own list of names
    from weft.nn.layers import __all__ as _layers
    from weft.nn.losses import *  # noqa: F403
    from weft.nn.losses import __all__ as _losses
    from weft.nn.module import Module, StateError
    from weft.nn.normalization import *  # noqa: F403
    from weft.nn.normalization import __all__ as _normalization
    from weft.nn.pooling import *  # noqa: F403
    from weft.nn.pooling import __all__ as _pooling
    from weft.nn.rearrangement import *  # noqa: F403
    from weft.nn.rearrangement import __all__ as _rearrangement
    from weft.nn.recurrent import *  # noqa: F403
    from weft.nn.recurrent import __all__ as _recurrent
    from weft.nn.transformers.transformer import *  # noqa: F403
    from weft.nn.transformers.transformer import __all__ as _transformer
    from weft.tensors.api.tensor import Parameter

__all__ = [
    "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "ParameterDict",
    "ParameterList", "Sequential", "StateError", "functional", "init", "utils",
]  # fmt: skip
__all__ += _along_axes
__all__ += _elementwise
__all__ += _dropout
__all__ += _layers
__all__ += _losses
__all__ += _normalization
__all__ += _pooling
__all__ += _rearrangement
__all__ += _recurrent
__all__ += _transformer

sys.modules["weft.nn.utils"] = utils  # so that `from weft.nn.utils import ...` works


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)
