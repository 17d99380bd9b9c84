"""A task as a LightningModule, and its optimizers."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from glasshead.tasks.training.loader import (
    EpochPart,
    ExampleSource,
    HeldOutLoader,
    Task,
    TrainingLoader,
)
from glasshead.tasks.training.settings import TrainingSettings


class MuonWithAdamW(Optimizer):
    """Muon for the hidden matrices and AdamW for the rest, as one optimizer.

    Muon's updates are scaled to the RMS of AdamW's, so that both share a learning rate.

    Args:
        muon: Optimizer of the hidden matrices.
        adamw: Optimizer of all other parameters.

    Source: Jordan et al. 2024 (Muon: an optimizer for hidden layers in neural networks); Liu et al.
    2025 (Muon is scalable for LLM training), section 2.2, for the scale of the updates.
    """

    def __init__(self, muon: Muon, adamw: AdamW) -> None:
        self._parts: tuple[tuple[Optimizer, int, int], ...] = ()
        groups = [*muon.param_groups, *adamw.param_groups]
        super().__init__(groups, {})
        own = len(muon.param_groups)
        self._parts = ((muon, 0, own), (adamw, own, len(groups)))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step with both optimizers."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
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
# FSDP's prefix of wrapped modules.
_WRAPPED = "_fsdp_wrapped_module."


def matrices_of(model: nn.Module) -> set[str]:
    """Return the names of parameters with weight decay: those of two dimensions or more."""
    return {name for name, parameter in model.named_parameters() if parameter.ndim >= 2}


def optimizer_of(
    model: nn.Module, settings: TrainingSettings, matrices: Collection[str] | None = None
) -> Optimizer:
    """Create the optimizer of a model, with weight decay for matrices only.

    Args:
        model: The model.
        settings: Training settings.
        matrices: `matrices_of` the model before FSDP flattens its parameters.

    Errors: a ValueError for Muon and a model without hidden matrices.
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


class TaskModule(LightningModule):
    """The LightningModule of a task: its model, loss over global batches, and metrics.

    The gradient of a step is that of Σ loss over the global batch / its number of targets. As
    Lightning divides by the number of parts, and DDP by that of processes, each part's loss is
    multiplied by both.

    Attributes:
        loss_of_step: This process's contribution to the mean loss of the global batch.
        metrics: Metrics of the last validation.
    """

    def __init__(
        self, task: Task, source: ExampleSource, held_out: ExampleSource, settings: TrainingSettings
    ) -> None:
        super().__init__()
        self.model = task.model
        self.loss_of_step = torch.zeros(())
        self.metrics: dict[str, float] = {}
        self._task, self._settings = task, settings
        # Determined before FSDP flattens the parameters.
        self._matrices = matrices_of(task.model)
        self._source, self._held_out = source, held_out
        self._sums: dict[str, Tensor] = {}

    @staticmethod
    def of(module: LightningModule) -> "TaskModule":
        """Narrow the type of the module that a callback receives.

        Errors: a TypeError where it is another module.
        """
        if not isinstance(module, TaskModule):
            raise TypeError(f"a TaskModule is trained here, and got {type(module).__name__}.")
        return module

    def configure_optimizers(self) -> Optimizer:
        return optimizer_of(self.model, self._settings, self._matrices)

    def train_dataloader(self) -> TrainingLoader:
        trainer, accumulate = self.trainer, self._settings.accumulate
        return TrainingLoader(
            self._source,
            rank=trainer.global_rank,
            ranks=trainer.world_size,
            accumulate=accumulate,
        )

    def val_dataloader(self) -> HeldOutLoader:
        return HeldOutLoader(
            self._held_out, rank=self.trainer.global_rank, ranks=self.trainer.world_size
        )

    def training_step(self, part: EpochPart, batch_idx: int) -> Tensor:
        accumulate = self._settings.accumulate
        loss = self._task.loss(part.tensors) * part.share
        own = loss.detach()
        self.loss_of_step = own if batch_idx % accumulate == 0 else self.loss_of_step + own
        return loss * (accumulate * self.trainer.world_size)

    def on_validation_epoch_start(self) -> None:
        self._sums = {}

    def validation_step(self, part: EpochPart, batch_idx: int) -> None:
        del batch_idx
        for name, value in self._task.validate(part.tensors).items():
            # Sums over many batches need float64.
            own = value.detach().cpu().double() * part.share
            self._sums[name] = self._sums[name] + own if name in self._sums else own

    def on_validation_epoch_end(self) -> None:
        names = sorted(self._sums)
        sums = torch.stack([self._sums[name] for name in names])
        if self.trainer.world_size > 1:
            sums = self.trainer.strategy.reduce(sums.to(self.device), reduce_op="sum")
        self.metrics = self._task.metrics(dict(zip(names, sums.tolist(), strict=True)))
