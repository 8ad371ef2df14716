"""The whole public API, called with arguments of wrong kinds: never an internal error.

Every public function gets every bad value in every place. It may accept it (many values are fine
somewhere), or raise a `WeftError`, a TypeError or a ValueError; an AttributeError or KeyError from
inside tells the user nothing. Nothing may take long either, whatever the numbers.
"""

import contextlib
import functools
import inspect
import signal

import numpy as np
import pytest

import weft
from weft.errors import WeftError


class Thing:
    """An object that is nothing Weft knows."""


BAD = {
    "text": "x",
    "none": None,
    "object": Thing(),
    "ragged": [[1, 2], [3]],
    "object array": np.array([Thing(), None]),
    "complex array": np.array([1 + 2j]),
    "dict": {},
    "negative": -7,
    "huge": 10**30,
    "past int64": 2**63,
    "float": 1.5,
    "nan": float("nan"),
    "list of text": ["a"],
    "nested": [[None]],
    "complex": 1j,
    "type": int,
    "bytes": b"ab",
    "slice": slice(1, 2),
    "tensor": weft.ones(2, 5),
}
# What is told or asked of the process itself, and what touches files named by its argument.
LEFT_OUT = {"save", "load", "set_grad_enabled"}
SECONDS = 5.0


def good():
    return weft.arange(12, dtype=weft.float32).reshape(3, 4)


def functions_of(module, names):
    return [n for n in sorted(names) if n not in LEFT_OUT
            and inspect.isfunction(inspect.unwrap(getattr(module, n), stop=inspect.isfunction))
            ]  # fmt: skip


METHODS = [n for n in dir(weft.Tensor)
           if not n.startswith("_") and inspect.isfunction(getattr(weft.Tensor, n))]  # fmt: skip
OPERATORS = [n for n in dir(weft.Tensor)
             if n.startswith("__") and inspect.isfunction(getattr(weft.Tensor, n))
             and n not in {"__init__", "__repr__", "__deepcopy__"}]  # fmt: skip
SUBJECTS = {
    "weft": (weft, functions_of(weft, weft.__all__)),
    "nn.functional": (weft.nn.functional, functions_of(
        weft.nn.functional, [n for n in dir(weft.nn.functional) if not n.startswith("_")])),
}  # fmt: skip


def _too_slow(signum, frame):
    pytest.fail("takes too long for arguments that are wrong", pytrace=False)


@contextlib.contextmanager
def in_time():
    """Fail what computes for too long, or waits for ever; a machine may be busy with other work."""
    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS),
              signal.SIGALRM: (signal.ITIMER_REAL, 10 * SECONDS)}  # fmt: skip
    before = {number: signal.signal(number, _too_slow) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def attempts(function, first):
    """Yield arguments: every place bad at once, and each place bad with the others well."""
    parameters = [p for p in inspect.signature(function).parameters.values()
                  if p.kind is not p.VAR_KEYWORD]  # fmt: skip
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    count = len(required)
    for bad in BAD.values():
        yield [bad] * max(count, 1), {}
        if first and count > 1:
            yield [good(), *[bad] * (count - 1)], {}
        for filler in (1, good):
            value = filler() if callable(filler) else filler
            plain = [good() if first and i == 0 else value for i in range(count)]
            for i in range(count):
                yield [*plain[:i], bad, *plain[i + 1 :]], {}
            for p in parameters:
                if p.kind is p.KEYWORD_ONLY or (p.default is not p.empty and p.name != "self"):
                    yield plain, {p.name: bad}


def demand_manners(name, call, args, kwargs):
    try:
        with in_time():
            call(*args, **kwargs)
    except WeftError as error:
        if error.where is None or error.where.file != __file__:
            pytest.fail(f"{name} blames another line: {error}")
    except (TypeError, ValueError, BufferError):
        pass
    except Exception as error:
        shown = ", ".join([type(a).__name__ for a in args] + [f"{k}={v!r}" for k, v in
                                                             kwargs.items()])  # fmt: skip
        pytest.fail(f"{name}({shown}) raises {type(error).__name__}: {error}")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_functions(subject, tier_rows):
    module, names = SUBJECTS[subject]
    for name in tier_rows(names):
        function = getattr(module, name)
        for args, kwargs in attempts(function, first=True):
            demand_manners(f"{subject}.{name}", function, args, kwargs)


def test_methods(tier_rows):
    for name in tier_rows(METHODS):
        for args, kwargs in attempts(getattr(good(), name), first=False):
            demand_manners(f"Tensor.{name}", getattr(good(), name), args, kwargs)


def test_operators():
    for name in OPERATORS:
        for args, kwargs in attempts(getattr(good(), name), first=False):
            if len(args) == len(inspect.signature(getattr(good(), name)).parameters):
                demand_manners(f"Tensor.{name}", getattr(good(), name), args, kwargs)


LAYERS = [n for n in sorted(vars(weft.nn)) if inspect.isclass(getattr(weft.nn, n))
          and issubclass(getattr(weft.nn, n), weft.nn.Module)]  # fmt: skip
# Layers whose defaults are large, made small: what is tried is how they refuse, over 100 times.
SMALL = {"Transformer": {"d_model": 4, "nhead": 1, "num_encoder_layers": 1,
                         "num_decoder_layers": 1, "dim_feedforward": 4}}  # fmt: skip
OPTIMIZERS = ["SGD", "Adam", "AdamW"]


def test_layers(tier_rows):
    for name in tier_rows(LAYERS):
        layer = functools.partial(getattr(weft.nn, name), **SMALL.get(name, {}))
        for args, kwargs in attempts(layer, first=False):
            given = [*args, *kwargs.values()]
            if not any(isinstance(a, int) and a > 2**20 for a in given):
                demand_manners(f"nn.{name}", layer, args, kwargs)


def test_optimizers():
    for name in OPTIMIZERS:
        optimizer = getattr(weft.optim, name)
        for bad in BAD.values():
            demand_manners(f"optim.{name}", optimizer, [bad], {})
            demand_manners(f"optim.{name}", optimizer, [[bad]], {})
            demand_manners(
                f"optim.{name}", optimizer, [[weft.nn.Parameter(good())]], {"lr": bad})


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_assignments(bad):
    def assign(attribute):
        def set_it():
            setattr(weft.ones(3, requires_grad=True), attribute, bad)

        return set_it

    for attribute in ("grad", "data", "requires_grad"):
        demand_manners(f"Tensor.{attribute} =", assign(attribute), [], {})


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_captured_functions(bad):
    f = weft.jit(lambda x, y: x + 1 if y is None or not isinstance(y, int) else x + 2)
    demand_manners("jit", f, [bad, 1], {})
    demand_manners("jit", f, [good(), bad], {})
    demand_manners("weft.jit", weft.jit, [bad], {})
    assert f(good(), None)[0, 0].item() == 1
