"""Recurrent layers and cells: LSTM, GRU and RNN, with PyTorch's parameter names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.sections import SECTIONS
from weft.tensors.api.combined import cat, stack
from weft.tensors.api.creation import empty, zeros
from weft.tensors.api.tensor import Parameter, Tensor
from weft.tensors.core.arguments import choice
from weft.tensors.docs.documented import fill_docstrings

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _parameter(size: int, *shape: int) -> Parameter:
    bound = 1 / math.sqrt(size) if size else 0.0
    return Parameter(init.uniform_(empty(*shape), -bound, bound))


def _lstm(gates: Tensor, recurrent: Tensor, state: State) -> State:
    a = gates.add(recurrent)
    enter, forget, candidate, out = a.chunk(4, -1)
    cell = forget.sigmoid().mul(state[1]).add(enter.sigmoid().mul(candidate.tanh()))
    return out.sigmoid().mul(cell.tanh()), cell


def _gru(gates: Tensor, recurrent: Tensor, state: State) -> State:
    (r, z, n), (hr, hz, hn) = gates.chunk(3, -1), recurrent.chunk(3, -1)
    reset, keep = r.add(hr).sigmoid(), z.add(hz).sigmoid()
    new = n.add(reset.mul(hn)).tanh()
    return (new.add(keep.mul(state[0].sub(new))),)


def _tanh(gates: Tensor, recurrent: Tensor, state: State) -> State:
    return (gates.add(recurrent).tanh(),)


def _relu(gates: Tensor, recurrent: Tensor, state: State) -> State:
    return (gates.add(recurrent).relu(),)


class _Recurrent(Module):
    """Layers of cells over sequences, in one direction or both."""

    _kind = "RNN"

    def _function(self) -> Step:
        """Return what makes the next state of the two affine maps and the state."""
        return {"LSTM": _lstm, "GRU": _gru, "RNN": _tanh}[self._kind]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False
                 ) -> None:  # fmt: skip
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional = bidirectional
        rows = _GATES[self._kind] * hidden_size
        ways = 2 if bidirectional else 1
        for layer in range(num_layers):
            columns = input_size if layer == 0 else hidden_size * ways
            for end in ("", "_reverse")[:ways]:
                self._add(f"_l{layer}{end}", rows, columns, hidden_size, bias)

    def _add(self, end: str, rows: int, columns: int, hidden: int, bias: bool) -> None:
        self.register_parameter(f"weight_ih{end}", _parameter(hidden, rows, columns))
        self.register_parameter(f"weight_hh{end}", _parameter(hidden, rows, hidden))
        if bias:
            self.register_parameter(f"bias_ih{end}", _parameter(hidden, rows))
            self.register_parameter(f"bias_hh{end}", _parameter(hidden, rows))

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states of all steps, and the last state of each layer."""
        name = type(self).__name__
        if len(input.shape) not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(name, found=f"{input.shape}",
                             expected=f"two or three axes, the last one of {self.input_size}")
        single = len(input.shape) == 2
        steps = input.unsqueeze(1) if single else (
            input.transpose(0, 1) if self.batch_first else input)
        ways = 2 if self.bidirectional else 1
        count, batch = self.num_layers * ways, steps.shape[1]
        parts = 2 if self._kind == "LSTM" else 1
        given = hx if isinstance(hx, tuple | list) else (hx,) * (hx is not None)
        first = [s.unsqueeze(1) if single else s for s in given] or [
            zeros(count, batch, self.hidden_size, dtype=input.dtype)] * parts
        if len(first) != parts or any(
            s.shape != (count, batch, self.hidden_size) for s in first
        ):
            raise ShapeError(name, found=" and ".join(str(s.shape) for s in first),
                             expected=f"{parts} states of {(count, batch, self.hidden_size)}")
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                steps = F.dropout(steps, self.dropout, self.training)
            outs = []
            for way in range(ways):
                begin = tuple(s[layer * ways + way] for s in first)
                out, end = self._run(steps, begin, f"_l{layer}{'_reverse' * way}", way == 1)
                outs.append(out)
                last.append(end)
            steps = cat(outs, -1) if ways == 2 else outs[0]
        ends = [stack([s[i] for s in last]) for i in range(parts)]
        ends = [e.squeeze(1) if single else e for e in ends]
        out = steps.squeeze(1) if single else steps.transpose(0, 1) if self.batch_first else steps
        return out, tuple(ends) if parts == 2 else ends[0]

    def flatten_parameters(self) -> None:
        """Do nothing: parameters need no common memory.

        Examples
        --------
        >>> weft.nn.LSTM(2, 3).flatten_parameters()
        """

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction.

        Returns
        -------
        list of list of Parameter
            Weights and offsets, in the order of `parameters`.

        Examples
        --------
        >>> [p.shape for p in weft.nn.RNN(2, 3).all_weights[0]]
        [(3, 2), (3, 3), (3,), (3,)]
        """
        names = list(self._parameters)
        step = 4 if self.bias else 2
        return [[getattr(self, n) for n in names[i : i + step]]
                for i in range(0, len(names), step)]  # fmt: skip

    def _run(self, steps: Tensor, state: State, end: str, backwards: bool) -> tuple[Tensor, State]:
        """Return the hidden states of one layer in one direction, and its last state."""
        found = self._parameters
        gates = F.linear(steps, found[f"weight_ih{end}"], found.get(f"bias_ih{end}"))
        weight, offset = found[f"weight_hh{end}"], found.get(f"bias_hh{end}")
        step, outs = self._function(), []
        order = range(steps.shape[0])
        for t in reversed(order) if backwards else order:
            state = step(gates[t], F.linear(state[0], weight, offset), state)
            outs.append(state[0])
        return stack(outs[::-1] if backwards else outs), state

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"{self.input_size}, {self.hidden_size}"
        text += f", num_layers={self.num_layers}" if self.num_layers != 1 else ""
        for name, usual in (("bias", True), ("batch_first", False), ("dropout", 0.0),
                            ("bidirectional", False)):  # fmt: skip
            value = getattr(self, name)
            text += f", {name}={value}" if value != usual else ""
        return text


class LSTM(_Recurrent):
    """Long short-term memory over sequences (Hochreiter and Schmidhuber, 1997).

    Input ``[L, N, input_size]`` (``[N, L, input_size]`` with `batch_first`, or without N); output
    ``[L, N, hidden_size]``, and the last hidden and cell state of each layer, ``[layers, N,
    hidden_size]``; both directions stand side by side.

    Parameters
    ----------
    {input_size}
    num_layers : int
        Layers, each of which reads the one before.
    {bias:gates batch_first}
    dropout : float
        Probability with which elements between layers are set to 0 in training.
    bidirectional : bool
        Whether a second set of cells reads from the end.

    Raises
    ------
    ShapeError
        At a call, if the input or the states have other shapes.

    Examples
    --------
    >>> out, (h, c) = weft.nn.LSTM(2, 3)(weft.ones(4, 1, 2))
    >>> out.shape, h.shape
    ((4, 1, 3), (1, 1, 3))
    """

    _kind = "LSTM"


class GRU(_Recurrent):
    """Gated recurrent units over sequences (Cho et al., 2014).

    Input and output as of `LSTM`, with a single state.

    {Parameters: recurrent}
    {Raises: state}

    Examples
    --------
    >>> out, h = weft.nn.GRU(2, 3, bidirectional=True)(weft.ones(4, 1, 2))
    >>> out.shape, h.shape
    ((4, 1, 6), (2, 1, 3))
    """

    _kind = "GRU"


class RNN(_Recurrent):
    """Plain recurrent layers: ``h = tanh(W x + U h)``.

    Input and output as of `LSTM`, with a single state.

    Parameters
    ----------
    {recurrent}
    nonlinearity : {"tanh", "relu"}
        The function of each step.

    {Raises: state nonlinearity}

    Examples
    --------
    >>> out, h = weft.nn.RNN(2, 3, nonlinearity="relu")(weft.ones(4, 1, 2))
    >>> out.shape, h.shape
    ((4, 1, 3), (1, 1, 3))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1,
                 nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False) -> None:  # fmt: skip
        choice(nonlinearity, ("tanh", "relu"), "RNN", "nonlinearity")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional)
        self.nonlinearity = nonlinearity

    def _function(self) -> Step:
        return _relu if self.nonlinearity == "relu" else _tanh


class _Cell(Module):
    """One step of a recurrent layer."""

    _kind = "RNN"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = _GATES[self._kind] * hidden_size
        self.weight_ih = _parameter(hidden_size, rows, input_size)
        self.weight_hh = _parameter(hidden_size, rows, hidden_size)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, _parameter(hidden_size, rows) if bias else None)

    def _next(self, x: Tensor, state: Any, function: Step, parts: int) -> State:
        """Return the state behind a step; zeros stand before the first."""
        if len(x.shape) not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(type(self).__name__, found=f"{x.shape}",
                             expected=f"one or two axes, the last one of {self.input_size}")
        given = state if isinstance(state, tuple | list) else (state,) * (state is not None)
        before = tuple(given) or (zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype),) * parts
        return function(F.linear(x, self.weight_ih, self.bias_ih),
                        F.linear(before[0], self.weight_hh, self.bias_hh), before)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class LSTMCell(_Cell):
    """One step of an `LSTM`: input ``[N, input_size]``, output the hidden and the cell state.

    {Parameters: input_size bias:gates}
    {Raises: step}

    Examples
    --------
    >>> h, c = weft.nn.LSTMCell(2, 3)(weft.ones(1, 2))
    >>> h.shape
    (1, 3)
    """

    _kind = "LSTM"

    def forward(self, input: Tensor, hx: Any = None) -> State:
        """Return the hidden and the cell state."""
        return self._next(input, hx, _lstm, 2)


class GRUCell(_Cell):
    """One step of a `GRU`: input ``[N, input_size]``, output the state.

    {Parameters: cell}
    {Raises: step}

    Examples
    --------
    >>> weft.nn.GRUCell(2, 3)(weft.ones(1, 2)).shape
    (1, 3)
    """

    _kind = "GRU"

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """Return the state."""
        return self._next(input, hx, _gru, 1)[0]


class RNNCell(_Cell):
    """One step of an `RNN`: input ``[N, input_size]``, output the state.

    Parameters
    ----------
    {cell}
    nonlinearity : {"tanh", "relu"}
        The function of the step.

    {Raises: step nonlinearity}

    Examples
    --------
    >>> weft.nn.RNNCell(2, 3)(weft.ones(1, 2)).shape
    (1, 3)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh") -> None:  # fmt: skip
        choice(nonlinearity, ("tanh", "relu"), "RNNCell", "nonlinearity")
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """Return the state."""
        return self._next(input, hx, _relu if self.nonlinearity == "relu" else _tanh, 1)[0]


fill_docstrings(globals(), SECTIONS)
