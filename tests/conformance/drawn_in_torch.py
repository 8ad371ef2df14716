"""Drawn programs in PyTorch: values, gradients, and which writes are refused."""

import warnings

import numpy as np
from drawn import REFUSED, defined, numbers
from drawn_runs import WrongError

from capabilities import module

torch = module("torch")

# Of the largest element, beside the error bounds, by the narrowest type that a program computes in.
CLOSE = {"float32": 1e-4, "float64": 1e-11}
_FACTOR = 4  # between the error bounds of Weft's formulas and PyTorch's
# What PyTorch forbids and Weft does.
_FORBIDDEN = ("created in no_grad mode", "to a single memory location")


class _Names:
    """What programs find by the name ``weft``."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def grad(outputs, inputs):
        found = torch.autograd.grad(outputs, inputs, retain_graph=True)
        return [t.clone(memory_format=torch.contiguous_format) for t in found]  # not expanded


class _RowMajor(torch.overrides.TorchFunctionMode):
    """Lets what is computed lie in row-major order, as Weft's values do.

    PyTorch keeps the strides of operands, which decide what `view` refuses and `reshape` copies.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if not isinstance(made, torch.Tensor) or made.is_contiguous():
            return made
        memory = made.untyped_storage().data_ptr()
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        shares = any(isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == memory
                     for t in given)  # fmt: skip
        return made if shares else made.contiguous()


def _leaf(shape, dtype, seed, kind="calm", grad=False):
    return torch.tensor(numbers(shape, dtype, seed, kind)).requires_grad_(grad)


def execute(lines):
    """Return the values that PyTorch computes, by name; None if it lacks something.

    What it saves for the backward is copied: those are the values of the forward, where it would
    refuse the backward, or (after writes through `data`) compute it from the new ones.

    Raises
    ------
    WrongError
        If PyTorch executes a line that Weft refuses, or refuses one that writes, or a backward.
    """
    names = {"weft": _Names(), "leaf": _leaf}
    saved = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
    with saved, _RowMajor(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in lines:
            refused = line.endswith(REFUSED)
            try:
                exec(line, names)
            except (RuntimeError, TypeError, IndexError, AttributeError, ValueError) as error:
                if refused:
                    continue
                if defined(line) or any(words in str(error) for words in _FORBIDDEN):
                    return None
                raise WrongError(f"PyTorch refuses {line!r}: {error}") from error
            if refused:
                raise WrongError(f"PyTorch executes {line!r}")
    return {name: names[name] for line in lines if (name := defined(line))}


def compare_with_torch(drawn, wanted):
    """Compare the values of a program with PyTorch's.

    Parameters
    ----------
    drawn : Drawn
        A program that PyTorch can execute.
    wanted : dict of str to (array, array)
        Its values in Weft with their error bounds.

    Raises
    ------
    WrongError
        If they differ.
    """
    found = execute(drawn.lines)
    close = max([CLOSE.get(str(value[0].dtype), 0) for value in wanted.values() if value])
    for name, t in (found or {}).items():
        if (t is None) != (wanted[name] is None):
            raise WrongError(f"{name} is {wanted[name]}, in PyTorch {t}")
        if t is not None:
            _compare(name, t.detach().numpy(), *wanted[name], close)


def _compare(name, got, value, error, close):
    if got.dtype != value.dtype or got.shape != value.shape:
        raise WrongError(f"{name}: {value.dtype}{value.shape}, "
                         f"in PyTorch {got.dtype}{got.shape}")  # fmt: skip
    a, b = got.astype(np.float64), value.astype(np.float64)
    size = np.max(np.abs(b), initial=0, where=np.isfinite(b))
    close = close if value.dtype.kind == "f" else 0
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= _FACTOR * error + close * (size + 0.01)
        # PyTorch multiplies with masks, where Weft selects: 0 times NaN is NaN.
        off = ~((a == b) | near | np.isnan(a) | np.isinf(error))
    if off.any():
        at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(off)))[: got.ndim]
        raise WrongError(f"{name}: {int(off.sum())} of {off.size} differ, first at {at}: "
                         f"{value[at]}, in PyTorch {got[at]}, within {error[at]}")  # fmt: skip
