"""The constants of CUDA's driver that name attributes; programs list this module to print them."""

from __future__ import annotations

from weft.compat.cuda.device_attributes import ATTRIBUTES

__all__ = ["ATTRIBUTES"]

globals().update({f"CU_DEVICE_ATTRIBUTE_{name}": number for name, number in ATTRIBUTES.items()})
