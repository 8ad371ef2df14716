"""Optimisers and learning-rate schedules, with PyTorch's names."""

from weft.imports import importing

with importing:
    from weft.optim import lr_scheduler
    from weft.optim.adaptive import Adam, AdamW, NAdam, RMSprop
    from weft.optim.optimizer import Group, Optimizer
    from weft.optim.sgd import SGD
    from weft.tensors.api.clip_gradients import clip_grad_norm_, clip_grad_value_

__all__ = ["SGD", "Adam", "AdamW", "Group", "NAdam", "Optimizer", "RMSprop", "clip_grad_norm_",
           "clip_grad_value_", "lr_scheduler"]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)
