"""``weft.unified``: one value on several devices, copied to where it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import CaptureError, DeviceError, GradientError
from weft.locks import mutex
from weft.tensors.core.arguments import check_tensor
from weft.tensors.core.devices import AUTO, get_default_device
from weft.tensors.core.thread_state import state

if TYPE_CHECKING:
    from weft.tensors.api.tensor import Tensor

__all__ = ["UnifiedTensor", "unified"]


class _Replica(NamedTuple):
    """The value on one device, and the tensor's version when it was known to be it."""

    tensor: Any
    version: int


def _check_own(tensor: Any, what: str) -> None:
    if tensor._shared is not None:
        raise DeviceError("unified", found=f"{what}, which NumPy or another library shares",
                          expected="a tensor of its own: what others write is not seen",
                          hint="copy it, as in x.clone()")


def _replica(tensor: Any) -> _Replica:
    tensor.realize()  # which is a new version
    return _Replica(tensor, tensor._version)


class UnifiedTensor:
    """One value on several devices; see `unified`."""

    __slots__ = ("_lock", "_replicas", "_valid")

    def __init__(self, tensor: Tensor) -> None:
        self._replicas = {tensor.device: _replica(tensor)}
        self._valid = {tensor.device}  # where the value is the last one
        self._lock = mutex()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape on every device."""
        found: tuple[int, ...] = next(iter(self._replicas.values())).tensor.shape
        return found

    @property
    def devices(self) -> tuple[str, ...]:
        """Where it can be read without a copy, in the order in which devices were asked for."""
        with self._lock:
            self._look()
            return tuple(name for name in self._replicas if name in self._valid)

    def on(self, device: str | None = None) -> Tensor:
        """Return the value as a tensor of a device, copied there if it is not the last one.

        It is the same tensor at each call. It may be written to: by kernels, in place, by
        optimisers. The next call for another device brings what was written there.

        Parameters
        ----------
        device : str, optional
            By default the default device.

        Returns
        -------
        Tensor
            On that device.

        Raises
        ------
        DeviceError
            If the device is absent, the value was written to on two devices since the last call, or
            its memory was given to another library.
        CaptureError
            Inside of a function under `weft.jit`: what is copied depends on what was written.
        """
        if state.capture is not None:
            raise CaptureError("unified", found="a call in a captured function",
                               expected="the tensor that on() returns, as an argument of it")
        asked = get_default_device() if device is None else device
        with self._lock:
            self._look()
            source = self._replicas[next(n for n in self._replicas if n in self._valid)].tensor
            if asked == AUTO:
                asked = source.to_device(AUTO).device
            held = self._replicas.get(asked)
            if held is None:  # by that name: a device may have several
                moved = source.to_device(asked)
                asked = moved.device
                held = self._replicas.get(asked)
                if held is None:
                    held = self._replicas[asked] = _replica(moved)
                    self._valid.add(asked)
            if asked not in self._valid:
                held.tensor[...] = source.to_device(asked)
                held = self._replicas[asked] = _replica(held.tensor)
                self._valid.add(asked)
            found: Tensor = held.tensor
            return found

    def _look(self) -> None:
        """Find out where the value was written to since it was looked at."""
        for name, (tensor, _) in self._replicas.items():
            _check_own(tensor, f"the memory on {name}")
        written = [n for n, (tensor, version) in self._replicas.items()
                   if tensor._version != version]
        if not written:
            return
        if len(written) > 1 or written[0] not in self._valid:
            raise DeviceError("unified", found="writes on " + " and on ".join(
                [*written, *(["what was the last value on another device"] * (len(written) < 2))]),
                expected="writes on one device, and on() before those on another")
        (name,) = written
        self._replicas[name] = _replica(self._replicas[name].tensor)
        self._valid = {name}

    def __repr__(self) -> str:
        return f"<weft.unified {list(self.shape)} on {', '.join(self._replicas)}>"


def unified(tensor: Tensor) -> UnifiedTensor:
    """Return a handle of one value on several devices, which copies it when it is asked for.

    Parameters
    ----------
    tensor : Tensor
        The value, on any device that computes. The handle keeps it; what is written to it is
        written to the value.

    Returns
    -------
    UnifiedTensor
        Whose `on` returns the tensor of a device.

    Raises
    ------
    TypeError
        If it is no tensor.
    DeviceError
        If it is a view, or its memory belongs to another library: copy it first.
    GradientError
        If the tensor requires a gradient: copies by `to` have one, replicas have none.

    Examples
    --------
    >>> both = weft.unified(weft.zeros(3))
    >>> both.on("interpreter")[0] = 5
    >>> both.on("cpu").tolist()
    [5.0, 0.0, 0.0]
    """
    check_tensor(tensor, "unified")
    if tensor._base is not None:
        raise DeviceError("unified", found="a view", expected="a tensor of its own",
                          hint="copy it, as in x.clone()")
    _check_own(tensor, "a tensor")
    if tensor._requires_grad:
        raise GradientError("unified", found="a tensor that requires a gradient",
                            expected="one that does not", hint="x.to(...) has a gradient")
    return UnifiedTensor(tensor)
