"""The optimizers, and which parameters decay."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from glasshead.tasks.training.muon import MuonWithAdamW, hidden_matrices
from glasshead.tasks.training.settings import TrainingSettings

# A parameter, and whether it decays.
_Decays = tuple[nn.Parameter, bool]
# How FSDP names what it has wrapped.
_WRAPPED = "_fsdp_wrapped_module."


def matrices_of(model: nn.Module) -> set[str]:
    """The names of the parameters that decay: those of two axes or more."""
    return {name for name, parameter in model.named_parameters() if parameter.ndim >= 2}


def optimizer_of(
    model: nn.Module, settings: TrainingSettings, matrices: Collection[str] | None = None
) -> Optimizer:
    """The optimizer of a model; matrices decay, and what has one axis does not.

    Args:
        model: What learns.
        settings: Which optimizer, and how.
        matrices: `matrices_of` the model, before anything made one axis of all, as FSDP does.

    Errors: a ValueError where Muon has no hidden matrix.
    """
    matrices = matrices_of(model) if matrices is None else matrices
    decays = [
        (parameter, name.replace(_WRAPPED, "") in matrices)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            _groups(decays, settings), lr=settings.learning_rate, fused=_fused(decays)
        )
    if settings.optimizer == "adamw":
        return _adamw(decays, settings)
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
    return MuonWithAdamW(muon, _adamw([one for one in decays if id(one[0]) not in known], settings))


def _adamw(decays: Sequence[_Decays], settings: TrainingSettings) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        _groups(decays, settings),
        lr=settings.learning_rate,
        betas=settings.betas,
        fused=_fused(decays),
    )


def _groups(decays: Sequence[_Decays], settings: TrainingSettings) -> list[dict[str, Any]]:
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter, does in decays:
        groups.setdefault(settings.weight_decay if does else 0.0, []).append(parameter)
    return [{"params": own, "weight_decay": decay} for decay, own in groups.items()]


def _fused(decays: Sequence[_Decays]) -> bool:
    parameters = [parameter for parameter, _ in decays]
    places = {parameter.device.type for parameter in parameters}
    return places <= {"cpu", "cuda"} and all(p.is_floating_point() for p in parameters)
