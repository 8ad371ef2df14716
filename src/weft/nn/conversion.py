"""Conversion of a module's parameters and buffers to other dtypes and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from weft.nn.sections import SECTIONS
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.devices import AUTO, place_for
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["Convertible"]


class Convertible:
    """What has modules whose floating parameters and buffers can be converted."""

    modules: Callable[..., Iterator[Any]]

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating parameters and buffers to a dtype, and move all to a device.

        Parameters
        ----------
        *args, **kwargs
            Those of `Tensor.to`: a dtype, a device, or both.

        Returns
        -------
        Module
            This module; parameters of another dtype are new objects.

        {Raises: no_dtype}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).to(weft.float64).weight.dtype.name
        'float64'
        """
        args, kwargs = self._at_one_place(args, kwargs)
        made: dict[int, tuple[Tensor, Tensor]] = {}  # by what it was, so that ties stay
        with no_grad():
            for module in self.modules():
                for table in (module._parameters, module._buffers):
                    for name, old in list(table.items()):
                        if old is not None:
                            if id(old) not in made:
                                made[id(old)] = old, _converted(old, args, kwargs)
                            table[name] = made[id(old)][1]
        return self

    def _at_one_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                      ) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
        """Return arguments with one device for all parameters in place of ``auto``."""
        given = [*args, *kwargs.values()]
        if not any(isinstance(value, str) and value == AUTO for value in given):
            return args, kwargs
        tensors = {id(t): t for module in self.modules()
                   for table in (module._parameters, module._buffers)
                   for t in table.values() if t is not None}  # fmt: skip
        place = place_for([t._read() for t in tensors.values()])
        found = {name: place if isinstance(v, str) and v == AUTO else v
                 for name, v in kwargs.items()}
        return tuple(place if isinstance(v, str) and v == AUTO else v for v in args), found

    def cuda(self, device: str | None = None) -> Self:
        """Move parameters and buffers to a CUDA device, as ``to("cuda")`` does.

        Parameters
        ----------
        device : str, optional
            Another device.

        {Returns: this}

        Raises
        ------
        DeviceError
            If there is no such device: `weft.devices` lists them.

        Examples
        --------
        >>> layer = weft.nn.Linear(3, 2)
        >>> if weft.is_available("cuda"):
        ...     layer = layer.cuda()
        """
        return self.to("cuda" if device is None else device)

    def float(self) -> Self:
        """Convert floating parameters and buffers to float32.

        {Returns: this}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).float().weight.dtype.name
        'float32'
        """
        return self.to("float32")

    def double(self) -> Self:
        """Convert floating parameters and buffers to float64.

        {Returns: this}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).double().weight.dtype.name
        'float64'
        """
        return self.to("float64")

    def half(self) -> Self:
        """Convert floating parameters and buffers to float16.

        {Returns: this}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).half().weight.dtype.name
        'float16'
        """
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Convert floating parameters and buffers to bfloat16.

        {Returns: this}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).bfloat16().weight.dtype.name
        'bfloat16'
        """
        return self.to("bfloat16")

    def cpu(self) -> Self:
        """Return the module: it is on the CPU.

        {Returns: this}

        Examples
        --------
        >>> weft.nn.ReLU().cpu()
        ReLU()
        """
        return self

    def type(self, dtype: object) -> Self:
        """Convert floating parameters and buffers to a dtype, and move all to a device.

        Parameters
        ----------
        dtype : DType
            A float type.

        {Returns: this}
        {Raises: no_dtype}

        Examples
        --------
        >>> weft.nn.Linear(3, 2).type(weft.float64).weight.dtype.name
        'float64'
        """
        return self.to(dtype)


def _converted(old: Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """Return a parameter or a buffer on another device, floats as another dtype; or itself."""
    detached = old.detach()
    new = detached.to(*args, **options)
    if not old.dtype.is_float and new.dtype is not old.dtype:
        new = detached.to(device=new.device)
    if new.dtype is old.dtype and new.device == old.device:
        return old
    if not isinstance(old, Parameter):
        return new
    made = Parameter(new, old.requires_grad)
    if old.grad is not None:
        made.grad = old.grad.to(*args, **options)
    old._successor = made  # type: ignore[attr-defined]  # optimisers that still have it say so
    return made


fill_docstrings(globals(), SECTIONS)
