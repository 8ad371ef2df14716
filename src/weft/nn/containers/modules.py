"""Containers of layers: in sequence, in lists, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from weft.errors import DTypeError, WeftError
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.core.arguments import count_of, describe
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


def _no_layer(value: object) -> WeftError:
    """Return the error that says how a value becomes a layer of a sequence."""
    hint = "a function needs a Module around it"
    if isinstance(value, list | tuple):
        hint = "Sequential(*layers)"
    elif isinstance(value, type):
        hint = f"{value.__name__}() makes one"
    return WeftError("Sequential", found=f"a {type(value).__name__}", expected="layers, one by one",
                     hint=hint)


class _Listed(Module):
    """Layers whose names are their numbers."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter([m for m in self._modules.values() if m is not None])

    def _renumber(self, layers: list[Module]) -> Self:
        self._modules.clear()
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a layer before another.

        Parameters
        ----------
        index : int
            Before which one; a negative one counts from the last.
        {module}

        {Returns: this}

        Examples
        --------
        >>> weft.nn.ModuleList([weft.nn.ReLU()]).insert(0, weft.nn.Tanh())[0]
        Tanh()
        """
        layers = list(self)
        layers.insert(index, module)
        return self._renumber(layers)

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add several layers at the end.

        Parameters
        ----------
        modules : iterable of Module
            The layers.

        {Returns: this}

        Examples
        --------
        >>> len(weft.nn.ModuleList().extend([weft.nn.ReLU(), weft.nn.Tanh()]))
        2
        """
        return self._renumber([*self, *modules])

    def pop(self, index: int) -> Module:
        """Remove a layer and return it.

        Parameters
        ----------
        index : int
            Which one; a negative one counts from the last.

        {Returns: layer}

        Raises
        ------
        IndexError
            If there is none.

        Examples
        --------
        >>> weft.nn.ModuleList([weft.nn.ReLU()]).pop(0)
        ReLU()
        """
        layers = list(self)
        found = layers.pop(index)
        self._renumber(layers)
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        name = list(self._modules)[index]
        self.add_module(name, module)

    def __delitem__(self, index: int | slice) -> None:
        layers = list(self)
        del layers[index]
        self._renumber(layers)

    def __add__(self, other: Iterable[Module]) -> Self:
        made = type(self)()
        return made._renumber([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)


class Sequential(_Listed):
    """Layers applied one after the other.

    Input as of the first layer, output as of the last one.

    Parameters
    ----------
    *layers : Module, or one mapping of str to Module
        In their order.

    Raises
    ------
    WeftError
        If something is no module.

    Examples
    --------
    >>> weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.ReLU())(weft.ones(5, 3)).shape
    (5, 4)
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            for name, named in layers[0].items():
                self.add_module(name, named)
            return
        for i, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise _no_layer(layer)
            self.add_module(str(i), layer)

    def forward(self, input: Any) -> Any:
        """Apply the layers in order."""
        for layer in self:
            input = layer(input)
        return input

    def append(self, layer: Module) -> Self:
        """Add a layer at the end.

        Parameters
        ----------
        layer : Module
            The layer.

        Returns
        -------
        Sequential
            This module.

        Examples
        --------
        >>> len(weft.nn.Sequential().append(weft.nn.ReLU()))
        1
        """
        self.add_module(str(len(self._modules)), layer)
        return self

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):  # names stay, and so do paths of parameters
            return type(self)(dict(list(self._modules.items())[index]))  # type: ignore[arg-type]
        return list(self)[index]

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*list(self) * count_of(times, "Sequential", 1))


class ModuleList(_Listed):
    """A list of layers whose parameters are found.

    Parameters
    ----------
    modules : iterable of Module
        The first layers.

    Examples
    --------
    >>> len(weft.nn.ModuleList([weft.nn.ReLU(), weft.nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        """Add a layer at the end.

        {Parameters: module}

        Returns
        -------
        ModuleList
            This list.

        Examples
        --------
        >>> weft.nn.ModuleList().append(weft.nn.ReLU())[0]
        ReLU()
        """
        self.add_module(str(len(self._modules)), module)
        return self

    def __repr__(self) -> str:
        found: list[tuple[str, list[int]]] = []  # equal neighbours share a line
        for i, text in enumerate(map(repr, self)):
            if found and found[-1][0] == text:
                found[-1][1].append(i)
            else:
                found.append((text, [i]))
        lines = [f"\n  ({i[0]}): {text}" if len(i) == 1 else
                 f"\n  ({i[0]}-{i[-1]}): {len(i)} x {text}"
                 for text, i in ((text.replace("\n", "\n  "), i) for text, i in found)]
        return f"{type(self).__name__}({''.join(lines)}" + ("\n)" if lines else ")")

    def __getitem__(self, index: int | slice) -> Any:
        layers = list(self)
        return ModuleList(layers[index]) if isinstance(index, slice) else layers[index]


class ModuleDict(Module):
    """A dict of layers whose parameters are found.

    Parameters
    ----------
    modules : mapping of str to Module, or iterable of pairs, optional
        The first layers.

    {Raises: mapping}

    Examples
    --------
    >>> weft.nn.ModuleDict({"act": weft.nn.ReLU()})["act"]
    ReLU()
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def update(self, modules: Any) -> None:
        """Add layers by name, or replace them.

        Parameters
        ----------
        modules : mapping of str to Module, or iterable of pairs
            The layers.

        {Raises: mapping}

        Examples
        --------
        >>> layers = weft.nn.ModuleDict()
        >>> layers.update({"act": weft.nn.ReLU()})
        >>> len(layers)
        1
        """
        try:
            pairs = list(modules.items() if hasattr(modules, "items") else modules)
            found = [(name, module) for name, module in pairs]
        except (TypeError, ValueError):
            raise DTypeError("ModuleDict", found=describe(modules),
                             expected="a dict of modules") from None
        for name, module in found:
            self.add_module(name, module)

    def clear(self) -> None:
        """Remove all layers.

        Examples
        --------
        >>> layers = weft.nn.ModuleDict({"act": weft.nn.ReLU()})
        >>> layers.clear()
        >>> len(layers)
        0
        """
        self._modules.clear()

    def pop(self, name: str) -> Module:
        """Remove a layer and return it.

        Parameters
        ----------
        name : str
            Its name.

        {Returns: layer}

        Raises
        ------
        KeyError
            If there is none.

        Examples
        --------
        >>> weft.nn.ModuleDict({"act": weft.nn.ReLU()}).pop("act")
        ReLU()
        """
        found = self[name]
        del self._modules[name]
        return found

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __getitem__(self, name: str) -> Module:
        found = self._modules[name]
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Iterable[str]:
        """Return the names of the layers.

        Returns
        -------
        iterable of str
            In their order.

        Examples
        --------
        >>> list(weft.nn.ModuleDict({"act": weft.nn.ReLU()}).keys())
        ['act']
        """
        return self._modules.keys()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Return the names and layers.

        Returns
        -------
        iterator of (str, Module)
            In their order.

        Examples
        --------
        >>> list(weft.nn.ModuleDict({"act": weft.nn.ReLU()}).items())
        [('act', ReLU())]
        """
        return iter([(n, m) for n, m in self._modules.items() if m is not None])

    def values(self) -> Iterator[Module]:
        """Return the layers.

        Returns
        -------
        iterator of Module
            In their order.

        Examples
        --------
        >>> list(weft.nn.ModuleDict({"act": weft.nn.ReLU()}).values())
        [ReLU()]
        """
        return iter([m for m in self._modules.values() if m is not None])


fill_docstrings(globals(), SECTIONS)
