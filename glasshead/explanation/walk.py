"""The walk of one query from its scores to its context, in numbers, and as the figure of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import Walk
from glasshead.explanation.explanation import json_ready
from glasshead.explanation.translations import Say
from glasshead.message import _
from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem, Trace
from glasshead.recipe.scores import Dot, ScaledDot

COLUMNS = {
    "steps.keys": _("Keys"),
    "steps.values": _("Values"),
    "steps.scores": _("Scores"),
    "steps.scaled": _("Scaled"),
    "steps.masked": _("Masked"),
    "steps.weights": _("Weights"),
}

_OTHERS = _("{count} other keys")
_CAPTION = _("The context of “{word}” is the sum of the values, each times its weight.")
WALK_WORDS = {"walk.others": _OTHERS, "walk.context": _CAPTION}

SHOWN = 8
"""Keys shown in addition to the chosen one: the keys with the largest weights."""
# All keys of a text that is hardly longer are shown.
_FEW = 12
Row = Float[Tensor, " keys"]


@dataclass(frozen=True, eq=False)
class HeadTrace:
    """Every step of one head over a text, as `gh.watch(…, keep="trace")` keeps them.

    Attributes:
        steps: The steps by the names of `Trace`, `[queries or keys, …]`.
        bias: What is added to the scores, 0 if a key is hidden; None if nothing is.
        beta: The factor of the scores.
        softcap: See `Problem`.
        normalizer: "softmax", "softmax-one", or the class of another.
        sink: The score of this head's sink; None if it has none.
        is_product: Whether a raw score is the product q · k.
        mask: The mask as the library writes it; None if nothing is hidden.
        key_head: The key head that this head reads, and how many there are.
    """

    steps: dict[str, Tensor]
    bias: Float[Tensor, "queries keys"] | None
    beta: float
    softcap: float | None
    normalizer: str
    sink: float | None
    is_product: bool
    mask: str | None
    key_head: tuple[int, int]


def walk_of(
    trace: Trace, index: tuple[int, ...], query: int, word: str, words: Sequence[str], say: Say
) -> Walk | None:
    """Return the figure of a query; None if it does not follow from finite numbers.

    With dropout, the context is not the sum of the values times the weights.

    Args:
        trace: The trace.
        index: Index of the leading axes, (batch…, head).
        query: Position of the query.
        word, words: The query's word, and the keys' words.
        say: Translator.
    """
    steps = head_trace(trace, index)
    used = [steps.steps["queries"][query], steps.steps["keys"], steps.steps["values"]]
    used += [steps.steps["capped"][query], steps.steps["context"][query]]
    if trace.problem.dropout or not all(bool(one.isfinite().all()) for one in used):
        return None
    row = row_of(steps, word, words, query)
    changed = {"capped", "biased", "masked"}.intersection(row["changes"])
    score, rest = "masked" if changed else "scaled", row["rest"]
    return Walk(
        row,
        [say(COLUMNS[f"steps.{name}"]) for name in ("keys", score, "weights", "values")],
        others="" if rest is None else say(_OTHERS, count=rest["count"]),
        caption=say(_CAPTION, word=word),
    )


def head_trace(trace: Trace, index: tuple[int, ...]) -> HeadTrace:
    """Return the steps of one head, at an index of the leading axes, with its part of the recipe.

    >>> import glasshead as gh
    >>> x = torch.randn(1, 3, 5, 2)
    >>> one = head_trace(gh.Attention(bias=gh.ALiBi(3), mask=gh.causal()).trace(x, x, x), (0, 2))
    >>> one.steps["weights"].shape, one.bias[4, :2], one.beta, one.mask
    (torch.Size([5, 5]), tensor([-1.0000, -0.7500]), 0.7071067690849304, 'causal()')
    """
    problem = trace.problem
    group = problem.group
    *batch, head = index if problem.axes > 3 else (*index, 0)
    shared = (*batch, head // group) if problem.axes > 3 else index
    steps = {
        name: step[shared if name in ("keys", "values") else index].detach()
        for name, step in trace.steps()
    }
    kind, sink = problem.normalizer, None
    if isinstance(kind, SoftmaxOne):
        sink = _of_head(kind.sink, head)
    return HeadTrace(
        steps=steps,
        bias=_bias(problem, (*batch, head)),
        beta=_of_head(problem.scale, head),
        softcap=problem.softcap,
        normalizer={Softmax: "softmax", SoftmaxOne: "softmax-one"}.get(
            type(kind), type(kind).__name__
        ),
        sink=sink,
        is_product=isinstance(problem.score, Dot | ScaledDot),
        mask=None if problem.mask is None else repr(problem.mask),
        key_head=(head // group, problem.key.shape[-3]),
    )


def _of_head(value: float | Tensor, head: int) -> float:
    """Return the number of a head, of a number for all or a tensor of one for each."""
    values = torch.as_tensor(value).detach().flatten()
    return values[head if len(values) > 1 else 0].item()


def _bias(problem: Problem, index: tuple[int, ...]) -> Tensor | None:
    bias, _ = problem.bias_and_visible(problem.mask, problem.tile())
    if bias is None:
        return None
    return bias.detach().expand(problem.scores_shape)[index].clone()


def row_of(
    trace: HeadTrace, word: str, words: Sequence[str], query: int, key: int | None = None
) -> dict[str, Any]:
    """Return the numbers of one query, of some keys in full and of all others together.

    Args:
        trace: The steps of its head.
        word, query: The query: its word, and its position.
        words: The words of the keys.
        key: A key to show in addition to the keys with the largest weights; None: none.

    Returns: `q` and `context`, the vectors; `keys`, each with `place`, `word`, `k`, `v`, `score`,
        `scaled`, `capped`, `bias`, `masked` (None if hidden) and `weight`; `rest`, the keys that
        are not shown: `count`, how many of them are `hidden`, their `weight`, and `mean`, the mean
        of their values by weight, None if they are none; `weights`, those of all keys;
        `largest`, the largest score of all, and `total`, Σ exp(s - largest) over all keys and the
        sink, with the part of the `rest` in it; `changes`, the steps that change a number; and of
        the recipe `beta`, `softcap`, `normalizer`, `sink`, `mask`, `key_head`, `is_product` and
        `hidden`, the hidden keys of all.
    """
    rows = {name: trace.steps[name][query] for name in ("queries", "scores", "scaled", "capped")}
    masked, weights = trace.steps["masked"][query], trace.steps["weights"][query]
    shown = shown_keys(weights, query, key)
    sees = ~masked.isneginf()
    powers, largest = _powers(masked, sees)
    total = powers.sum() + (0.0 if trace.sink is None else torch.tensor(trace.sink - largest).exp())
    return {
        "word": word,
        "q": json_ready(rows["queries"]),
        "context": json_ready(trace.steps["context"][query]),
        "keys": [_key(trace, words, query, at) for at in shown],
        "rest": _rest(trace, query, shown, powers, sees),
        "weights": json_ready(weights),
        "largest": largest,
        "total": float(total),
        "changes": _changes(trace, query, sees),
        "beta": trace.beta,
        "softcap": trace.softcap,
        "normalizer": trace.normalizer,
        "sink": trace.sink,
        "mask": trace.mask,
        "key_head": list(trace.key_head),
        "is_product": trace.is_product,
        "hidden": int((~sees).sum()),
    }


def _changes(trace: HeadTrace, query: int, sees: Tensor) -> list[str]:
    """Return the steps from the scores to the weights that change a number of a row, in order."""
    scaled, capped = (trace.steps[name][query][sees] for name in ("scaled", "capped"))
    bias = torch.zeros(()) if trace.bias is None else trace.bias[query][sees]
    changes = {
        "scaled": trace.beta != 1,
        "capped": bool((capped != scaled).any()),
        "biased": bool(bias.any()),
        "masked": not bool(sees.all()),
    }
    return [name for name, changed in changes.items() if changed]


def vectors_of(trace: HeadTrace, query: int) -> Float[Tensor, "keys width"]:
    """Return each key, its value and its bias for a query, side by side; −∞ if hidden.

    >>> import glasshead as gh
    >>> x = torch.randn(1, 3, 5, 2)
    >>> one = head_trace(gh.Attention(bias=gh.ALiBi(3), mask=gh.causal()).trace(x, x, x), (0, 2))
    >>> vectors_of(one, 2)[:, 4]
    tensor([-0.5000, -0.2500, -0.0000,    -inf,    -inf])
    """
    masked = trace.steps["masked"][query]
    bias = torch.zeros_like(masked) if trace.bias is None else trace.bias[query]
    added = torch.where(masked.isneginf(), masked, bias)
    return torch.cat([trace.steps["keys"], trace.steps["values"], added[:, None]], -1).float()


def shown_keys(weights: Row, query: int, key: int | None) -> list[int]:
    """Return the keys to show, in order: the largest weights, the query's own, and the chosen one.

    >>> shown_keys(torch.arange(20.0), 3, 0)
    [0, 3, 12, 13, 14, 15, 16, 17, 18, 19]
    """
    if len(weights) <= _FEW:
        return list(range(len(weights)))
    # Among equal weights, such as the weights of hidden keys, every machine shows the first ones.
    largest = weights.sort(descending=True, stable=True).indices[:SHOWN].tolist()
    own = [query] if query < len(weights) else []
    return sorted({*largest, *own, *([] if key is None else [key])})


def _key(trace: HeadTrace, words: Sequence[str], query: int, at: int) -> dict[str, Any]:
    steps = trace.steps
    masked = steps["masked"][query, at]
    return {
        "place": at,
        "word": words[at],
        "k": json_ready(steps["keys"][at]),
        "v": json_ready(steps["values"][at]),
        "score": steps["scores"][query, at].item(),
        "scaled": steps["scaled"][query, at].item(),
        "capped": steps["capped"][query, at].item(),
        "bias": None if trace.bias is None else trace.bias[query, at].item(),
        "masked": None if masked.isneginf() else masked.item(),
        "weight": steps["weights"][query, at].item(),
    }


def _powers(masked: Row, sees: Tensor) -> tuple[Row, float]:
    """Return e to the power of each score less the largest, and that largest score."""
    scores = masked.double()
    largest = float(scores[sees].max()) if bool(sees.any()) else 0.0
    return (scores - largest).exp(), largest


def _rest(
    trace: HeadTrace, query: int, shown: list[int], powers: Row, sees: Tensor
) -> dict[str, Any] | None:
    """Return the keys that are not shown, together."""
    others = torch.ones(len(powers), dtype=torch.bool)
    others[shown] = False
    if not bool(others.any()):
        return None
    weights = trace.steps["weights"][query, others].double()
    values = trace.steps["values"][others].double()
    weight = weights.sum()
    share = torch.where(weights[:, None] > 0, weights[:, None] * values, 0.0).sum(0)
    return {
        "count": int(others.sum()),
        "hidden": int((others & ~sees).sum()),
        "weight": float(weight),
        "mean": json_ready(share / weight if weight > 0 else torch.zeros_like(share)),
        "power": float(powers[others].sum()),
    }
