"""Finding: the roles of the heads of a model, from a text that it reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glasshead.attention.weights import Weights
from glasshead.recipe.validation import whole_number
from glasshead.watching.analytics.roles.keys import ROLES
from glasshead.watching.analytics.roles.masses import Masses, masses_of
from glasshead.watching.analytics.roles.result import HeadRoles, thresholds_of
from glasshead.watching.analytics.stacks import check_one_text
from glasshead.watching.seen import Seen
from glasshead.watching.watched import Call, Watched
from glasshead.watching.watching import watch

NEAR = 4


def head_roles(
    subject: nn.Module | Seen,
    tokens: Int[Tensor, "*batch length"],
    *,
    near: int = NEAR,
    thresholds: Mapping[str, float] | None = None,
) -> HeadRoles:
    """What each head of each layer looks at, as six scores from 0 to 1, and the role that it has.

    A score is mean_i Σ_{j ∈ role(i)} P_ij: the mean mass on the keys of the role. It is over the
    queries that have a choice, which see a key of the role and another one. With t the tokens:

        previous    j = i - 1
        first       j = 0, of queries after it: the sink
        induction   t_{j-1} = t_i: what follows another place of the query's token
        duplicate   t_j = t_i: another place of the query's token
        local       |i - j| ≤ near
        broad       no mass, but entropy / ln(visible keys), of queries that see two or more

    Of the last two by token, the place is never the query's own, and j ≠ i. A causal query sees
    earlier places alone; that of an encoder sees later ones, too, and all count.

    A head has a role where its score lies half of the way, or further, from what an even look at
    all visible keys would score to 1; broad from 0.9 on. Of several it has the first of broad,
    induction, duplicate, previous, first, local.

    The weights come from the lazy `Weights` in blocks of rows: any length, without the matrix.

    Args:
        subject: A model that reads tokens, which is run as it is, `model(tokens)`; or what was seen
            of one, with `keep="weights"`. Of several texts, the last one counts.
        tokens: Of the text, in one row or several; padding counts as text.
        near: How far away a key is local.
        thresholds: How far on this way a head has a role, of roles where it is another than 0.5;
            of broad, from which score on.

    Errors: a TypeError or ValueError where an argument is wrong, the weights were not kept, or a
    layer attends to another text than the tokens; and those of `watch`.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits), previous token
    and induction heads; Olsson et al. 2022 (In-context learning and induction heads), the prefix
    matching score; Wang et al. 2022 (Interpretability in the wild), section 3.2, duplicate token
    heads; Xiao et al. 2024 (StreamingLLM), section 3.1, the sink; Voita et al. 2019 (Analyzing
    multi-head self-attention), section 5, positional heads; Clark et al. 2019 (What does BERT look
    at?), section 3.3, broad heads by entropy.

    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=31, d_model=12, num_heads=2, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> tokens = gh.repeated_random_tokens(vocab_size=31, period=11, rows=3)
    >>> roles = gh.head_roles(model, tokens)
    >>> roles.roles, roles.scores["induction"].shape        # a new model looks everywhere alike
    ((('broad', 'broad'), ('broad', 'broad')), torch.Size([2, 2]))
    """
    if not isinstance(subject, nn.Module | Seen):
        raise TypeError(
            f"head_roles takes a model, or what was seen of one, and got "
            f"{type(subject).__name__}: give one of them first, and then the tokens."
        )
    near, asked = whole_number(near, "near"), thresholds_of(thresholds)
    tokens = torch.atleast_2d(_tokens(tokens))
    if isinstance(subject, nn.Module):
        with torch.no_grad(), watch(subject, keep="weights") as seen:
            subject(tokens)
        _check_once(seen)
    else:
        seen = subject
    if not seen:
        raise ValueError("head_roles takes what a watch has seen, and nothing was: run the model.")
    return roles_of(masses_of_layers(seen, tokens, near), asked)


def masses_of_layers(
    seen: Seen, tokens: Int[Tensor, "batch length"], near: int = NEAR
) -> dict[str, Masses]:
    """The sums of each layer, which add up with those of other texts.

    Errors: a ValueError as of `head_roles`.
    """
    return {name: _masses(watched, tokens, near) for name, watched in seen.layers.items()}


def roles_of(masses: Mapping[str, Masses], thresholds: Mapping[str, float]) -> HeadRoles:
    """What the sums say."""
    means = _stacked([one.means for one in masses.values()])  # [layers, 2, heads, roles]
    scores, even = (
        {role: part[..., place] for place, role in enumerate(ROLES)} for part in means.unbind(1)
    )
    return HeadRoles(tuple(masses), scores, even, thresholds)


def _masses(watched: Watched, tokens: Int[Tensor, "batch length"], near: int) -> Masses:
    """Of all calls of the last text."""
    check_one_text(watched.name, watched, "head_roles")
    real = watched.real
    first, *others = (
        _of_call(watched.name, call, tokens, near, real) for call in watched.texts[-1]
    )
    return sum(others, first)


def _of_call(
    name: str,
    call: Call,
    tokens: Int[Tensor, "batch length"],
    near: int,
    real: Bool[Tensor, "batch read"] | None,
) -> Masses:
    weights = call.weights
    if weights is None:
        raise ValueError(f"the weights of {name!r} were not kept: watch with keep='weights'.")
    _check(name, call, weights, tokens)
    tokens = tokens.to(weights.device)
    if real is not None:
        # Padding may have the number of a token, and is none.
        real = nn.functional.pad(real, (0, tokens.shape[1] - real.shape[1]), value=True)
        tokens = tokens.masked_fill(~real, -1)
    # A cache may have room for keys that are still to come, and which nobody sees.
    room = call.first_key + weights.shape[-1] - tokens.shape[1]
    tokens = nn.functional.pad(tokens, (0, max(0, room)), value=-1)
    return masses_of(weights, tokens, call.position, call.first_key, near, real)


def _check_once(seen: Seen) -> None:
    """Raise a ValueError where layers share an attention, whose calls are one text each."""
    for name, watched in seen.items():
        if len(watched.texts) > 1:
            raise ValueError(
                f"head_roles takes a model that runs each attention once, and {name!r} ran "
                f"{len(watched.texts)} times: watch it, and give what was seen, of which the last "
                f"counts."
            )


def _check(name: str, call: Call, weights: Weights, tokens: Int[Tensor, "batch length"]) -> None:
    """Raise a ValueError where the attention is not one of these tokens to each other."""
    called = f"the attention {name!r}" if name else "the attention"
    *batch, _, _, _ = weights._problem.scores_shape  # noqa: SLF001 - `shape` may lack the heads
    rows = torch.Size(batch).numel()
    if rows != len(tokens) or call.end > tokens.shape[1] or call.keys < call.end:
        raise ValueError(
            f"head_roles takes the tokens that attend to each other, and got {list(tokens.shape)}, "
            f"while {called} has {rows} × {call.end} queries on {call.keys} keys: give the tokens "
            f"of the last text, and leave out by layers= what crosses to another."
        )
    if call.crossing:
        raise ValueError(
            f"head_roles takes the attention of a text to itself, and {called} crosses to another: "
            f"leave it out by layers=."
        )


def _stacked(
    layers: Sequence[Float[Tensor, "2 heads roles"]],
) -> Float[Tensor, "layers 2 heads roles"]:
    """All layers, with NaN for heads that a layer does not have."""
    most = max(layer.shape[1] for layer in layers)
    return torch.stack(
        [
            nn.functional.pad(layer, (0, 0, 0, most - layer.shape[1]), value=torch.nan)
            for layer in layers
        ]
    )


def _tokens(tokens: Any) -> Int[Tensor, "*batch length"]:
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32):
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens takes a tensor of whole numbers, [batch, length], and got {got}.")
    if tokens.ndim not in (1, 2) or not tokens.numel():
        raise ValueError(
            f"tokens takes one text or a batch of them, [batch, length], and got "
            f"{list(tokens.shape)}."
        )
    return tokens
