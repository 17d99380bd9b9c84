"""Optimizers: AdamW, SGD, and Muon beside AdamW, with weight decay for matrices only."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from glasshead.tasks.training.settings import TrainingSettings

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Muon(Optimizer):
    """Momentum whose updates are made orthogonal, for matrices: `torch.optim.Muon` before 2.9.

        M ← μ·M + (1 − μ)·G,   U = (1 − μ)·G + μ·M,   W ← (1 − η·λ)·W − η·0.2·√max(rows, columns)·O

    where O is U with its singular values near 1, by Newton and Schulz's iteration in bfloat16. Its
    state and settings have the names of PyTorch's, so that a run goes on with either.

    Args:
        matrices: The matrices to train.
        lr: Learning rate η.
        weight_decay: Weight decay λ.

    Source: Jordan et al. 2024 (Muon: an optimizer for hidden layers in neural networks); Liu et al.
    2025 (Muon is scalable for LLM training), section 2.2.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], *, lr: float, weight_decay: float) -> None:
        fixed = {
            "momentum": 0.95,
            "nesterov": True,
            "ns_coefficients": (3.4445, -4.7750, 2.0315),
            "eps": 1e-7,
            "ns_steps": 5,
            "adjust_lr_fn": "match_rms_adamw",
        }
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, **fixed})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group)
        return loss

    def _update(self, matrix: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[matrix], group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        update = gradient.lerp(state["momentum_buffer"], momentum).bfloat16()
        tall = update.shape[0] > update.shape[1]
        x = update.T if tall else update
        x = x / x.norm().clamp(min=group["eps"])
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        scale = 0.2 * math.sqrt(max(matrix.shape))
        matrix.add_(x.T if tall else x, alpha=-group["lr"] * scale)


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    """Return the loss that the closure of a step computes, with gradients; None without one."""
    with torch.enable_grad():
        return None if closure is None else closure()


class MuonWithAdamW(Optimizer):
    """Muon for the hidden matrices and AdamW for the rest, as one optimizer.

    Muon's updates are scaled to the RMS of AdamW's, so that both share a learning rate.

    Args:
        muon: Optimizer of the hidden matrices.
        adamw: Optimizer of all other parameters.

    Source: Jordan et al. 2024 (Muon: an optimizer for hidden layers in neural networks); Liu et al.
    2025 (Muon is scalable for LLM training), section 2.2, for the scale of the updates.
    """

    def __init__(self, muon: Optimizer, adamw: AdamW) -> None:
        self._parts: tuple[tuple[Optimizer, int, int], ...] = ()
        groups = [*muon.param_groups, *adamw.param_groups]
        super().__init__(groups, {})
        own = len(muon.param_groups)
        self._parts = ((muon, 0, own), (adamw, own, len(groups)))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step with both optimizers."""
        loss = _evaluated(closure)
        for part, first, end in self._parts:
            # `load_state_dict` replaces these lists.
            part.param_groups, part.state = self.param_groups[first:end], self.state
            part.step()
        return loss


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the weight matrices of a model's hidden layers, without embeddings and output layer.

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


# A parameter, and whether it has weight decay.
_Decays = tuple[nn.Parameter, bool]


def optimizer_of(model: nn.Module, settings: TrainingSettings) -> Optimizer:
    """Create the optimizer of a model, with weight decay for parameters of two axes or more.

    Errors: a ValueError for Muon and a model without hidden matrices.
    """
    decays = [(each, each.ndim >= 2) for each in model.parameters() if each.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            _groups(decays, settings), lr=settings.learning_rate, fused=_fused(decays)
        )
    if settings.optimizer == "adamw":
        return _adamw(decays, settings)
    hidden = hidden_matrices(model)
    if not hidden:
        raise ValueError("optimizer muon needs a model with hidden matrices. Use adamw.")
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if hasattr(torch.optim, "Muon"):
        muon = torch.optim.Muon(hidden, **options, adjust_lr_fn="match_rms_adamw")
    else:
        muon = Muon(hidden, **options)
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


def clip_gradient(
    fabric: "Fabric", model: nn.Module, optimizer: Optimizer, most: float | None
) -> float:
    """Clip the norm of the gradient, and return what it was; None: without clipping."""
    most = math.inf if most is None else most
    norm = fabric.clip_gradients(model, optimizer, max_norm=most, error_if_nonfinite=False)
    return cast("Tensor", norm).item()
