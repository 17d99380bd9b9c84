"""Step 11: several query heads share one key and one value."""

from collections.abc import Iterator

from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.working import (
    Working,
    explain_contexts,
    explain_memory,
    explain_rotation,
    explain_scores,
    explain_weights,
)
from glasshead.explanation.subject import aligned
from glasshead.ladder import GroupedQueryAttention


def explain_grouped_queries(working: Working[GroupedQueryAttention]) -> Iterator[Step]:
    """Yield the steps of grouped-query attention."""
    layer, say, seen = working.layer, working.say, working.before
    queries, keys, values = layer.project(working.x)
    keys, values = (part.repeat_interleave(layer.group, dim=1)[0] for part in (keys, values))
    asked = working.here(queries)
    yield _opening(working)
    yield _projection(working)
    scores = explain_scores(
        working,
        asked,
        keys,
        seen,
        heads=range(layer.group),
        intro=(
            say(
                "Heads 0 and 1 read the same keys, with a query each. So the same key can get a "
                "large score from one head and a small one from the other."
            ),
        ),
        formula="s[h] = q[h]·k[g] / √d,   g = h // 2",
    )
    yield scores
    scaled = scores.data["scores"]
    weights = layer.weigh(queries @ keys[None].mT / layer.head_dim**0.5)
    weights = working.here(weights)
    yield explain_weights(working, scaled, weights, seen)
    result = working.here(layer(working.x))
    yield explain_contexts(working, weights, values, seen, result=result)
    yield explain_rotation(working, seen, say("This is the layer of {model}.", model="Llama"))
    yield _memory(working)


def _opening(working: Working[GroupedQueryAttention]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("Grouped queries"),
        intro=(
            say(
                "In step 6 every head has keys and values of its own. A model that writes word by "
                "word keeps those of all earlier words, and in long texts they fill its memory."
            ),
            say(
                "With grouped queries, several query heads share one key head and one value head. "
                "Each head still asks a question of its own; only the keys that it is compared "
                "with, and the values that it gets, are shared."
            ),
        ),
    )


def _projection(working: Working[GroupedQueryAttention]) -> Step:
    layer, say = working.layer, working.say
    queries, keys, values = layer.project(working.x)
    x, d = working.here(working.x).tolist(), layer.head_dim
    asked = working.here(queries).tolist()
    lines = [working.vector("x", x)]
    lines += working.product("q[0]", x, layer.W_query.weight[:d])
    lines += [working.vector(f"q[{head}]", asked[head]) for head in range(1, len(asked))]
    lines += working.product("k[0]", x, layer.W_key.weight[:d])
    columns = {f"k[{g}]": keys[0, g] for g in range(keys.shape[1])}
    columns |= {f"v[{g}]": values[0, g] for g in range(values.shape[1])}
    return Step(
        name="projection",
        title=say("Many queries, few keys and values"),
        intro=(
            say(
                "Each word gets {heads} queries, but only {kv_heads} keys and {kv_heads} values. "
                "Query heads 0 and 1 read key head 0, query heads 2 and 3 read key head 1.",
                heads=queries.shape[1],
                kv_heads=keys.shape[1],
            ),
        ),
        formula="q[h] = x·W_query[h],   k[g] = x·W_key[g],   v[g] = x·W_value[g]",
        numbers=aligned(lines),
        figures=(working.table(columns),),
        data={"queries": queries[0], "keys": keys[0], "values": values[0]},
    )


def _memory(working: Working[GroupedQueryAttention]) -> Step:
    layer, say, tokens = working.layer, working.say, len(working.names)
    width = layer.W_key.out_features // layer.head_dim, layer.head_dim
    heads = width[0] * layer.group

    def line(step: int, count: int) -> tuple[str, str]:
        sum_ = f"{tokens}·2·{count}·{width[1]} = {tokens * 2 * count * width[1]}"
        return say("step {step}", step=step), sum_

    return explain_memory(
        working,
        [line(6, heads), line(11, width[0])],
        why=say(
            "Why share: in models with many heads, the answers get hardly worse if groups of heads "
            "share their keys (Ainslie et al. 2023), while the memory shrinks by the size of a "
            "group. With one key head for all, it is called multi-query attention."
        ),
    )
