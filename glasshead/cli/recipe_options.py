"""Options that choose an attention: score, normalizer, mask, β."""

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import glasshead as gh
from glasshead.cli.inputs.messages import nearest, one_of, quoted
from glasshead.explanation.choices import HARDENING, NORMALIZERS, SCORES

if TYPE_CHECKING:
    from glasshead import Attention, Mask, Score


_WINDOW = re.compile(r"window:([0-9]{1,9})(?::([0-9]{1,9}))?")
_FORMS = "none, causal, window:BEFORE or window:BEFORE:AFTER, or several with + between them"

# How many keys before and after its own a query sees; None: all of them.
Band = tuple[int | None, int | None]


def parse_mask(written: str) -> tuple[Band, ...]:
    """The bands of a mask; a pair must lie in each of them to be seen.

    Errors: a ValueError where it is not of a known form.

    >>> parse_mask("none"), parse_mask("causal+window:2:2")
    ((), ((None, 0), (2, 2)))
    """
    if written == "none":
        return ()
    return tuple(_band(part, written) for part in written.split("+"))


def build_mask(bands: tuple[Band, ...]) -> "Mask | None":
    """The mask that sees what lies in all of the bands.

    >>> build_mask(parse_mask("causal+window:2:2"))
    causal() & window(before=2, after=2)
    """
    mask = None
    for before, after in bands:
        band = gh.window(before=before, after=after)
        mask = band if mask is None else mask & band
    return mask


def _band(part: str, written: str) -> Band:
    if part == "causal":
        return None, 0
    window = _WINDOW.fullmatch(part)
    if window:
        return int(window[1]), int(window[2] or 0)
    raise ValueError(f"--mask takes {_FORMS}, and got {quoted(written)}: {_remedy(part)}")


def _remedy(part: str) -> str:
    if part.startswith("window"):
        return "write how many tokens before its own a word sees, as in window:3."
    if part == "none":
        return "none stands alone."
    alike = nearest(part, ["none", "causal", "window:3"])
    return f"did you mean {alike}?" if alike else "try causal."


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """The choices of an attention, checked and not yet built: that takes torch.

    Attributes:
        score, normalizer: Names of `SCORES` and `NORMALIZERS`; "hardmax" where β is infinite.
        beta: A number, "auto" for 1/√d, or None for the score's own.
        bands: The mask.
        heads: In how many heads the vectors are split.
    """

    score: str = "scaled-dot"
    beta: float | str | None = None
    normalizer: str = "softmax"
    bands: tuple[Band, ...] = ()
    heads: int = 1

    @classmethod
    def parsed(
        cls,
        *,
        score: str,
        beta: str | None = None,
        normalizer: str | None = None,
        mask: str = "none",
        heads: int = 1,
    ) -> "RecipeOptions":
        """The recipe that the options ask for.

        Errors: a ValueError that names the option.

        >>> RecipeOptions.parsed(score="dot", beta="inf", mask="causal").normalizer
        'hardmax'
        """
        sharpness = parse_beta(beta)
        chosen = "softmax" if normalizer is None else normalizer
        chosen = one_of(chosen, NORMALIZERS, "--normalizer")
        if sharpness == math.inf:
            if chosen not in HARDENING:
                raise ValueError(
                    f"--beta inf is the hardest attention, which --normalizer {chosen} never "
                    f"reaches: leave one of the two out."
                )
            sharpness, chosen = None, "hardmax"
        if heads < 1:
            raise ValueError(f"--heads takes a whole number of at least 1, and got {heads}.")
        return cls(
            score=one_of(score, SCORES, "--score"),
            beta=sharpness,
            normalizer=chosen,
            bands=parse_mask(mask),
            heads=heads,
        )

    def is_the_texts_own(self) -> bool:
        """Whether this is the attention of the worked example, whose numbers are printed."""
        return self in (RecipeOptions(score="dot"), RecipeOptions(score="dot", beta=1.0))

    def attention(self, dim: int, seed: int) -> "Attention":
        """The attention for queries that are `dim` wide; the seed makes up what it would learn."""
        return gh.Attention(
            score=self._score(dim, seed),
            mask=build_mask(self.bands),
            normalizer=getattr(gh, NORMALIZERS[self.normalizer])(),
        ).eval()

    def _score(self, dim: int, seed: int) -> "Score":
        if self.score == "additive":
            score = _made_up_additive(dim, seed)
        else:
            score = getattr(gh, SCORES[self.score])()
        if self.beta is not None:
            score.beta = dim**-0.5 if isinstance(self.beta, str) else self.beta
        return score


def _made_up_additive(dim: int, seed: int) -> "Score":
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return gh.Additive(dim).double().requires_grad_(requires_grad=False)


def parse_beta(written: str | None) -> float | str | None:
    """β: a number, `math.inf`, "auto", or None where none is written.

    Errors: a ValueError where it is nothing of these.

    >>> parse_beta("0.5"), parse_beta("inf"), parse_beta("auto")
    (0.5, inf, 'auto')
    """
    if written is None or written == "auto":
        return written
    try:
        beta = float(written)
    except ValueError:
        beta = math.nan
    if not beta > 0 or "_" in written:
        raise ValueError(
            f"--beta takes a number above 0, auto for 1/√d, or inf for the hardest attention, and "
            f"got {quoted(written)}: try 1."
        )
    return beta
