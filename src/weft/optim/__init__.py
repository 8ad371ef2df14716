"""Optimisers and learning-rate schedules, with PyTorch's names."""

from weft.optim import lr_scheduler
from weft.optim.adaptive import Adam, AdamW, RMSprop
from weft.optim.clip import clip_grad_norm_, clip_grad_value_
from weft.optim.optimizer import Group, Optimizer
from weft.optim.sgd import SGD

__all__ = [
    "SGD", "Adam", "AdamW", "Group", "Optimizer", "RMSprop", "clip_grad_norm_",
    "clip_grad_value_", "lr_scheduler",
]  # fmt: skip
