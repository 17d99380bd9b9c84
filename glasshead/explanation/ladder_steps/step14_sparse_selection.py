"""Step 14: a cheap look at all words, and attention to the best of them."""

from collections.abc import Iterator

import torch

from glasshead.drawing import Table
from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.step12_latent_attention import explain_parts
from glasshead.explanation.ladder_steps.working import Working, explain_contexts, explain_weights
from glasshead.explanation.subject import aligned
from glasshead.ladder import SparseAttention


def explain_sparse_selection(working: Working[SparseAttention]) -> Iterator[Step]:
    """Yield the steps of sparse attention with an indexer."""
    layer = working.layer
    scores, values = layer.compare(working.x)
    hidden = layer.hidden(working.x)
    seen = (~hidden[0, 0, working.position]).nonzero().flatten().tolist()
    weights = working.here(torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1))
    yield _opening(working)
    yield _index(working)
    yield _selection(working, seen)
    yield explain_parts(working, seen)
    yield explain_weights(working, working.here(scores), weights, seen)
    result = working.here(layer(working.x))
    yield explain_contexts(working, weights, values[0], seen, result=result)


def _opening(working: Working[SparseAttention]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("Sparse selection"),
        intro=(
            say(
                "A window chooses words by their distance. Sparse selection chooses them by what "
                "they say: an indexer gives every earlier word a second, cheap score, and the "
                "attention sees only the {top_k} words with the largest ones.",
                top_k=working.layer.top_k,
            ),
            say(
                "The attention itself is that of step 12. The indexer has few and narrow heads, "
                "one key for all of them, and no values: to look through all words with it costs "
                "little."
            ),
        ),
    )


def _index(working: Working[SparseAttention]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    queries, keys, shares = layer.index_parts(working.x)
    asked, share = working.here(queries), working.here(shares).tolist()
    scores = working.here(layer.index(working.x))
    fits = torch.relu(asked @ keys[0].T / layer.index_dim**0.5)  # [heads, tokens]
    lines = [working.vector(f"qI[{head}]", row.tolist()) for head, row in enumerate(asked)]
    last = len(asked) - 1
    sum_ = write.products(asked[last].tolist(), keys[0, 0].tolist())
    lines.append(
        (
            f"z[{last}]({working.names[0]})",
            f"max(0, ({sum_})/√{layer.index_dim}) = {write.figure(fits[last, 0].item())}",
        )
    )
    lines.append(working.vector("w", share))
    sums = []
    for key in working.before:
        terms = [
            f"{write.factor(w)}·{write.figure(fit)}"
            for w, fit in zip(share, fits[:, key].tolist(), strict=True)
        ]
        sums.append(
            (
                f"I({working.names[key]})",
                f"{' + '.join(terms)} = {write.figure(scores[key].item())}",
            )
        )
    rows = {"kI": keys[0]} | {f"z[{head}]": row[:, None] for head, row in enumerate(fits)}
    return Step(
        name="index",
        title=say("The index score"),
        intro=(
            say(
                "Each head of the indexer compares its query with one key of each word. A product "
                "below 0 counts as 0: that is ReLU, max(0, z). The word itself says, in w, how "
                "much each head counts."
            ),
        ),
        formula="I_j = Σ_h w[h]·z[h]_j,   z[h]_j = max(0, qI[h]·kI_j / √d)",
        numbers=(*aligned(lines), "", *aligned(sums)),
        figures=(working.table(rows),),
        data={"index": scores},
    )


def _selection(working: Working[SparseAttention], seen: list[int]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    scores = working.here(layer.index(working.x)).tolist()
    rows = [
        [working.names[key], write.figure(scores[key]), "■" if key in seen else "·"]
        for key in working.before
    ]
    return Step(
        name="selection",
        title=say("Selection: the best {top_k}", top_k=layer.top_k),
        intro=(
            say(
                "“{query}” sees the words with the largest index scores, at most {top_k}: {names}. "
                "All other words are hidden from it.",
                top_k=layer.top_k,
                names=" · ".join(working.names[key] for key in seen),
            ),
        ),
        figures=(Table([say("word"), "I", say("seen")], rows),),
        why=say(
            "Why select: the attention reads as many words in a long text as in a short one. The "
            "choice itself has no derivative, so the indexer is trained apart: its scores learn to "
            "be large where the attention puts its weight."
        ),
        data={"seen": seen},
    )
