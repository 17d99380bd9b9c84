"""Step 13: a window that slides, and a sink."""

from collections.abc import Iterator

from glasshead.attention import Attention
from glasshead.drawing import Formula
from glasshead.explanation.explanation import Step
from glasshead.explanation.ladder_steps.working import (
    Working,
    explain_contexts,
    explain_rotation,
    explain_scores,
    explain_weights,
)
from glasshead.ladder import SlidingWindowAttention
from glasshead.recipe.masks import causal, window
from glasshead.recipe.normalizers import SoftmaxOne
from glasshead.recipe.problem import Trace


def explain_sliding_window(working: Working[SlidingWindowAttention]) -> Iterator[Step]:
    """Yield the steps of attention with a sliding window and a sink."""
    layer, say, write = working.layer, working.say, working.write
    queries, keys, values = layer.project(working.x)
    keys, values = (part.repeat_interleave(layer.group, dim=1)[0] for part in (keys, values))
    seen = working.before[-layer.window :]
    scores = explain_scores(working, working.here(queries), keys, seen)
    weights = working.here(layer.weigh(queries @ keys[None].mT / layer.head_dim**0.5))
    sink = layer.sinks[0].item()
    left = 1 - weights[0].sum().item()
    yield _opening(working)
    yield _window(working, seen)
    yield scores
    yield explain_weights(
        working,
        scores.data["scores"],
        weights,
        seen,
        sink=sink,
        intro=(
            say(
                "The sink of head 0 has the score b = {sink}; training would change it. It is "
                "counted in the sum Σ, but it has no value to give. The weights of the words sum "
                "to {sum}, and {left} stays in the sink.",
                sink=write.figure(sink),
                sum=write.figure(1 - left),
                left=write.figure(left),
            ),
        ),
        why=say(
            "Why a sink: without one the weights must sum to 1, even if no word is of use. Models "
            "then learn to leave the weight on the first word, and break when a window hides it "
            "(Xiao et al. 2024)."
        ),
    )
    result = working.here(layer(working.x))
    yield explain_contexts(working, weights, values, seen, result=result)
    yield explain_rotation(working, seen, say("This is the layer of {model}.", model="gpt-oss"))


def windowed_trace(working: Working[SlidingWindowAttention]) -> Trace:
    """Trace the attention in its window, with the sinks."""
    layer = working.layer
    mask = causal() & window(before=layer.window - 1)
    attention = Attention(mask=mask, normalizer=SoftmaxOne(layer.sinks))
    return attention.trace(*layer.project(working.x))


def _opening(working: Working[SlidingWindowAttention]) -> Step:
    say = working.say
    return Step(
        name="opening",
        title=say("Sliding window and sinks"),
        intro=(
            say(
                "So far a word sees all words before it, however many there are. A sliding window "
                "shows each word only the nearest ones, itself among them. Time then grows with "
                "the length of a text and not with its square, and only the words in the window "
                "are kept."
            ),
            say(
                "A sink is a learned score without a word. It takes a share of the weight and "
                "gives nothing, so that a head for which no word is of use can look at nothing."
            ),
        ),
    )


def _window(working: Working[SlidingWindowAttention], seen: list[int]) -> Step:
    layer, say = working.layer, working.say
    tokens, window = len(working.names), layer.window
    width = max(map(len, working.names))
    lines = []
    for query, name in enumerate(working.names):
        signs = " ".join("■" if 0 <= query - key < window else "·" for key in range(tokens))
        mark = "▸" if query == working.position else " "
        lines.append(f"{mark} {name.ljust(width)}  {signs}")
    return Step(
        name="masked",
        title=say("Mask: what may be seen"),
        intro=(
            say(
                "The window has {window} words. “{query}” sees {names}. A row for each query, a "
                "column for each key: ■ may be seen, · is hidden.",
                window=window,
                names=" · ".join(working.names[key] for key in seen),
            ),
        ),
        figures=(Formula("\n".join(lines)),),
        why=say(
            "Why a window is enough: the next layer sees what this layer made of the words in the "
            "window. With n layers, a word reaches about n windows back. Many models have layers "
            "with a window and layers without one by turns."
        ),
        data={"seen": seen},
    )
