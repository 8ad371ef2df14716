"""Choices of a strategy: what it decides by default, and what a search may decide instead.

A space is declared where its default is made::

    lanes = choices.pick("lanes", lanes, (8, 16, 32))

returns the default unless another of the options was given, and notes that the choice exists. So
the space of a kernel is found by scheduling it, it holds only what matters to that kernel, and what
one choice opens or closes for another needs no description. Names say nothing of the kernel's
loops: kernels that differ in names only share what was found for one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from weft.ir.record import Record

Value = int | bool | str


class Choice(Record):
    """One decision: its name, what a strategy does by itself, what is legal, what was done."""

    name: str
    default: Value
    options: tuple[Value, ...]
    value: Value


class Choices:
    """The decisions of one kernel, in the order in which they were made.

    Parameters
    ----------
    given : mapping of str to Value, optional
        Decisions to take instead of the defaults. One that is no option is ignored: it was meant
        for another kernel, or other choices closed it.

    Attributes
    ----------
    made : dict of str to Choice
        What was decided.
    """

    def __init__(self, given: Mapping[str, Value] | None = None) -> None:
        self.given = dict(given or {})
        self.made: dict[str, Choice] = {}
        self._names: dict[Hashable, str] = {}
        self._counts: dict[str, int] = {}

    def pick(self, name: str, default: Value, options: Iterable[Value],
             key: Hashable = None) -> Value:
        """Return what is decided, the default if nothing else was given.

        Parameters
        ----------
        name : str
            What is decided, without names of the kernel.
        default : Value
            The decision of the strategy itself.
        options : iterable of Value
            What is legal; the default is added.
        key : hashable, optional
            What it is decided for, usually a loop. The second key under one name makes the second
            choice (``name.2``), and an equal key asks for the same decision again.
        """
        full = self._names.get((name, key))
        if full is None:
            number = self._counts[name] = self._counts.get(name, 0) + 1
            full = self._names[name, key] = name if number == 1 else f"{name}.{number}"
        known = self.made.get(full)
        if known is not None and known.default == default:
            return known.value
        legal = tuple(dict.fromkeys((default, *options)))
        if len(legal) < 2:
            return default
        value = self.given.get(full, default)
        # not `value in legal`: True is 1
        if not any(value == o and type(value) is type(o) for o in legal):
            value = default
        self.made[full] = Choice(full, default, legal, value)
        return value

    def mark(self) -> int:
        """Return the present state, for `reset`."""
        return len(self.made)

    def reset(self, state: int) -> None:
        """Forget what was decided since `mark` returned `state`: it was undone."""
        for name in list(self.made)[state:]:
            del self.made[name]

    def changed(self) -> dict[str, Value]:
        """Return the decisions that differ from the defaults."""
        return {c.name: c.value for c in self.made.values() if c.value != c.default}


__all__ = ["Choice", "Choices", "Value"]
