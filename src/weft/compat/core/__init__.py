"""``numba.core``: another place of numba's types, errors and settings."""

import sys

from weft.compat import errors, extending, types
from weft.compat.host import config

__all__ = ["config", "errors", "extending", "types"]

sys.modules.update({f"{__name__}.errors": errors, f"{__name__}.extending": extending,
                    f"{__name__}.types": types})
