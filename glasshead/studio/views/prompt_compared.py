"""Two prompts compared: the logits that change, and the heads that wrote the change."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import visible
from glasshead.explanation.translations import Say
from glasshead.message import Message, _
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import Prompt
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.studio.views.heads_why import largest_parts, layer_places
from glasshead.studio.views.prompt import (
    Head,
    PromptPass,
    Prompts,
    Temperature,
    Top,
    WithoutHeads,
    ablated_heads,
    heads_listed,
    logits_of,
    names_of,
    shares_of,
)
from glasshead.watching import UnseenError
from glasshead.watching.analytics import LogitParts

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes

Parts = tuple[gh.Seen, LogitParts]
"""What a watch has seen of a prompt, and the parts of its logits."""

WORDS = {
    "prompt.compare": _("Compare with another prompt"),
    "prompt.other": _("The prompt that it is compared with (B)"),
    "prompt.change": _("Probabilities after A and after B"),
    "prompt.changed": _("Heads that changed most"),
    "prompt.changed.away": _(
        "Layers with ablated heads are among the components that are not heads, because their "
        "heads cannot be split."
    ),
    "prompt.changed.beyond": _("components that are not heads"),
    "prompt.both": _("Compare the maps of both prompts"),
    "prompt.changed.one": _(
        "The logit of “{text}” is {first} after A and {second} after B. The bar of a head is the "
        "part of the change that it wrote."
    ),
    "prompt.changed.pair": _(
        "The logit of “{text}” minus the logit of “{against}” is {first} after A and {second} "
        "after B. The bar of a head is the part of the change that it wrote."
    ),
}

# Kinds of predictions with one row of logits per prompt.
_ROWS = ("tokens", "blanks", "labels")


class ComparedPrompts:
    """Compares what a studio's model predicts after two prompts.

    Args:
        studio: The studio that holds the model.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio, self._prompts = studio, Prompts(studio)

    def compared(
        self,
        texts: tuple[str, str],
        without: Sequence[Head],
        top: int,
        temperature: float,
        work: Work,
    ) -> dict[str, Any]:
        """Return the candidates of both prompts, and the heads that changed their logits most.

        Args:
            texts: The prompt A, and the prompt B that is subtracted.
            without: Heads that are taken away in both, as of `Prompts.predictions`.
            top: Number of the most likely candidates of each prompt.
            temperature: Divides the logits that probabilities are computed from.
            work: Checked for cancellation before each layer.

        Returns: `candidates`, the most likely first, each with its `text`, and its `logit` and
            probability `p` of A and B; `of`, the candidate that is the most likely in A, and
            `against`, that of B, None if it is the same one; `logit`, their difference in A and
            B, or the logit of the one; `changed`, the parts of A − B by heads, as of
            `largest_parts`, and what all other components wrote, or `refused`, why they are not
            known; and `running`, the tokens of B as running text.

        Errors: a `Refusal` if the model has no logits of a prompt; as of `Prompts.predictions`.
        """
        passes = [self._prompts.pass_of(text, without, work) for text in texts]
        reader = self._studio.subject.reader()
        kind = self._prompts.predicts(passes[0])
        if kind not in _ROWS:
            raise Refusal(
                "a comparison of prompts needs a model that predicts a token, a blank or a label. "
                "Choose another model."
            )
        rows = [self._row(one, kind) for one in passes]
        logits = torch.stack([one.logits[row] for one, row in zip(passes, rows, strict=True)])  # type: ignore[index] - it predicts
        shares = torch.cat(
            [
                shares_of(reader, one.reading.tokens, one.logits, temperature)  # type: ignore[arg-type] - it predicts
                for one in passes
            ]
        )
        named = names_of(reader, kind)
        of, against = shares.argmax(-1).tolist()
        pair = logits[:, of] - (logits[:, against] if of != against else 0)
        answer = {
            "candidates": candidates(logits, shares, top, named),
            "of": named(of),
            "against": None if of == against else named(against),
            "logit": pair.tolist(),
            "changed": None,
            "refused": None,
            "running": heads.running([visible(word) for word in passes[1].reading.words]),
        }
        tokens = (of, None if of == against else against)
        try:
            first, second = (
                self._parts(one, row, tokens, without, work)
                for one, row in zip(passes, rows, strict=True)
            )
            return answer | {"changed": changed(first, second, passes[0].reading.layers)}
        except (UnseenError, ValueError):
            why = Message(
                "the logits of this model are not a sum of what its heads wrote, so the part of "
                "each head is not known."
            )
            return answer | {"refused": why}

    def _row(self, one: PromptPass, kind: str) -> int:
        """Return the row of the logits that the candidates are of."""
        if kind != "blanks":
            return -1
        blanks = one.reading.tokens == self._studio.subject.reader().blank
        if not blanks.any():
            raise Refusal("a comparison needs a blank in both prompts. Write one in each.")
        return int(blanks.nonzero()[0, 0])

    def _parts(
        self,
        one: PromptPass,
        row: int,
        tokens: tuple[int, int | None],
        without: Sequence[Head],
        work: Work,
    ) -> Parts:
        """Split the logits of a prompt into what each component wrote.

        Errors: as of `logit_parts`.
        """
        work.check()
        reader, budget = self._studio.subject.reader(), self._studio.limits.memory
        away = ablated_heads(one.reading, without)
        with (
            torch.no_grad(),
            gh.ablate(reader.model, away) if away else nullcontext(),
            gh.watch(reader.model, keep="parts", budget=budget) as seen,
        ):
            logits_of(reader, one.reading.tokens)
        with torch.no_grad():
            return seen, gh.logit_parts(seen, *tokens, query=row)


def candidates(
    logits: Float[Tensor, "prompts vocabulary"],
    shares: Float[Tensor, "prompts vocabulary"],
    top: int,
    named: Callable[[int], str],
) -> list[dict[str, Any]]:
    """Return the most likely candidates of any prompt, those of the largest share first."""
    tops = shares.topk(min(top, shares.shape[-1])).indices.flatten().unique()
    order = tops[shares[:, tops].amax(0).argsort(descending=True, stable=True)].tolist()
    return [
        {"text": named(at), "logit": logits[:, at].tolist(), "p": shares[:, at].tolist()}
        for at in order
    ]


def changed(first: Parts, second: Parts, layers: Sequence[str]) -> dict[str, Any]:
    """Return the parts of A less those of B: of heads, and the `beyond` of all other components.

    Errors: an `UnseenError` if the components of both are not the same.
    """
    (seen, own), (_, other) = first, second
    if own.components != other.components:
        raise UnseenError("the components of two passes must be the same.")
    places = layer_places(seen, layers)
    parts = own.parts - other.parts
    at = [at for at, one in enumerate(own.components) if one.head is not None]
    found = largest_parts([own.components[each] for each in at], parts[at], places)
    return found | {"beyond": float(parts.sum() - parts[at].sum())}


def _add_routes(routes: "Routes") -> None:
    compared = ComparedPrompts(routes.studio)

    @routes.json("/compared")
    def compared_prompts(
        work: Work,
        say: Say,
        text: Prompt,
        minus: Prompt,
        without: WithoutHeads = "",
        top: Top = 10,
        temperature: Temperature = 1.0,
    ) -> dict[str, Any]:
        """Return the candidates of two prompts with the change of their logits, by heads too.

        400 if the model predicts no token, blank or label, or there is no such head.
        """
        away = heads_listed(without)
        found = compared.compared((text, minus), away, top, temperature, work)
        why = found["refused"]
        return found | {"refused": why and say.translated(why)}


PANEL = Panel(words=WORDS, routes=_add_routes)
