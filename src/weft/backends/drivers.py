"""Families of devices that belong to drivers: facts of the probe, open devices, and compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.backends import registry
from weft.backends.names import parse
from weft.errors import DeviceError
from weft.locks import mutex

__all__ = ["DriverCompiler", "DriverFamily"]


class DriverCompiler:
    """Takes a text as it is: the driver compiles it when it is loaded.

    Parameters
    ----------
    cache_key : str
        The language.
    image : callable
        Returns the bytes that a text stands for.
    """

    def __init__(self, cache_key: str, image: Callable[[str], bytes] = str.encode) -> None:
        self.cache_key, self._image = cache_key, image

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the image that a text stands for."""
        return self._image(source)


class DriverFamily:
    """The devices of one family, which a probe in a child process names and describes.

    Parameters
    ----------
    family : str
        Its name.
    default : str
        The default pair, which device names do not spell out.
    make : callable
        Opens the device with a name that its driver calls so.
    """

    def __init__(self, family: str, default: str, make: Callable[[str, str], Any]) -> None:
        self._family, self._default, self._make = family, default, make
        self._lock = mutex()
        self._devices: dict[tuple[int, str], Any] = {}

    def facts(self, ordinal: int) -> Mapping[str, Any]:
        """Return the properties of a device that its driver reported to the probe.

        Raises
        ------
        DeviceError
            If the probe has found no such device.
        """
        return self._found(ordinal)[1]

    def open(self, ordinal: int, pair: str) -> Any:
        """Return the runtime of a device; one that is no default has its pair in its name."""
        name = parse(self._found(ordinal)[0])
        with self._lock:
            if (ordinal, pair) not in self._devices:
                shown = str(name.replace(pair="" if pair == self._default else pair))
                self._devices[ordinal, pair] = self._make(shown, name.called)
            return self._devices[ordinal, pair]

    def _found(self, ordinal: int) -> tuple[str, Mapping[str, Any]]:
        """Return the name of a device, and the facts about it."""
        state = registry.probe(self._family)
        for name, number, said in zip(state.devices, state.ordinals, state.described, strict=True):
            if number == ordinal:
                return name, said.get("facts", {})
        raise DeviceError("device", found=f"{self._family}:{ordinal}",
                          expected="a device that is there", hint=state.reason or None)
