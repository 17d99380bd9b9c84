"""Step 16: a memory of fixed size, and the delta rule that writes to it."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.drawing import Formula, Paragraph
from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.working import Working, explain_memory
from glasshead.explanation.subject import aligned
from glasshead.ladder import GatedDeltaNet, delta_rule


def explain_delta_rule(working: Working[GatedDeltaNet]) -> Iterator[Step]:
    """Yield the steps of the delta rule, in a layer of one head."""
    yield _opening(working)
    yield _inputs(working)
    yield _writing(working)
    yield _reading(working)
    yield _implied(working)
    yield _output(working)
    yield _memory(working)


def _opening(working: Working[GatedDeltaNet]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("The delta rule"),
        intro=(
            say(
                "Attention keeps all words, and compares each new word with all of them. The delta "
                "rule keeps a matrix S of fixed size instead, its memory. A word costs the same "
                "whether ten words or a million came before it."
            ),
            say(
                "Each word asks the memory what it holds under the key of the word, and writes "
                "only the difference to its own value: the delta."
            ),
        ),
    )


def _parts(
    working: Working[GatedDeltaNet],
) -> tuple[
    Float[Tensor, "tokens key_dim"],
    Float[Tensor, "tokens key_dim"],
    Float[Tensor, "tokens value_dim"],
    Float[Tensor, " tokens"],
    Float[Tensor, " tokens"],
]:
    """Return queries, keys, values, rates and decays of the only head."""
    queries, keys, values, rates, decays = (part[0, 0] for part in working.layer.project(working.x))
    return queries, keys, values, rates, decays


def _inputs(working: Working[GatedDeltaNet]) -> Step:
    layer, say, write = working.layer, working.say, working.write
    queries, keys, values, rates, decays = _parts(working)
    place, x = working.position, working.here(working.x).tolist()
    raw = layer.W_key(working.x)[0, :, 0].tolist()
    kernel = layer.conv.weight[layer.W_query.out_features, 0].tolist()
    near = range(max(0, place - len(kernel) + 1), place + 1)
    mixed = sum(raw[at] * kernel[at - place - 1] for at in near)
    sum_ = write.products([raw[at] for at in near], [kernel[at - place - 1] for at in near])
    rate = (layer.W_rate.weight[0] @ working.here(working.x)).item()
    lines = [
        working.vector("x", x),
        working.product("a", x, layer.W_key.weight)[0],
        (f"b₁({working.name})", f"{sum_} = {write.figure(mixed)}"),
        (
            f"SiLU(b₁({working.name}))",
            f"{write.factor(mixed)}/(1 + e^{write.factor(-mixed)}) = "
            + write.figure(mixed / (1 + torch.tensor(-mixed).exp().item())),
        ),
        working.vector("k", keys[place].tolist()),
        (
            f"β({working.name})",
            f"1/(1 + e^{write.factor(-rate)}) = {write.figure(rates[place].item())}",
        ),
        (f"α({working.name})", write.figure(decays[place].item())),
    ]
    columns = {"q": queries, "k": keys, "v": values, "β": rates[:, None], "α": decays[:, None]}
    return Step(
        name="inputs",
        title=say("Query, key, value, rate and decay"),
        intro=(
            say(
                "A word times a matrix gives a, a short convolution mixes it with that of the word "
                "before it, and the curve SiLU follows. Queries and keys are then brought to "
                "length 1. The rate β says how much the word writes, and the decay α how much of "
                "the memory stays. Worked out for the first number of the key:"
            ),
        ),
        formula="a = x·W_key,   b_t = w₁·a_(t-1) + w₂·a_t,   k = SiLU(b) / |SiLU(b)|",
        numbers=aligned(lines),
        figures=(working.table(columns),),
        data={"queries": queries, "keys": keys, "values": values, "rates": rates, "decays": decays},
    )


def _state(working: Working[GatedDeltaNet], words: int) -> Float[Tensor, "key_dim value_dim"]:
    """Return the memory after some words."""
    parts = (part[:words] for part in _parts(working))
    if not words:
        _, keys, values, *_ = _parts(working)
        return keys.new_zeros(keys.shape[1], values.shape[1])
    return delta_rule(*parts)[1]


def _written(working: Working[GatedDeltaNet], sign: str, state: Tensor) -> tuple[str, str]:
    """Return the line of a matrix."""
    return sign, f"[{', '.join(working.write.vector(row) for row in state.tolist())}]"


def _writing(working: Working[GatedDeltaNet]) -> Step:
    say, write, place = working.say, working.write, working.position
    _, keys, values, rates, decays = _parts(working)
    before, after = _state(working, place), _state(working, place + 1)
    faded = decays[place] * before
    key, value, rate = keys[place], values[place], rates[place].item()
    held = faded.T @ key
    delta = rate * (value - held)
    asked = write.products(faded[:, 0].tolist(), key.tolist())
    # The first number of each, as it is written.
    v, h, d = (part[0].item() for part in (value, held, delta))
    old, k, new = faded[0, 0].item(), key[0].item(), after[0, 0].item()
    figure, factor = write.figure, write.factor
    lines = [
        _written(working, "S", before),
        _written(working, "α·S", faded),
        ("h₁", f"{asked} = {figure(h)}"),
        ("h", write.vector(held.tolist())),
        ("v", write.vector(value.tolist())),
        ("δ₁", f"{figure(rate)}·({figure(v)} - {factor(h)}) = {figure(d)}"),
        ("δ", write.vector(delta.tolist())),
        ("S₁₁", f"{figure(old)} + {factor(k)}·{factor(d)} = {figure(new)}"),
        _written(working, "S", after),
    ]
    states = [
        _written(working, name, _state(working, at + 1)) for at, name in enumerate(working.names)
    ]
    return Step(
        name="writing",
        title=say("Writing: the difference"),
        intro=(
            say(
                "First the memory fades a little. Then “{query}” asks it with its key: h is what "
                "it holds. The difference to the value v, times the rate β, is the delta δ, and it "
                "is written under the key: k times δ, number by number, is added to S."
            ),
        ),
        formula="S ← α·S,   h = Sᵀ·k,   δ = β·(v - h),   S ← S + k·δᵀ",
        numbers=aligned(lines),
        figures=(
            Paragraph(say("The memory S after each word:")),
            Formula("\n".join(aligned(states))),
        ),
        why=say(
            "Why the difference: if v itself were added, a key that comes twice would hold the sum "
            "of both values. The delta rule replaces the old value by the new one. With β = 1 the "
            "memory then answers k with exactly v."
        ),
        data={"memory": after, "held": held, "delta": delta},
    )


def _reading(working: Working[GatedDeltaNet]) -> Step:
    say, write, place = working.say, working.write, working.position
    queries, *_ = _parts(working)
    state, query = _state(working, place + 1), queries[place]
    width = len(query)
    read = state.T @ query / width**0.5
    sum_ = write.products(state[:, 0].tolist(), query.tolist())
    lines = [
        working.vector("q", query.tolist()),
        (f"o₁({working.name})", f"({sum_})/√{width} = {write.figure(read[0].item())}"),
        working.vector("o", read.tolist()),
    ]
    return Step(
        name="reading",
        title=say("Reading: what the memory answers"),
        intro=(
            say(
                "The query asks the memory as the key did: each number of the answer is a column "
                "of S times q. It is divided by √d, as scores are."
            ),
        ),
        formula="o = Sᵀ·q / √d",
        numbers=aligned(lines),
        data={"read": read},
    )


def _implied(working: Working[GatedDeltaNet]) -> Step:
    say, write, place = working.say, working.write, working.position
    queries, keys, values, rates, decays = _parts(working)
    # A word's value taken as the unit vector of its place: what is read is then its weight.
    units = torch.eye(len(keys), dtype=keys.dtype)
    weights = delta_rule(queries, keys, units, rates, decays)[0][place].tolist()
    read = delta_rule(queries, keys, values, rates, decays)[0][place].tolist()
    seen = working.before
    lines = [
        *((f"a({working.names[key]})", write.figure(weights[key])) for key in seen),
        (
            "o₁",
            f"{write.products([weights[key] for key in seen], values[seen, 0].tolist())} = "
            + write.figure(read[0]),
        ),
    ]
    return Step(
        name="implied",
        title=say("Implied weights: attention after all"),
        intro=(
            say(
                "What is read is a sum of the values of all words so far, each times a number a. "
                "These are the implied weights. They need not sum to 1, and may be negative: a "
                "later word with a similar key takes away what an earlier one wrote."
            ),
        ),
        formula="o = Σ_j a_j·v_j",
        numbers=aligned(lines),
        data={"implied_weights": weights},
    )


def _output(working: Working[GatedDeltaNet]) -> Step:
    layer, say, write, place = working.layer, working.say, working.write, working.position
    read = delta_rule(*_parts(working))[0][place]
    normed = layer.norm(read)
    gates = F.silu(layer.W_gate(working.x))[0, place]
    passed = (normed * gates).tolist()
    lines = [
        working.vector("RMSNorm(o)", normed.tolist()),
        working.vector("g", gates.tolist()),
        (
            "y₁",
            f"{write.factor(normed[0].item())}·{write.factor(gates[0].item())} = "
            + write.figure(passed[0]),
        ),
        working.vector("y", passed),
        *working.product("r", passed, layer.out_proj.weight),
    ]
    return Step(
        name="output",
        title=say("Norm, gate and output"),
        intro=(
            say(
                "As in step 15, a gate decides what passes, here with the curve SiLU, and the "
                "output matrix mixes it: r is what the layer returns."
            ),
        ),
        formula="g = SiLU(x·W_gate),   y = RMSNorm(o) ⊙ g,   r = y·W_out",
        numbers=aligned(lines),
        data={"result": working.here(layer(working.x))},
    )


def _memory(working: Working[GatedDeltaNet]) -> Step:
    say, tokens = working.say, len(working.names)
    _, keys, values, *_ = _parts(working)
    key, value = keys.shape[1], values.shape[1]
    return explain_memory(
        working,
        [
            (say("step {step}", step=6), f"{tokens}·({key} + {value}) = {tokens * (key + value)}"),
            (say("step {step}", step=16), f"{key}·{value} = {key * value}"),
        ],
        why=say(
            "Why both kinds: a matrix of fixed size cannot hold everything, and words written "
            "under similar keys disturb each other. So models such as Qwen3-Next have three layers "
            "of this kind for each layer of attention, which forgets nothing."
        ),
    )
