"""``numba.cuda.cudadrv``: what programs name of the driver, on the memory of the host."""

import sys

from weft.compat.cuda import refused as linkable_code
from weft.compat.cuda.cudadrv import devicearray, devices, driver, enums, error, nvvm, runtime

__all__ = ["devicearray", "devices", "driver", "enums", "error", "linkable_code", "nvvm",
           "runtime"]  # fmt: skip

sys.modules[f"{__name__}.linkable_code"] = linkable_code
