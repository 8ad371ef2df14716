"""``numba.typed``: lists and dicts of one type for the host, which are Python's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

__all__ = ["Dict", "List"]


class List(list[Any]):
    """A list; what numba's type for it says changes nothing."""

    def __init__(self, items: Iterable[Any] = (), **options: Any) -> None:
        del options
        super().__init__(items)

    @classmethod
    def empty_list(cls, item_type: Any, allocated: int = 0) -> Self:
        """Return a list without items, for items of a type."""
        del item_type, allocated
        return cls()


class Dict(dict[Any, Any]):
    """A dict; what numba's type for it says changes nothing."""

    def __init__(self, items: Any = (), **options: Any) -> None:
        del options
        super().__init__(items)

    @classmethod
    def empty(cls, key_type: Any, value_type: Any, n_keys: int = 0) -> Self:
        """Return a dict without items, for keys and values of some types."""
        del key_type, value_type, n_keys
        return cls()
