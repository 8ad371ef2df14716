"""Devices: the public functions that list them, set the default, synchronise; where values are.

A device is named ``family[:ordinal or name][/pair]``. The default is what `set_default_device`
chose, else what ``WEFT_DEVICE`` names, else the first family that can be used, in the order of
probing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft import driver
from weft.backends import names, registry
from weft.config import Config, changed, config
from weft.driver import placement
from weft.driver.context import context
from weft.errors import DeviceError, SyncError, WeftError
from weft.ir import infer
from weft.ir.node import HOST, Node
from weft.ir.op import storage_only

__all__ = ["AUTO", "devices", "get_default_device", "is_available", "moved", "on_device_of",
           "place_for", "set_default_device", "synchronize", "together"]  # fmt: skip

_NOMINAL: Final = 1e9  # operations of the work that a default device is chosen for
AUTO: Final = "auto"  # in place of a device: whichever is best for the work
_known: tuple[Config, str] | None = None  # the default that was looked up, with its settings


def devices() -> tuple[str, ...]:
    """Return the names of all devices that can be used; ``weft devices`` says why others cannot.

    A family that is disabled in the configuration is not among them.

    Returns
    -------
    tuple of str
        As in ``family[:ordinal or name]``.

    Examples
    --------
    >>> "cpu" in weft.devices()
    True
    """
    return tuple(name for found in registry.available() for name in found.devices)


def get_default_device() -> str:
    """Return where tensors are made if nothing else is said.

    Returns
    -------
    str
        What `set_default_device` chose, else ``WEFT_DEVICE``, else the first family that runs.

    Raises
    ------
    DeviceError
        If the device that ``WEFT_DEVICE`` names is absent, or if there is none at all.

    Examples
    --------
    >>> weft.get_default_device() in weft.devices()
    True
    """
    global _known
    if registry.chosen() is not None:
        return registry.default()
    if _known is None or _known[0] is not config():
        _known = config(), registry.default()
    return _known[1]


def set_default_device(device: object) -> None:
    """Make tensors on `device` from now on, in all threads; None goes back to ``WEFT_DEVICE``.

    Parameters
    ----------
    device : str or None
        ``family[:ordinal or name][/pair]``, or ``auto`` for the one that has most to give now:
        by its rate, the share of it that is free, and memory.

    Raises
    ------
    DeviceError
        If the name is unknown, the device is absent, or nothing is computed there; the default
        stays as it was.

    Examples
    --------
    >>> weft.set_default_device(None)
    """
    if device == AUTO:
        device = placement.best(placement.Work(_NOMINAL))
    registry.choose(None if device is None else _checked(device))
    changed()


def is_available(device: object = None) -> bool:
    """Return whether a device (by default, any device at all) can be used.

    Parameters
    ----------
    device : str, optional
        ``family[:ordinal or name][/pair]``.

    Returns
    -------
    bool
        False where its library or the device is absent.

    Raises
    ------
    DeviceError
        If `device` is not the name of a device.

    Examples
    --------
    >>> weft.is_available("cpu")
    True
    """
    if device is None:
        return bool(devices())
    names.parse(_text(device))
    try:
        registry.lookup(_text(device))
    except DeviceError:
        return False
    return True


def synchronize(device: object = None) -> None:
    """Wait until a device (by default, the default one) has done all that was given to it.

    Tensors that nobody has looked at are not computed by this: `Tensor.realize` does that.

    Parameters
    ----------
    device : str, optional
        ``family[:ordinal or name][/pair]``.

    Raises
    ------
    DeviceError
        If the device is unknown or absent.
    SyncError
        If its driver fails.

    Examples
    --------
    >>> weft.synchronize()
    """
    name = get_default_device() if device is None else _text(device)
    queue = context(name).runtime.queue
    try:
        queue.synchronize()
    except WeftError:
        raise
    except Exception as error:
        raise SyncError(name, found=f"{type(error).__name__}: {error}",
                        expected="a device that finishes its work") from error


def place_for(nodes: Sequence[Node]) -> str:
    """Return the device that ``auto`` stands for, for values that are to be on one device."""
    return placement.best(placement.work_of(nodes))


def moved(node: Node, place: str) -> Node:
    """Return a value on a device, or on the one that ``auto`` stands for; anywhere without one.

    Where it is already, it is not copied.
    """
    if place == AUTO:
        place = place_for([node])
        if place == node.device or place == HOST == driver.default_device():
            return node if node.device in ("", place) else infer.copy(node, place)
    return infer.copy(node, place) if place else node


def _checked(device: object) -> str:
    name = registry.lookup_default(_text(device))
    return str(name.replace(pair=names.parse(_text(device)).pair))


def _text(device: object) -> str:
    """Return the name of a device; that of ``torch.device`` is its text."""
    return device if isinstance(device, str) else str(device)


def on_device_of(old: Node, value: Node) -> Node:
    """Return what is written in place of a value, on the device that the tensor is on.

    Raises
    ------
    DeviceError
        If it is on another device.
    """
    home = old.device
    if not home or value.device == home:
        return value
    if value.device:
        raise DeviceError("in-place write", found=f"a value on {value.device}",
                          expected=f"one on {home}, as the tensor is",
                          hint=f"move it, as in x.to({home!r})")
    return value if home == HOST == driver.default_device() else infer.copy(value, home)


def together(nodes: Sequence[Node]) -> list[Node]:
    """Return operands on one device: a 0-d one of the host follows those on another."""
    others = [n.device for n in nodes if n.device not in ("", HOST)]
    if not others or others[0] in storage_only:
        return list(nodes)
    return [infer.copy(n, others[0]) if n.device == HOST and not n.shape else n for n in nodes]
