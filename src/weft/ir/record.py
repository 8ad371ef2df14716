"""Typed, immutable slot records: the attribute records of expressions, nodes and statements."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """Turns the annotations of a class body into slots, with one shared constructor."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]
    _getter: Callable[[Any], tuple[Any, ...]] | None  # None: fewer than two fields
    _setters: tuple[Callable[[Any, Any], None], ...]  # of the slots, faster than by their names

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
    ) -> RecordType:
        """Create the record class; annotated names become fields in order."""
        own = tuple(f for f in namespace.get("__annotations__", ()) if not f.startswith("_"))
        defaults = {f: namespace.pop(f) for f in own if f in namespace}
        extra = namespace.pop("__slots__", ())
        namespace["__slots__"] = own + tuple(extra)
        made = super().__new__(cls, name, bases, namespace)
        made._fields = tuple(f for base in bases for f in getattr(base, "_fields", ())) + own
        inherited = {k: v for base in bases for k, v in getattr(base, "_defaults", {}).items()}
        made._defaults = {**inherited, **defaults}
        # A built-in function: no method of instances, and several times as fast as a loop.
        made._getter = attrgetter(*made._fields) if len(made._fields) > 1 else None
        made._setters = tuple([getattr(made, f).__set__ for f in made._fields])
        return made


class Record(metaclass=RecordType):
    """Base of immutable records, compared and hashed by value.

    A subclass lists its fields as annotations; defaults are allowed. It costs about 5 us of import
    time a class, where a slotted frozen dataclass costs 380.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kind = type(self)
        setters = kind._setters
        for put, value in zip(setters, args):  # noqa: B905 - `strict` takes time
            put(self, value)
        if len(args) == len(setters) and not kwargs:
            return
        fields, defaults = kind._fields, kind._defaults
        if len(args) > len(fields):
            raise TypeError(f"{type(self).__name__} takes {len(fields)} fields, got {len(args)}")
        for name, put in zip(fields[len(args) :], setters[len(args) :], strict=True):
            if name in kwargs:
                put(self, kwargs.pop(name))
            elif name in defaults:
                put(self, defaults[name])
            else:
                raise TypeError(f"{type(self).__name__} is missing the field {name!r}")
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(kwargs))!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=...)")

    def values(self) -> tuple[Any, ...]:
        """Return the field values in order."""
        kind = type(self)
        if kind._getter is None:
            return tuple([getattr(self, name) for name in kind._fields])
        return kind._getter(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        values = [changes.pop(f, getattr(self, f)) for f in type(self)._fields]
        return type(self)(*values, **changes)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash((type(self), self.values()))

    def __repr__(self) -> str:
        body = ", ".join(f"{f}={getattr(self, f)!r}" for f in type(self)._fields)
        return f"{type(self).__name__}({body})"
