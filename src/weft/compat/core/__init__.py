"""``numba.core``: another place of numba's types, errors and settings."""

import sys
from importlib import import_module
from typing import Any

from weft.compat import config, errors, extending, types, typing
from weft.compat import config as utils  # PYVERSION stands there, too
from weft.imports import importing

__all__ = ["config", "errors", "extending", "types", "typing", "utils"]

sys.modules.update({f"{__name__}.{name}": globals()[name] for name in __all__})
sys.modules.update({f"{__name__}.typing.{name}": getattr(typing, name)
                    for name in ("templates", "typeof")})
globals().update(extending.places("core"))  # of numba's compiler: named, and refused where used


def __getattr__(name: str) -> Any:
    """Import what few programs name."""
    if name in ("dispatcher", "registry"):
        with importing:
            return import_module(f"{__name__}.{name}")
    raise AttributeError(f"numba.core has no {name} here")
