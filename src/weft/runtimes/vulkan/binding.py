"""The functions and structs of Vulkan, by the package vulkan: its C level, without its wrappers.

A struct keeps alive what it points to. A result that is an error is raised as `VulkanError`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from weft.errors import LibraryNotFoundError
from weft.imports import importing
from weft.locks import mutex
from weft.weak import WeakTable

__all__ = ["INSTALL", "LOST", "NO_MEMORY", "Vulkan", "VulkanError", "vulkan"]

INSTALL: Final = "pip install weft[vulkan]"
LOST: Final = -4
NO_MEMORY: Final = (-1, -2)  # of the host, of the device
_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]+|[A-Z]+|\d")

_lock = mutex()
_binding: Vulkan | None = None


class VulkanError(Exception):
    """A function of Vulkan that has failed.

    Attributes
    ----------
    result : int
        What it has returned, a negative number.
    """

    def __init__(self, function: str, result: int, meaning: str) -> None:
        super().__init__(f"{function}: {meaning}")
        self.result = result


class Vulkan:
    """The functions and structs.

    Attributes
    ----------
    constants : module
        Has the constants as ``VK_…``.
    ffi, lib
        Of cffi: the types, and the functions of the loader.
    """

    def __init__(self, module: Any) -> None:
        self.constants = module
        self.ffi, self.lib = module.ffi, module.lib
        self.null: Any = self.ffi.NULL
        self._parts: WeakTable[Any, Any] = WeakTable()
        self._results = {value: name for name, value in vars(module).items()
                         if name.startswith(("VK_ERROR_", "VK_NOT_READY", "VK_TIMEOUT"))
                         and isinstance(value, int)}  # fmt: skip
        self.kind_of = cache(self._kind_of)

    def struct(self, kind: str, **fields: Any) -> Any:
        """Return a pointer to a new struct; its type is filled in, and its fields live with it."""
        made = self.ffi.new(f"{kind} *")
        number = self.kind_of(kind)
        if number is not None:
            made.sType = number
        for name, value in fields.items():
            setattr(made, name, value)
        if fields:
            self._parts[made] = fields
        return made

    def array(self, kind: str, values: Any) -> Any:
        """Return a new array; it keeps alive what pointers in it point to."""
        held = list(values)
        made = self.ffi.new(f"{kind}[]", held)
        self._parts[made] = held
        return made

    def _kind_of(self, kind: str) -> int | None:
        """Return the number of a type of structs, None if it has none."""
        words = _WORDS.findall(kind.removeprefix("Vk"))
        found = getattr(self.constants, "VK_STRUCTURE_TYPE_" + "_".join(words).upper(), None)
        return found if isinstance(found, int) else None

    def call(self, name: str, *given: Any) -> int:
        """Call a function that returns a result, and return that.

        Raises
        ------
        VulkanError
            If it is an error.
        """
        result: int = getattr(self.lib, name)(*given)
        if result < 0:
            raise VulkanError(name, result, self._results.get(result, f"result {result}"))
        return result

    def made(self, name: str, kind: str, *given: Any) -> Any:
        """Return the object that a function makes of a parent and a description."""
        out = self.ffi.new(f"{kind} *")
        self.call(name, *given, self.null, out)
        return out[0]

    def listed(self, name: str, kind: str, *given: Any) -> list[Any]:
        """Return what a function enumerates."""
        count = self.ffi.new("uint32_t *")
        function = getattr(self.lib, name)
        function(*given, count, self.null)
        found = self.ffi.new(f"{kind}[]", max(count[0], 1))
        if (function(*given, count, found) or 0) < 0:
            return []
        return [found[k] for k in range(count[0])]

    def text(self, characters: Any) -> str:
        """Return a string of C."""
        return str(self.ffi.string(characters).decode(errors="replace"))


def vulkan() -> Vulkan:
    """Return the functions and structs.

    Raises
    ------
    LibraryNotFoundError
        If the package or the loader is not there, or does not load.
    """
    global _binding
    with _lock:
        if _binding is None:
            try:
                with importing:
                    import vulkan._vulkan as module
            except Exception as error:
                raise LibraryNotFoundError(
                    "vulkan", found=f"{type(error).__name__}: {error}",
                    expected="the package vulkan and the loader of Vulkan", hint=INSTALL
                ) from error  # fmt: skip
            _binding = Vulkan(module)
        return _binding
