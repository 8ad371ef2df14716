"""The devices, and what programs ask of the one that runs kernels."""

from weft.compat.cuda.device import (
    close,
    current_context,
    get_current_device,
    gpus,
    require_context,
)

__all__ = ["get_context", "get_current_device", "gpus", "require_context", "reset"]

get_context, reset = current_context, close
