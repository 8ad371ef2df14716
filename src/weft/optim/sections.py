"""Docstring entries that optimisers and schedules share."""

from __future__ import annotations

from typing import Final

__all__ = ["SECTIONS"]

# By name.
SECTIONS: Final = {
    "optimizer": """optimizer : Optimizer
    Whose groups' rates are set.""",
    "last_epoch": """last_epoch : int
    The epoch before the first one.""",
    "epoch": """epoch : int
    From 0.""",
    "gamma": """gamma : float
    The factor of a fall.""",
    "state_dict": """state_dict : mapping
    What `state_dict` returned.""",
    "params": """params : iterable of Tensor, or of mappings
    Parameters, or groups: ``params`` and options of their own.
lr : float
    The learning rate.""",
    "betas": """betas : pair of float
    Decay rates of the first and the second moment, in [0, 1).
eps : float
    Added to the root of the second moment.""",
    "momentum": """momentum : float
    Share of the old velocity in the new one.""",
    "weight_decay": """weight_decay : float
    Times the parameter, added to its gradient.""",
    "amsgrad": """amsgrad : bool
    Whether the largest second moment so far counts (Reddi et al., 2018).""",
    "maximize": """maximize : bool
    Whether to go along the gradient and not against it.""",
    "options": """RangeError
    If an option is negative, or a beta is not in [0, 1).
ShapeError
    If there are no parameters, or one is in two groups.""",
    "values": """DTypeError
    If `params` holds something else.""",
}
