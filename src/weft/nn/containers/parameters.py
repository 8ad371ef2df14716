"""Containers of parameters: in lists, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from weft.errors import DTypeError
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.arguments import describe
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["ParameterDict", "ParameterList"]


def _parameter(value: Any, operation: str) -> Parameter:
    """Return a parameter: a tensor becomes one."""
    if isinstance(value, Parameter):
        return value
    if isinstance(value, Tensor):
        return Parameter(value)
    raise DTypeError(operation, found=describe(value), expected="a parameter or a tensor")


class _Shown(Module):
    """Parameters that `repr` shows."""

    def __len__(self) -> int:
        return len(self._parameters)

    def extra_repr(self) -> str:
        """Return names, dtypes and sizes."""
        lines = []
        for name, p in self._parameters.items():
            if p is not None:
                size = "x".join(map(str, p.shape))
                lines.append(f"  ({name}): Parameter containing: [{p.dtype!r} of size {size}]")
        return "\n".join(lines)


class ParameterList(_Shown):
    """A list of parameters that are found.

    Parameters
    ----------
    values : iterable of Parameter or Tensor
        The first ones; tensors become parameters.

    Raises
    ------
    DTypeError
        If something is no tensor.

    Examples
    --------
    >>> len(weft.nn.ParameterList([weft.nn.Parameter(weft.ones(2))]))
    1
    """

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Tensor) -> Self:
        """Add a parameter at the end.

        Parameters
        ----------
        value : Parameter or Tensor
            The parameter.

        Returns
        -------
        ParameterList
            This list.

        Examples
        --------
        >>> weft.nn.ParameterList().append(weft.nn.Parameter(weft.ones(2)))[0].shape
        (2,)
        """
        self.register_parameter(str(len(self)), _parameter(value, "ParameterList"))
        return self

    def extend(self, values: Iterable[Tensor]) -> Self:
        """Add several parameters at the end.

        Parameters
        ----------
        values : iterable of Parameter or Tensor
            The parameters.

        Returns
        -------
        ParameterList
            This list.

        Examples
        --------
        >>> len(weft.nn.ParameterList().extend([weft.ones(2), weft.ones(3)]))
        2
        """
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._parameters.values()))

    def __getitem__(self, index: int | slice) -> Any:
        found = list(self)[index]
        return ParameterList(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, value: Tensor) -> None:
        name = list(self._parameters)[index]
        self.register_parameter(name, _parameter(value, "ParameterList"))


class ParameterDict(_Shown):
    """A dict of parameters that are found.

    Parameters
    ----------
    parameters : mapping of str to Parameter or Tensor, or iterable of pairs, optional
        The first ones; tensors become parameters.

    Raises
    ------
    DTypeError
        If something is no tensor.

    Examples
    --------
    >>> parameters = weft.nn.ParameterDict({"scale": weft.ones(2)})
    >>> [name for name, _ in parameters.named_parameters()]
    ['scale']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def update(self, parameters: Any) -> None:
        """Add parameters by name, or replace them.

        Parameters
        ----------
        parameters : mapping of str to Parameter or Tensor, or iterable of pairs
            The parameters.

        Raises
        ------
        DTypeError
            If something is no tensor.

        Examples
        --------
        >>> parameters = weft.nn.ParameterDict()
        >>> parameters.update({"scale": weft.ones(2)})
        >>> len(parameters)
        1
        """
        pairs = parameters.items() if hasattr(parameters, "items") else parameters
        for name, value in list(pairs):
            self[name] = value

    def pop(self, name: str) -> Any:
        """Remove a parameter and return it.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        Parameter
            The parameter.

        Raises
        ------
        KeyError
            If there is none.

        Examples
        --------
        >>> weft.nn.ParameterDict({"scale": weft.ones(2)}).pop("scale").shape
        (2,)
        """
        return self._parameters.pop(name)

    def clear(self) -> None:
        """Remove all parameters.

        Examples
        --------
        >>> parameters = weft.nn.ParameterDict({"scale": weft.ones(2)})
        >>> parameters.clear()
        >>> len(parameters)
        0
        """
        self._parameters.clear()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter of a name, or something else where there is none.

        Parameters
        ----------
        name : str
            The name.
        default : object, optional
            The other thing.

        Returns
        -------
        Parameter
            Or `default`.

        Examples
        --------
        >>> weft.nn.ParameterDict().get("scale") is None
        True
        """
        return self._parameters.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.register_parameter(name, _parameter(value, "ParameterDict"))

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def keys(self) -> Iterable[str]:
        """Return the names of the parameters.

        Returns
        -------
        iterable of str
            In their order.

        Examples
        --------
        >>> list(weft.nn.ParameterDict({"scale": weft.ones(2)}).keys())
        ['scale']
        """
        return self._parameters.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the names and parameters.

        Returns
        -------
        iterable of (str, Parameter)
            In their order.

        Examples
        --------
        >>> [(k, v.shape) for k, v in weft.nn.ParameterDict({"scale": weft.ones(2)}).items()]
        [('scale', (2,))]
        """
        return self._parameters.items()

    def values(self) -> Iterable[Any]:
        """Return the parameters.

        Returns
        -------
        iterable of Parameter
            In their order.

        Examples
        --------
        >>> [v.shape for v in weft.nn.ParameterDict({"scale": weft.ones(2)}).values()]
        [(2,)]
        """
        return self._parameters.values()


fill_docstrings(globals(), SECTIONS)
