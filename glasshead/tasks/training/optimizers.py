"""The optimizers, and which parameters decay."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from glasshead.tasks.training.muon import MuonWithAdamW, hidden_matrices
from glasshead.tasks.training.settings import TrainingSettings


def optimizer_of(model: nn.Module, settings: TrainingSettings) -> Optimizer:
    """The optimizer of a model; matrices decay, and what has one axis does not.

    Errors: a ValueError where Muon has no hidden matrix.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            _groups(parameters, settings), lr=settings.learning_rate, fused=_fused(parameters)
        )
    if settings.optimizer == "adamw":
        return _adamw(parameters, settings)
    hidden = hidden_matrices(model)
    if not hidden:
        raise ValueError("optimizer muon takes a model with hidden matrices: take adamw.")
    muon = torch.optim.Muon(
        hidden,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    known = {id(matrix) for matrix in hidden}
    return MuonWithAdamW(muon, _adamw([p for p in parameters if id(p) not in known], settings))


def _adamw(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        _groups(parameters, settings),
        lr=settings.learning_rate,
        betas=settings.betas,
        fused=_fused(parameters),
    )


def _groups(parameters: Iterable[nn.Parameter], settings: TrainingSettings) -> list[dict[str, Any]]:
    decaying: dict[float, list[nn.Parameter]] = {}
    for parameter in parameters:
        decay = settings.weight_decay if parameter.ndim >= 2 else 0.0
        decaying.setdefault(decay, []).append(parameter)
    return [{"params": own, "weight_decay": decay} for decay, own in decaying.items()]


def _fused(parameters: list[nn.Parameter]) -> bool:
    places = {parameter.device.type for parameter in parameters}
    return places <= {"cpu", "cuda"} and all(p.is_floating_point() for p in parameters)
