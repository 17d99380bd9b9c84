"""Muon for the hidden matrices of a model, and AdamW for the rest."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer


class MuonWithAdamW(Optimizer):
    """Both as one optimizer, whose state is that of both.

    Muon makes its steps as long as those of AdamW, so one learning rate serves both.

    Args:
        muon: The optimizer of the hidden matrices.
        adamw: That of all other parameters.

    Source: Jordan et al. 2024 (Muon: an optimizer for hidden layers in neural networks); Liu et al.
    2025 (Muon is scalable for LLM training), section 2.2, for the length of the steps.
    """

    def __init__(self, muon: Muon, adamw: AdamW) -> None:
        self._parts: tuple[tuple[Optimizer, int, int], ...] = ()
        groups = [*muon.param_groups, *adamw.param_groups]
        super().__init__(groups, {})
        own = len(muon.param_groups)
        self._parts = ((muon, 0, own), (adamw, own, len(groups)))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part, first, end in self._parts:
            # Loading a state makes new ones of these.
            part.param_groups, part.state = self.param_groups[first:end], self.state
            part.step()
        return loss


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices within a model's layers: those that neither embed nor give the answer.

    What gives the answer is a matrix of the model itself, and not of one of its layers.

    >>> model = nn.Sequential(nn.Embedding(7, 3), nn.Sequential(nn.Linear(3, 5)), nn.Linear(5, 7))
    >>> [list(matrix.shape) for matrix in hidden_matrices(model)]
    [[5, 3]]
    """
    apart = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    apart += [module for module in model.children() if isinstance(module, nn.Linear)]
    known = {id(module.weight) for module in apart}
    return [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and parameter.ndim == 2 and id(parameter) not in known
    ]
