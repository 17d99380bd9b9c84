"""Roles of heads: induction, previous token, first token and others, by published scores."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glasshead.attention.weights import Weights
from glasshead.engines import reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.recipe.validation import in_float64, whole_number
from glasshead.statistics import Entropy
from glasshead.watching.analytics.role_scores import (
    OF_KEYS,
    ROLES,
    HeadRoles,
    keys_of_roles,
    thresholds_of,
)
from glasshead.watching.analytics.stacks import check_all_attend, check_attends, check_one_text
from glasshead.watching.layer_record import Call, Watched, check_of_tokens, check_whole
from glasshead.watching.seen import Seen
from glasshead.watching.watch_and_intervene import watch

# More than any model's vocabulary for a thousand texts.
_MOST = 2**28


def repeated_random_tokens(
    vocab_size: int,
    period: int,
    rows: int = 1,
    seed: int = 0,
    *,
    begin: int | None = None,
    times: int = 4,
    avoid: Collection[int] = (),
) -> Int[Tensor, "rows length"]:
    """Draw distinct random tokens and repeat them: [begin], x_1 … x_p, x_1 … x_p, …

    As the tokens are random, only an earlier period predicts the next token: a head that finds it
    there is an induction head, and no knowledge of a language helps. The global random state is
    left unchanged.

    Args:
        vocab_size: Tokens are drawn from 0 to vocab_size - 1.
        period: Number of tokens drawn.
        rows: Number of texts, each with its own tokens.
        seed: Random seed.
        begin: Token at the start of each text, which is not drawn; None: none.
        times: Number of repetitions of the period.
        avoid: Tokens that are not drawn, such as special ones.

    Errors: a TypeError or ValueError if these are not whole numbers in their ranges, the period
    occurs less than twice, or there are fewer tokens to draw from than a period has.

    Source: Olsson et al. 2022 (In-context learning and induction heads), "Head activation
    evaluators": 25 random tokens, repeated four times after a start-of-sequence token. There they
    may recur within a period; distinct ones have one place each that a query may find.

    >>> repeated_random_tokens(vocab_size=11, period=3, rows=2, begin=0, times=2)
    tensor([[ 0,  ...
    """
    name = "repeated_random_tokens({})".format
    vocab_size = whole_number(vocab_size, name("vocab_size"), least=1)
    period, rows = (
        whole_number(given, name(called), least=1)
        for given, called in ((period, "period"), (rows, "rows"))
    )
    times = whole_number(times, name("times"), least=2)
    tokens = max(vocab_size, vocab_size * rows, rows * period * times)
    if tokens > _MOST:
        raise ValueError(
            f"repeated_random_tokens must draw at most {_MOST} numbers, got {tokens}. Use fewer "
            "rows or a smaller vocab_size."
        )
    seed = whole_number(seed, name("seed"))
    first = [] if begin is None else [whole_number(begin, name("begin"))]
    banned = {whole_number(token, name("avoid")) for token in (*avoid, *first)}
    drawn_from = torch.tensor([token for token in range(vocab_size) if token not in banned])
    if len(drawn_from) < period:
        raise ValueError(
            f"repeated_random_tokens draws {period} distinct tokens, but there are "
            f"{len(drawn_from)} to draw from. Use a shorter period."
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(len(drawn_from), generator=generator) for _ in range(rows)])
    repeated = drawn_from[order[:, :period]].repeat(1, times)
    return torch.cat([torch.tensor(first, dtype=torch.long).expand(rows, -1), repeated], 1)


# Weights that are held at once.
_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Masses:
    """Sums over counted queries, `[heads, roles]` in float64, which add up over texts.

    Attributes:
        sums: Sums of the scores.
        even: Sums of the scores of uniform attention to all visible keys; 0 for broad.
        counts: Number of queries.
    """

    sums: Float[Tensor, "heads roles"]
    even: Float[Tensor, "heads roles"]
    counts: Float[Tensor, "heads roles"]

    def __add__(self, other: "Masses") -> "Masses":
        return Masses(self.sums + other.sums, self.even + other.even, self.counts + other.counts)

    @property
    def means(self) -> Float[Tensor, "2 heads roles"]:
        """The scores, and those of uniform attention; NaN where no query counts."""
        return torch.stack([self.sums, self.even]) / self.counts


@torch.no_grad()
def masses_of(
    weights: Weights,
    tokens: Int[Tensor, "batch length"],
    position: int,
    first_key: int,
    near: int,
    real: Bool[Tensor, "batch length"] | None = None,
) -> Masses:
    """Compute the sums of one call of an attention, from blocks of rows of its weights.

    Args:
        weights: The lazy matrix.
        tokens: Token ids of the text, one per key, on the device of the weights.
        position: Position of the first query in the text.
        first_key: Position of the first column in the text.
        near: Largest distance of a local key.
        real: Which tokens are real; None: all.
    """
    first: Tensor | int = 0
    if real is not None:
        first = real.to(torch.uint8).argmax(-1)[:, None, None]
    problem = weights._problem  # noqa: SLF001 - who sees whom is not in the weights
    heads = problem.scores_shape[-3]
    total = in_float64(torch.zeros(3, heads, len(ROLES), device=tokens.device))
    spread = _entropy(problem)
    for rows in _blocks(problem):
        sees = _visible(problem, rows)  # [batch, heads or 1, rows, keys]
        columns = _seen(sees)
        belongs = keys_of_roles(
            tokens, _moved(rows, position), _moved(columns, first_key), near, first
        )  # [batch, roles, rows, columns]
        weight = weights.tile(rows, columns).reshape(len(tokens), heads, len(rows), len(columns))
        mass = torch.einsum("bhij,brij->bhri", weight, belongs.to(weight.dtype))
        keys = sees.sum(-1)[:, :, None]  # [batch, heads or 1, 1, rows]
        # How many keys of each role a query sees: [batch, heads or 1, roles, rows]
        own = (sees[:, :, None, :, columns.start : columns.stop] & belongs[:, None]).sum(-1)
        evenness = spread[:, :, None, rows.start : rows.stop] / keys.log()
        scores = torch.cat([mass, evenness], 2)  # [batch, heads, roles, rows]
        even = torch.cat([own / keys, torch.zeros_like(keys)], 2)
        # Queries that have a choice: they see a key of the role, and another one.
        counted = torch.cat([(own > 0) & (own < keys), keys > 1], 2)
        if real is not None:
            counted = counted & real[:, None, None, position + rows.start : position + rows.stop]
        for place, values in enumerate((scores, even, torch.ones_like(even))):
            those = in_float64(values.masked_fill(~counted, 0.0))
            total[place] += those.expand(scores.shape).sum((0, 3))
    return Masses(*total.cpu())


def _entropy(problem: Problem) -> Float[Tensor, "batch heads queries"]:
    entropy = Entropy()
    found = entropy.finish(problem, *reduce_by_fastest(problem, entropy.reductions(problem)))
    return found.reshape(-1, *found.shape[-2:])


def _blocks(problem: Problem) -> Iterator[range]:
    """Yield all rows in blocks that fit the memory limit."""
    *others, queries, keys = problem.scores_shape
    # The masks of the roles are held beside the weights of each head.
    others[-1] += len(OF_KEYS)
    size = max(1, _AT_ONCE // (torch.Size(others).numel() * keys))
    for start in range(0, queries, size):
        yield range(start, min(start + size, queries))


def _visible(problem: Problem, rows: range) -> Bool[Tensor, "batch heads rows keys"]:
    """Return the visible pairs; with one head where all heads see the same."""
    *batch, _, _, keys = problem.scores_shape
    tile = replace(problem.tile(), queries=Span(rows.start, rows.stop))
    _, visible = problem.bias_and_visible(problem.mask, tile)
    if visible is None:
        visible = torch.ones(1, 1, 1, dtype=torch.bool, device=problem.query.device)
    heads = visible.shape[-3]
    visible = visible.expand(*batch, heads, len(rows), keys)
    return visible.reshape(-1, heads, len(rows), keys)


def _seen(sees: Bool[Tensor, "batch heads rows keys"]) -> range:
    """Return the range from the first to the last key visible to any of the rows."""
    places = sees.any(2).flatten(0, 1).any(0).nonzero()
    return range(int(places[0]), int(places[-1]) + 1) if len(places) else range(0)


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)


NEAR = 4


def head_roles(
    subject: nn.Module | Seen,
    tokens: Int[Tensor, "*batch length"],
    *,
    near: int = NEAR,
    thresholds: Mapping[str, float] | None = None,
) -> HeadRoles:
    """Score each head of each layer for six roles, from 0 to 1, and assign it a role.

    A score is mean_i Σ_{j ∈ role(i)} P_ij: the mean mass on the keys of the role, over the queries
    that have a choice: they see a key of the role and another one. With t the tokens:

        previous    j = i - 1
        first       j = 0, of queries after it: the sink
        induction   t_{j-1} = t_i: what follows another place of the query's token
        duplicate   t_j = t_i: another place of the query's token
        local       |i - j| ≤ near
        broad       no mass, but entropy / ln(visible keys), of queries that see two or more

    For the roles by token, induction and duplicate, the query's own token is excluded. In causal
    attention only earlier positions are visible; in an encoder later ones count, too.

    A head has a role if its score reaches half of the way from the score of uniform attention
    to 1; broad from 0.9 on. Of several it has the first of broad, induction, duplicate, previous,
    first, local.

    The weights come from the lazy `Weights` in blocks of rows: any length, without the matrix.

    Args:
        subject: A model, which is run as `model(tokens)`; or the result of a watch with
            `keep="weights"`. The last text counts.
        tokens: Token ids of the text, in one row or several; padding counts as text.
        near: Largest distance of a local key.
        thresholds: By role, the fraction of this way that a score must reach, 0.5 by default; for
            broad, the score itself.

    Errors: a TypeError or ValueError if an argument is invalid, the weights were not kept, or a
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
            f"head_roles needs a model or the result of a watch, got {type(subject).__name__}. "
            "Pass one of them first, then the tokens."
        )
    near, required = whole_number(near, "near"), thresholds_of(thresholds)
    tokens = torch.atleast_2d(_tokens(tokens))
    if isinstance(subject, nn.Module):
        with torch.no_grad(), watch(subject, keep="weights") as seen:
            subject(tokens)
        _check_once(seen)
    else:
        seen = subject
    if not seen:
        raise ValueError(
            "head_roles needs a watch that observed attention, but this one observed none. Run "
            "the model inside the block."
        )
    return roles_of(masses_of_layers(seen, tokens, near), required)


def masses_of_layers(
    seen: Seen, tokens: Int[Tensor, "batch length"], near: int = NEAR
) -> dict[str, Masses]:
    """Compute the sums of each layer, which add up with those of other texts.

    Errors: a ValueError as of `head_roles`.
    """
    check_all_attend(seen.unobserved_of_selected, None, "head_roles")
    for name, watched in seen.observed.items():
        check_attends(name, watched, "head_roles")
    return {name: _masses(watched, tokens, near) for name, watched in seen.observed.items()}


def roles_of(masses: Mapping[str, Masses], thresholds: Mapping[str, float]) -> HeadRoles:
    """Compute scores and roles from the sums."""
    means = _stacked([one.means for one in masses.values()])  # [layers, 2, heads, roles]
    scores, even = (
        {role: part[..., place] for place, role in enumerate(ROLES)} for part in means.unbind(1)
    )
    return HeadRoles(tuple(masses), scores, even, thresholds)


def _masses(watched: Watched, tokens: Int[Tensor, "batch length"], near: int) -> Masses:
    """Compute the sums over all calls of the last text."""
    check_whole(watched.name, watched, "head_roles")
    check_one_text(watched.name, watched, "head_roles")
    real = watched.real
    first, *others = (
        _of_call(watched.name, call, tokens, near, real) for call in watched.last_text
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
        raise ValueError(f"the weights of {name!r} were not kept. Watch with keep='weights'.")
    _check(name, call, weights, tokens)
    tokens = tokens.to(weights.device)
    if real is not None:
        # Padding may have the id of a real token.
        real = nn.functional.pad(real, (0, tokens.shape[1] - real.shape[1]), value=True)
        tokens = tokens.masked_fill(~real, -1)
    # A static cache may have room for later keys, which no query sees.
    room = call.first_key + weights.shape[-1] - tokens.shape[1]
    tokens = nn.functional.pad(tokens, (0, max(0, room)), value=-1)
    return masses_of(weights, tokens, call.position, call.first_key, near, real)


def _check_once(seen: Seen) -> None:
    """Raise a ValueError if layers share an attention, whose calls are one text each."""
    for name, watched in seen.items():
        if len(watched.texts) > 1:
            raise ValueError(
                f"head_roles needs a model that runs each attention once, but {name!r} ran "
                f"{len(watched.texts)} times. Watch the model and pass the result; head_roles "
                "then uses the last text."
            )


def _check(name: str, call: Call, weights: Weights, tokens: Int[Tensor, "batch length"]) -> None:
    """Raise a ValueError if a call is not self-attention over these tokens."""
    called = f"the attention {name!r}" if name else "the attention"
    *batch, _, _, _ = weights._problem.scores_shape  # noqa: SLF001 - `shape` may lack the heads
    rows = torch.Size(batch).numel()
    if rows != len(tokens) or call.end > tokens.shape[1] or call.keys < call.end:
        raise ValueError(
            f"head_roles needs the tokens that attend to each other, got {list(tokens.shape)}, "
            f"while {called} has {rows} × {call.end} queries on {call.keys} keys. Give the tokens "
            "of the last text, and exclude cross-attention with layers=."
        )
    check_of_tokens(name, [call], "head_roles")
    if call.crossing:
        raise ValueError(
            f"head_roles needs the attention of a text to itself, but {called} crosses to "
            "another. Exclude it with layers=."
        )


def _stacked(
    layers: Sequence[Float[Tensor, "2 heads roles"]],
) -> Float[Tensor, "layers 2 heads roles"]:
    """Stack all layers, with NaN for missing heads."""
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
        raise TypeError(f"tokens must be a tensor of whole numbers, [batch, length], got {got}.")
    if tokens.ndim not in (1, 2) or not tokens.numel():
        raise ValueError(
            "tokens must be one text or a batch of them, [batch, length], got "
            f"{list(tokens.shape)}."
        )
    return tokens
