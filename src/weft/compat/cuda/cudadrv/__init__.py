"""``numba.cuda.cudadrv``: what programs name of the driver, on the memory of the host."""

from weft.compat.cuda.cudadrv import devicearray, devices, driver, enums, error, nvvm, runtime

__all__ = ["devicearray", "devices", "driver", "enums", "error", "nvvm", "runtime"]
