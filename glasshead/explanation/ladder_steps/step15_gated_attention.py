"""Step 15: a gate behind the attention."""

from collections.abc import Iterator

from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.working import (
    Working,
    explain_contexts,
    explain_rotation,
    explain_scores,
    explain_weights,
)
from glasshead.explanation.subject import aligned
from glasshead.ladder import GatedAttention


def explain_gated_attention(working: Working[GatedAttention]) -> Iterator[Step]:
    """Yield the steps of gated attention."""
    layer, seen = working.layer, working.before
    queries, keys, values = layer.project(working.x)
    keys, values = (part.repeat_interleave(layer.group, dim=1)[0] for part in (keys, values))
    scores = explain_scores(working, working.here(queries), keys, seen)
    weights = working.here(layer.weigh(queries @ keys[None].mT / layer.head_dim**0.5))
    yield _opening(working)
    yield _norm(working)
    yield scores
    yield explain_weights(working, scores.data["scores"], weights, seen)
    yield explain_contexts(working, weights, values, seen)
    yield _gate(working)
    yield explain_rotation(
        working,
        seen,
        working.say("The layer of Qwen3-Next turns the first quarter of the numbers of a head."),
    )


def _opening(working: Working[GatedAttention]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("Gated attention"),
        intro=(
            say(
                "The context is a mixture of values, and it goes on whether the word needs it or "
                "not. A gate lets the word decide: each number of the context is multiplied by a "
                "number from 0 to 1, which the word makes of itself."
            ),
            say(
                "Queries and keys are first divided by the root mean square of their numbers. So "
                "no score gets large only because a vector is long."
            ),
        ),
    )


def _norm(working: Working[GatedAttention]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    x, d = working.here(working.x).tolist(), layer.head_dim
    queries, keys, values = layer.project(working.x)
    raw = (layer.W_query.weight[:d] @ working.here(working.x)).tolist()
    root = (sum(number**2 for number in raw) / d) ** 0.5
    squares = " + ".join(f"{write.factor(number)}²" for number in raw)
    asked = working.here(queries).tolist()
    lines = [
        *working.product("u[0]", x, layer.W_query.weight[:d]),
        ("r", f"√(({squares})/{d}) = {write.figure(root)}"),
        *(working.vector(f"q[{head}]", row) for head, row in enumerate(asked)),
    ]
    columns = {f"k[{g}]": part for g, part in enumerate(keys[0])}
    columns |= {f"v[{g}]": part for g, part in enumerate(values[0])}
    return Step(
        name="projection",
        title=say("Queries and keys of one length"),
        intro=(
            say(
                "Two query heads share one key and one value, as in step 11. Each query u is "
                "divided by r, the root mean square of its numbers, and so is each key."
            ),
        ),
        formula="u[h] = x·W_query[h],   q[h] = u[h] / r,   r = √((u₁² + u₂²)/2)",
        numbers=aligned(lines),
        figures=(working.table(columns),),
        data={"queries": queries[0], "keys": keys[0], "values": values[0]},
    )


def _gate(working: Working[GatedAttention]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    x = working.here(working.x)
    raw = (layer.W_gate.weight @ x).tolist()
    gates = working.here(layer.gates(working.x)).tolist()
    contexts = working.here(layer.contexts(working.x)).tolist()
    let_through = [c * g for c, g in zip(contexts, gates, strict=True)]
    result = working.here(layer(working.x))
    lines = [
        *working.product("z", x.tolist(), layer.W_gate.weight),
        ("g₁", f"1/(1 + e^{write.factor(-raw[0])}) = {write.figure(gates[0])}"),
        working.vector("g", gates),
        (
            "y₁",
            f"{write.factor(contexts[0])}·{write.figure(gates[0])} = "
            + write.figure(let_through[0]),
        ),
        working.vector("y", let_through),
        *working.product("o", let_through, layer.out_proj.weight),
    ]
    return Step(
        name="gate",
        title=say("The gate: what passes"),
        intro=(
            say(
                "“{query}” makes a number z for each number of its context. The sigmoid turns it "
                "into a gate g from 0, closed, to 1, open. The output matrix mixes what passes."
            ),
        ),
        formula="z = x·W_gate,   g = 1/(1 + e^-z),   y = c ⊙ g,   o = y·W_out",
        numbers=aligned(lines),
        why=say(
            "Why a gate: a head that found nothing of use closes it, and need not leave its weight "
            "on a sink. It also adds a bend between two matrices: without it, W_value and W_out "
            "could be one (Qiu et al. 2025)."
        ),
        data={"gates": gates, "result": result},
    )
