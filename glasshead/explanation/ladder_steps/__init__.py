"""Explanations of the ladder's steps from 11 on: each layer at work on one sentence."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from glasshead import ladder
from glasshead.attention import Attention
from glasshead.explanation.explain_trace import names, position
from glasshead.explanation.explanation import Explanation, Step
from glasshead.explanation.figures import Figures
from glasshead.explanation.ladder_steps.step11_grouped_queries import explain_grouped_queries
from glasshead.explanation.ladder_steps.step12_latent_attention import (
    explain_latent_attention,
    latent_trace,
)
from glasshead.explanation.ladder_steps.step13_sliding_window import (
    explain_sliding_window,
    windowed_trace,
)
from glasshead.explanation.ladder_steps.step14_sparse_selection import explain_sparse_selection
from glasshead.explanation.ladder_steps.step15_gated_attention import explain_gated_attention
from glasshead.explanation.ladder_steps.step16_delta_rule import explain_delta_rule
from glasshead.explanation.ladder_steps.working import Working
from glasshead.explanation.settings import ExplanationSettings
from glasshead.explanation.translations import Say
from glasshead.explanation.walk import walk_of
from glasshead.ladder.worked_example import JOURNEY
from glasshead.recipe.masks import causal
from glasshead.recipe.problem import Trace


@dataclass(frozen=True)
class LadderStep:
    """A step of the ladder, as it is explained.

    Attributes:
        layer: The name of its class in `glasshead.ladder`.
        sizes: What it is built with here.
        explain: Yields the steps of its explanation, the opening first.
        attend: Traces its attention; None: it has none.
    """

    layer: str
    sizes: Mapping[str, int]
    explain: Callable[[Working[Any]], Iterator[Step]]
    attend: Callable[[Working[Any]], Trace] | None = None

    @property
    def call(self) -> str:
        """How the layer is built, as code."""
        return f"{self.layer}({', '.join(f'{name}={size}' for name, size in self.sizes.items())})"


LADDER_STEPS: Mapping[int, LadderStep] = MappingProxyType(
    {
        11: LadderStep(
            "GroupedQueryAttention",
            {"d_in": 3, "head_dim": 2, "num_heads": 4, "num_kv_heads": 2},
            explain_grouped_queries,
            lambda working: Attention(mask=causal()).trace(*working.layer.project(working.x)),
        ),
        12: LadderStep(
            "LatentAttention",
            {"d_in": 3, "num_heads": 2, "latent_dim": 2, "head_dim": 2, "rotary_dim": 2},
            explain_latent_attention,
            latent_trace,
        ),
        13: LadderStep(
            "SlidingWindowAttention",
            {"d_in": 3, "head_dim": 2, "num_heads": 2, "num_kv_heads": 1, "window": 3},
            explain_sliding_window,
            windowed_trace,
        ),
        14: LadderStep(
            "SparseAttention",
            {
                "d_in": 3,
                "num_heads": 2,
                "latent_dim": 2,
                "head_dim": 2,
                "rotary_dim": 2,
                "query_dim": 2,
                "index_heads": 3,
                "index_dim": 4,
                "top_k": 3,
            },
            explain_sparse_selection,
            latent_trace,
        ),
        15: LadderStep(
            "GatedAttention",
            {"d_in": 3, "head_dim": 2, "num_heads": 2, "num_kv_heads": 1},
            explain_gated_attention,
            lambda working: Attention(mask=causal()).trace(*working.layer.project(working.x)),
        ),
        16: LadderStep(
            "GatedDeltaNet",
            {"d_in": 3, "num_heads": 1, "key_dim": 2, "value_dim": 2, "kernel_size": 2},
            explain_delta_rule,
        ),
    }
)


def explain_step(
    step: int, *, query: str | int | None = None, lang: str = "en", seed: int = 123
) -> Explanation:
    """Explain a step of the ladder from 11 on, with the numbers of one word of a sentence.

    The sentence is “Your journey starts with one step”, and the layer is random.

    Args:
        step: The step, from 11 to 16.
        query: The explained word or its position; by default the last word.
        lang: The language: en, tr, es, zh-Hant or zh-Hans.
        seed: The seed of the layer's matrices.

    Errors: a ValueError if the step, the word or the language is not there.

    >>> explanation = explain_step(11)
    >>> print(explanation["memory"].numbers[1])
    step 11 = 6·2·2·2 = 48
    """
    if step not in LADDER_STEPS:
        raise ValueError(f"step must be one of {', '.join(map(str, LADDER_STEPS))}, got {step!r}.")
    return explain_ladder_step(ExplanationSettings(step=step, query=query, lang=lang, seed=seed))


@torch.no_grad()
def explain_ladder_step(settings: ExplanationSettings) -> Explanation:
    """Explain the step of the ladder that the settings name."""
    known = LADDER_STEPS[settings.step or 0]
    place = position(settings.query, JOURNEY.tokens, names(JOURNEY.tokens))
    say = Say(settings.lang, query=JOURNEY.tokens[place])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        layer = getattr(ladder, known.layer)(**known.sizes).double()
    working = Working(layer=layer, position=place, say=say, write=Figures(say, settings.decimals))
    opening, *steps = known.explain(working)
    shown = say(
        "Numbers are computed with more digits than are shown, so a sum of shown numbers may "
        "differ in its last digit."
    )
    drawn = say(
        "The layer is random: torch.manual_seed({seed}), then {layer}. What the words attend to "
        "here says nothing about the words; the computation is real.",
        seed=settings.seed,
        layer=known.call,
    )
    return Explanation(
        title=say(
            "Step {step} of the ladder, on the word “{query}”: {idea}",
            step=settings.step,
            idea=opening.title,
        ),
        language=say.language,
        recipe={"step": settings.step, "layer": known.call, "seed": settings.seed},
        tokens=JOURNEY.tokens,
        keys=JOURNEY.tokens,
        query=place,
        index=(),
        steps=(replace(opening, intro=(*opening.intro, shown)), *steps),
        notes=(drawn,),
        walk=None
        if known.attend is None
        else walk_of(known.attend(working), (0, 0), place, working.name, working.names, say),
    )
