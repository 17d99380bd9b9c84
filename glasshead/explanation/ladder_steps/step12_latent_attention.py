"""Step 12: keys and values from one short vector, and a rotation for the position."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import Attention
from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.working import (
    Working,
    explain_contexts,
    explain_memory,
    explain_scores,
    explain_weights,
    turn_lines,
)
from glasshead.explanation.subject import aligned
from glasshead.ladder import LatentAttention
from glasshead.recipe.masks import dense
from glasshead.recipe.problem import Trace


def explain_latent_attention(working: Working[LatentAttention]) -> Iterator[Step]:
    """Yield the steps of multi-head latent attention."""
    layer, seen = working.layer, working.before
    scores, values = layer.compare(working.x)
    weights = torch.softmax(scores.masked_fill(layer.hidden(working.x), -torch.inf), dim=-1)
    weights = working.here(weights)
    yield _opening(working)
    yield _latent(working)
    yield _rotation(working)
    yield _keys(working)
    yield explain_parts(working, seen)
    yield _moved(working)
    yield explain_weights(working, working.here(scores), weights, seen)
    result = working.here(layer(working.x))
    yield explain_contexts(working, weights, values[0], seen, result=result)
    yield _memory(working)


def explain_parts(working: Working[LatentAttention], seen: list[int]) -> Step:
    """Explain the scores, whose queries and keys have two parts."""
    say = working.say
    queries, keys = _whole(working)
    return explain_scores(
        working,
        working.here(queries),
        keys[0],
        seen,
        intro=(
            say(
                "The two parts of a query are compared with the two parts of a key, and both "
                "products are added up. The scores of head 0 are written out."
            ),
        ),
        formula="s[h] = (qC[h]·kC[h] + qR[h]·kR) / √(2 + 2)",
    )


def latent_trace(working: Working[LatentAttention]) -> Trace:
    """Trace the attention, whose queries and keys have two parts."""
    layer = working.layer
    _, values = layer.compare(working.x)
    return Attention(mask=dense(~layer.hidden(working.x))).trace(*_whole(working), values)


def _whole(working: Working[LatentAttention]) -> tuple[Tensor, Tensor]:
    """Return queries and keys, `[1, heads, tokens, width]`, their two parts side by side."""
    layer = working.layer
    latent, shared = layer.remember(working.x)
    keys = layer.split_heads(layer.W_key(latent))
    shared = shared[:, None].expand(*keys.shape[:3], -1)
    return torch.cat(layer.ask(working.x), dim=-1), torch.cat([keys, shared], dim=-1)


def _opening(working: Working[LatentAttention]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("Multi-head latent attention"),
        intro=(
            say(
                "Grouped queries save memory by having fewer keys. Multi-head latent attention "
                "(MLA) keeps one short vector c of each word instead, the latent vector, and makes "
                "the keys and values of every head from it."
            ),
            say(
                "The position is carried by a second, small part of the key, which all heads "
                "share. It is not added to the word, but turns it: the farther back a word stands, "
                "the larger the angle between its key and the query."
            ),
        ),
    )


def _latent(working: Working[LatentAttention]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    x = working.here(working.x).tolist()
    down = (layer.W_down.weight @ torch.tensor(x, dtype=torch.float64)).tolist()
    latent, _ = layer.remember(working.x)
    squares = " + ".join(f"{write.factor(number)}²" for number in down)
    mean = sum(number**2 for number in down) / len(down)
    lines = [
        working.vector("x", x),
        *working.product("d", x, layer.W_down.weight),
        ("r", f"√(({squares})/{len(down)}) = {write.figure(mean**0.5)}"),
        working.vector("c", working.here(latent).tolist()),
    ]
    return Step(
        name="latent",
        title=say("The latent vector"),
        intro=(
            say(
                "Each word is compressed to a short vector d. RMSNorm divides it by r, the root "
                "mean square of its numbers: the result is the latent vector c."
            ),
        ),
        formula="d = x·W_down,   c = d / r,   r = √((d₁² + d₂²)/2)",
        numbers=aligned(lines),
        data={"latent": latent[0]},
    )


def _rotation(working: Working[LatentAttention]) -> Step:
    layer, say = working.layer, working.say
    x, place = working.here(working.x).tolist(), working.position
    latent, shared = layer.remember(working.x)
    still = layer.W_position.weight @ working.here(working.x)
    lines = [
        *working.product("a", x, layer.W_position.weight),
        *turn_lines(working, "kR", still, working.here(shared)),
    ]
    return Step(
        name="rotation",
        title=say("The position: a rotation"),
        intro=(
            say(
                "The part of the key that carries the position is a pair of numbers, turned by the "
                "angle t, the position of the word counted from 0. “{query}” stands at t = "
                "{place}. A longer vector has more pairs, each slower than the one before.",
                place=place,
            ),
        ),
        formula="a = x·W_position,   kR = [a₁·cos t - a₂·sin t, a₁·sin t + a₂·cos t]",
        numbers=aligned(lines),
        figures=(working.table({"c": latent[0], "kR": shared[0]}),),
        why=say(
            "Why turn: queries are turned in the same way, and the product of two turned vectors "
            "depends on the difference of their angles alone. So a score depends on the distance "
            "of two words, not on their positions."
        ),
        data={"shared_keys": shared[0]},
    )


def _keys(working: Working[LatentAttention]) -> Step:
    layer, say = working.layer, working.say
    latent, _ = layer.remember(working.x)
    c, d = working.here(latent).tolist(), layer.head_dim
    keys, values = (layer.split_heads(part(latent))[0] for part in (layer.W_key, layer.W_value))
    content, turned = (working.here(part) for part in layer.ask(working.x))
    columns = {f"kC[{head}]": part for head, part in enumerate(keys)}
    columns |= {f"v[{head}]": part for head, part in enumerate(values)}
    lines = [
        *working.product("kC[0]", c, layer.W_key.weight[:d]),
        *working.product("v[0]", c, layer.W_value.weight[:d]),
        working.vector("qC[0]", content[0].tolist()),
        working.vector("qR[0]", turned[0].tolist()),
    ]
    return Step(
        name="keys",
        title=say("Keys and values of every head, from c"),
        intro=(
            say(
                "A matrix of each head makes its keys from c, and another its values. The queries "
                "come from the word itself: a part qC for what it looks for, and a part qR that is "
                "turned by its position."
            ),
        ),
        formula="kC[h] = c·W_key[h],   v[h] = c·W_value[h]",
        numbers=aligned(lines),
        figures=(working.table(columns),),
        data={"keys": keys, "values": values, "queries": torch.cat([content, turned], dim=-1)},
    )


def _moved(working: Working[LatentAttention]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    latent, shared = (part[0] for part in layer.remember(working.x))
    content, turned = (working.here(part)[0] for part in layer.ask(working.x))
    matrix: Float[Tensor, "head_dim latent_dim"] = layer.W_key.weight[: layer.head_dim]
    moved = content @ matrix
    root = layer.head_dim + layer.rotary_dim
    first = working.names[0]
    score = (moved @ latent[0] + turned @ shared[0]) / root**0.5
    products = write.products(
        [*moved.tolist(), *turned.tolist()], [*latent[0].tolist(), *shared[0].tolist()]
    )
    lines = [
        working.vector("m[0]", moved.tolist()),
        (f"s[0]({first})", f"({products})/√{root} = {write.figure(score.item())}"),
    ]
    return Step(
        name="moved",
        title=say("The same score without a key"),
        intro=(
            say(
                "The matrix that makes the keys can be applied to the query instead: m = "
                "qC·W_keyᵀ. Compared with c, it gives the same score. So a model that writes "
                "need not make the keys at all."
            ),
        ),
        formula="qC·(c·W_key) = (qC·W_keyᵀ)·c = m·c",
        numbers=aligned(lines),
        why=say(
            "Why the position has a part of its own: a rotation between the two matrices would "
            "differ from word to word, and the matrix could not move to the query."
        ),
        data={"moved_query": moved},
    )


def _memory(working: Working[LatentAttention]) -> Step:
    layer, say, tokens = working.layer, working.say, len(working.names)
    latent, rotary = layer.W_down.out_features, layer.rotary_dim
    heads, width = layer.W_key.out_features // layer.head_dim, layer.head_dim
    return explain_memory(
        working,
        [
            (
                say("step {step}", step=6),
                f"{tokens}·2·{heads}·{width} = {tokens * 2 * heads * width}",
            ),
            (
                say("step {step}", step=12),
                f"{tokens}·({latent} + {rotary}) = {tokens * (latent + rotary)}",
            ),
        ],
        why=say(
            "Why it saves: more heads need no more memory. DeepSeek-V2 has 128 heads of 128 "
            "numbers, and keeps 576 numbers of a word in each layer, where step 6 would keep "
            "32768."
        ),
    )
