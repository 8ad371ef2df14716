"""``numba.core``: another place of numba's types, errors and settings."""

import sys

from weft.compat import config, errors, extending, types, typing
from weft.compat import config as utils  # PYVERSION stands there, too

__all__ = ["config", "errors", "extending", "types", "typing", "utils"]

sys.modules.update({f"{__name__}.{name}": globals()[name] for name in __all__})
sys.modules.update({f"{__name__}.typing.{name}": getattr(typing, name)
                    for name in ("templates", "typeof")})
globals().update(extending.places("core"))  # of numba's compiler: named, and refused where used
