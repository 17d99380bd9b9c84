"""The causal effect of interventions: a clean run and a changed one, and what differs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.watching.interventions import Intervention
from glasshead.watching.watch_and_intervene import intervene


@dataclass(frozen=True, eq=False, repr=False)
class CausalEffect:
    """The logits of a clean run and of a changed one, and their losses.

    Attributes:
        clean: Logits of the model as it is.
        changed: Logits with the interventions.
        clean_loss, changed_loss: The losses; None if the model gives none, and none was asked.

    >>> effect = CausalEffect(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    >>> effect.logit_change, effect.kl_divergence
    (tensor([[0., 1.]]), tensor([0.1201]))
    """

    clean: Float[Tensor, "*positions classes"]
    changed: Float[Tensor, "*positions classes"]
    clean_loss: Float[Tensor, ""] | None = None
    changed_loss: Float[Tensor, ""] | None = None

    @property
    def logit_change(self) -> Float[Tensor, "*positions classes"]:
        """Return changed - clean."""
        return self.changed - self.clean

    @property
    def kl_divergence(self) -> Float[Tensor, "*positions"]:
        """Return KL(clean ‖ changed) = Σ_c p_c (ln p_c - ln q_c) of each position, in nats."""
        clean, changed = (x.log_softmax(-1) for x in (self.clean, self.changed))
        return F.kl_div(changed, clean, reduction="none", log_target=True).sum(-1)

    @property
    def loss_change(self) -> Float[Tensor, ""]:
        """Return changed loss - clean loss; above 0 if the interventions harm.

        Errors: a ValueError if there is no loss.
        """
        if self.clean_loss is None or self.changed_loss is None:
            raise ValueError(
                "loss_change needs a loss, but the model gave none. Pass labels= to the model if "
                "it accepts them, or loss= to causal_effect."
            )
        return self.changed_loss - self.clean_loss

    def __repr__(self) -> str:
        largest = float(self.logit_change.abs().amax()) if self.clean.numel() else 0.0
        divergence = float(self.kl_divergence.mean()) if self.clean.numel() else 0.0
        parts = [f"largest logit change {largest:.4g}", f"mean KL divergence {divergence:.4g} nats"]
        if self.clean_loss is not None and self.changed_loss is not None:
            parts.append(
                f"loss {float(self.clean_loss):.4g} → {float(self.changed_loss):.4g} "
                f"({float(self.loss_change):+.4g})"
            )
        return f"CausalEffect: {', '.join(parts)}"


@torch.no_grad()
def causal_effect(
    model: nn.Module,
    interventions: Mapping[str, Intervention | Sequence[Intervention]],
    /,
    *inputs: Any,
    loss: Callable[[Any], Tensor] | None = None,
    **named: Any,
) -> CausalEffect:
    """Run a model as it is and with interventions, and return the difference.

    Both runs begin with the same random numbers, so that dropout in training drops the same.

    Args:
        model: The model.
        interventions: As of `intervene`.
        inputs, named: Inputs of the model; with `labels=` models of transformers give a loss.
        loss: Computes a loss from what the model returns; None: its own, if it gives one.

    Errors: as of `intervene`; a TypeError if the model returns no logits, and a ValueError if
    an input is a cache, which the first run would fill.

    Source: Vig et al. 2020 (Investigating gender bias in language models using causal mediation
    analysis), direct and indirect effects.

    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model, tokens = gh.LanguageModel(config).eval(), torch.tensor([[3, 1, 4, 1, 5]])
    >>> effect = gh.causal_effect(
    ...     model,
    ...     {"blocks.1.attention": gh.ZeroAblation(heads=[0])},
    ...     tokens,
    ...     loss=lambda logits: torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]),
    ... )
    >>> effect.logit_change.shape, effect.kl_divergence.shape, effect.loss_change.shape
    (torch.Size([1, 5, 11]), torch.Size([1, 5]), torch.Size([]))
    """
    for name, given in [*enumerate(inputs), *named.items()]:
        first = given[0] if isinstance(given, list | tuple) and given else given
        if "Cache" in type(first).__name__:
            raise ValueError(
                f"causal_effect runs a model twice, but its input {name!r} is a cache, which the "
                "first run would fill. Pass the whole text."
            )
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng([device.index for device in devices]):
        clean = model(*inputs, **named)
    with intervene(model, interventions):
        changed = model(*inputs, **named)
    losses = (_loss(output, loss) for output in (clean, changed))
    return CausalEffect(_logits(clean), _logits(changed), *losses)


def _logits(output: Any) -> Tensor:
    """Return the logits of a model's output.

    Errors: a TypeError if it has none.
    """
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(
            "causal_effect needs a model that returns logits, but this one returns "
            f"{type(output).__name__}. Wrap it in a module that returns a tensor."
        )
    return logits


def _loss(output: Any, loss: Callable[[Any], Tensor] | None) -> Tensor | None:
    return getattr(output, "loss", None) if loss is None else torch.as_tensor(loss(output))
