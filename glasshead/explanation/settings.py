"""The settings of an explanation: what a user chooses, with its help, its limits and its parsing.

The command `explain` makes an option of each setting with a help, the view "steps" of the studio a
control of each with a label, and `gh.explain` fills in those that it takes. Nothing heavy is
imported here, so that settings are checked without torch.
"""

import math
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

from glasshead.explanation.choices import (
    HARDENING,
    NORMALIZERS,
    SCORES,
    RecipeOptions,
    listed,
    one_of,
    quoted,
)
from glasshead.ladder.worked_example import (
    EXAMPLES,
    HELLO_SHINY_SUN,
    JOURNEY,
    TEXTS,
    WorkedExample,
    example_of,
    text_of,
    worked_example,
)
from glasshead.message import Message, _
from glasshead.recipe.mask_text import HELP as MASK_HELP
from glasshead.recipe.mask_text import check_mask_text


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of an explanation: its help, its names and its limits, next to type and default.

    Attributes:
        help: What it does, for `--help`; empty: the command has no option of it.
        panel: The panel of the help.
        metavar: What stands for its value in the help; empty for a flag.
        option: Its name on the command line, if it is not the field's; TEXT is an argument.
        earlier: Its earlier name on the command line, which the help does not show.
        least, most: The limits of a whole number.
        label: The label of its control in the studio; empty: the studio has none.
    """

    help: str = ""
    panel: str = ""
    metavar: str = ""
    option: str = ""
    earlier: str = ""
    least: int | None = None
    most: int | None = None
    label: str = ""

    @classmethod
    def of(cls, each: "Field[Any]") -> "Setting":
        """Return the setting of a field."""
        return each.metadata["setting"]

    @property
    def numbers(self) -> range:
        """The whole numbers within the limits; none without both."""
        if self.least is None or self.most is None:
            return range(0)
        return range(self.least, self.most + 1)


def setting(default: Any, **known: Any) -> Any:
    """Return the field of a setting.

    Args:
        default: The default.
        known: The attributes of its `Setting`.
    """
    return field(default=default, metadata={"setting": Setting(**known)})


def known_of(name: str, **changed: Any) -> dict[str, Setting]:
    """Return the metadata of a setting, for a subclass that gives it another type or limits."""
    known = Setting.of(ExplanationSettings.__dataclass_fields__[name])
    return {"setting": replace(known, **changed)}


OUTPUT = "Output"
_SENTENCE, _ATTENTION = "Sentence", "Attention"


@dataclass(frozen=True, kw_only=True)
class ExplanationSettings:
    """Settings of an explanation as the user wrote them.

    >>> settings = ExplanationSettings(beta="inf", mask="causal")
    >>> settings.recipe().normalizer, settings.recipe().score
    ('hardmax', 'dot')
    """

    text: str | None = setting(
        None,
        option="TEXT",
        metavar="TEXT",
        help=(
            "The sentence to explain. Its words get random vectors, or the vectors of --vectors. "
            'Default: the worked example "Hello shiny sun!" of the tutorials, with their vectors. '
            "Write -- before a sentence that begins with a dash."
        ),
        label=_("A sentence of your own"),
    )
    example: str | None = setting(
        None,
        panel=_SENTENCE,
        metavar="E",
        help='Worked example of the tutorials: shiny ("Hello shiny sun!") or journey ("Your '
        'journey starts with one step"), with the numbers that they print.',
    )
    source: str | None = setting(
        None,
        panel=_SENTENCE,
        option="--tutorial",
        earlier="--text",
        metavar="T",
        help="Tutorial whose matrices and seed are used: A (Dikkat Mekanizmaları), B (Mecanismos "
        "de Atención), C (Day 13), D (Dikkat ve Dönüştürücü) or E (缩放点积注意力机制). Default: "
        "A for shiny, E for journey.",
        label=_("Tutorial"),
    )
    step: int | None = setting(
        None,
        panel=_SENTENCE,
        metavar="N",
        help='Step of the ladder to explain, on "Your journey starts with one step": 11 (grouped '
        "queries), 12 (multi-head latent attention), 13 (sliding window and sinks), 14 (sparse "
        "selection), 15 (gated attention) or 16 (the delta rule). It goes with --query, --seed and "
        "--digits.",
        least=11,
        most=16,
    )
    vectors: str | None = setting(
        None,
        panel=_SENTENCE,
        metavar="FILE",
        help="Your own vectors: one row for each token, with its numbers (CSV, tabs or "
        "semicolons), or JSON. - reads standard input. Without TEXT, the rows in order are the "
        "sentence.",
    )
    query: str | int | None = setting(
        None,
        panel=_SENTENCE,
        metavar="WORD",
        help="Query to explain: a word, or a position such as #2, the second token. Default: the "
        "last word.",
        label=_("Explained word"),
    )
    seed: int = setting(
        123,
        panel=_SENTENCE,
        metavar="N",
        help="Random seed of vectors, parameters and dropout.",
        least=0,
        most=2**63 - 1,
    )
    dim: int | None = setting(
        None,
        panel=_SENTENCE,
        metavar="N",
        help="Dimension of the random vectors. Default: the input dimension of --weights, else 4.",
        least=1,
        most=4096,
    )
    mask: str = setting(
        "none",
        panel=_ATTENTION,
        metavar="M",
        help=f"Attention mask: {MASK_HELP}",
        label=_("Mask"),
    )
    beta: str | None = setting(
        None,
        panel=_ATTENTION,
        metavar="B",
        help="Scale β of the scores: a number above 0, auto (1/√d), or inf (hardmax). Default: "
        "auto for scaled-dot, 1 for the other scores.",
        label=_("Inverse temperature β"),
    )
    score: str | None = setting(
        None,
        panel=_ATTENTION,
        metavar="S",
        help="Score function: scaled-dot, dot, cosine, gaussian or additive. Default: scaled-dot; "
        "dot for the worked example.",
    )
    normalizer: str = setting(
        "softmax",
        panel=_ATTENTION,
        metavar="N",
        help="Normalizer of the scores: softmax, softmax-one, hardmax, sparsemax, entmax15 or "
        "sigmoid.",
        label=_("Normalizer"),
    )
    heads: int = setting(
        1,
        panel=_ATTENTION,
        metavar="H",
        help="Number of heads. The vectors are split among them.",
        least=1,
        label=_("Heads"),
    )
    head: int = setting(
        0,
        panel=_ATTENTION,
        metavar="N",
        help="Head to explain, counted from 0.",
        label=_("Head shown, from 0"),
    )
    dropout: str | None = setting(
        None,
        panel=_ATTENTION,
        metavar="P",
        help="Probability of setting a weight to 0, as in training. --seed determines which. "
        "Default: 0.",
    )
    weights: str | None = setting(
        None,
        panel=_ATTENTION,
        metavar="FILE",
        help="Projection matrices, as safetensors: W_query, W_key and W_value \\[d_in, d_out], or "
        "the state dict of nn.Linear layers, W_query.weight … with or without biases.",
    )
    columns: bool = setting(
        False,
        panel=OUTPUT,
        help="Also show the result with words as columns, H = XA, as in tutorial D.",
    )
    decimals: int = setting(
        4,
        panel=OUTPUT,
        option="--digits",
        metavar="N",
        help="Number of decimals shown, from 1 to 12. --json prints all digits.",
        least=1,
        most=12,
        label=_("Decimals"),
    )
    lang: str = setting("en")

    def named(self, name: str) -> str:
        """Return the name by which the user knows a setting, for errors."""
        return name

    def _fault(self, name: str, sentence: str, **places: object) -> ValueError:
        """Return the error of a setting, by a sentence that is marked for translation."""
        return ValueError(Message(sentence, option=self.named(name), **places))

    @property
    def sentence(self) -> str | None:
        """The sentence; None: that of a worked example, or of the vectors."""
        return self.text

    @property
    def mask_text(self) -> str:
        """The mask, as of `parse_mask`."""
        return self.mask

    @cached_property
    def worked(self) -> WorkedExample | None:
        """The worked example that is named, or whose sentence the text is, if any.

        Errors: a ValueError where a setting is not one of its choices, or does not go with another.
        """
        if self.example is not None:
            self._check_example(self.example)
        letter = self.source
        if letter is not None:
            letter = one_of(letter.strip().upper(), TEXTS, self.named("source"))
        name = self.example
        if name is None and self.vectors is None:
            name = example_of(self.sentence)
            if letter is not None and self.sentence is None:
                name = next(known for known, texts in EXAMPLES.items() if letter in texts)
        if letter is not None:
            self._check_source(letter, name)
        if name is None:
            return None
        return worked_example(name, text_of(name, letter), causal=self.mask == "causal")

    def _check_example(self, example: str) -> None:
        one_of(example, EXAMPLES, self.named("example"))
        for name in ("text", "vectors"):
            if getattr(self, name) is not None:
                raise self._fault(
                    "example",
                    _(
                        "{option} has words and vectors of its own, got {other} too. Omit one of "
                        "them."
                    ),
                    other=self.named(name),
                )

    def _check_source(self, letter: str, example: str | None) -> None:
        if example is None:
            sentences = Message.joined(
                " or ", [repr(each.text) for each in (HELLO_SHINY_SUN, JOURNEY)]
            )
            raise self._fault(
                "source",
                _("{option} needs the sentence of a worked example: {sentences}."),
                sentences=sentences,
            )
        if letter not in EXAMPLES[example]:
            raise self._fault(
                "source",
                _("{option} must be one of {choices} for this sentence, got {got}."),
                choices=listed(EXAMPLES[example]),
                got=letter,
            )

    @property
    def own_beta(self) -> Literal["auto", "1"]:
        """The β of the score itself."""
        return "auto" if self._score == "scaled-dot" else "1"

    @property
    def _score(self) -> str:
        if self.score is not None:
            return self.score
        return self.worked.score if self.worked else "scaled-dot"

    def recipe(self) -> RecipeOptions:
        """Return the attention.

        Errors: a ValueError that names the setting.
        """
        beta, normalizer = self._beta(), self.normalizer
        one_of(normalizer, NORMALIZERS, self.named("normalizer"))
        if beta == math.inf:
            if normalizer not in HARDENING:
                raise self._fault(
                    "beta",
                    _(
                        "{option} inf is hard attention, which the normalizer {normalizer} never "
                        "reaches. Omit one of the two."
                    ),
                    normalizer=normalizer,
                )
            beta, normalizer = None, "hardmax"
        return RecipeOptions(
            score=one_of(self._score, SCORES, self.named("score")),
            beta=beta,
            normalizer=normalizer,
            mask=check_mask_text(self.mask_text, self.named("mask")),
            heads=self.heads,
            dropout=self._dropout(),
        )

    def _beta(self) -> float | str | None:
        """Parse β: a number, `math.inf` or "auto", and None where it is the score's own."""
        if self.beta in (None, self.own_beta):
            return None
        if self.beta == "auto":
            return "auto"
        beta = _number(self.beta)
        if not beta > 0:
            raise self._fault(
                "beta",
                _(
                    "{option} must be a number above 0, auto for 1/√d, or inf for hard attention, "
                    "got {written}."
                ),
                written=quoted(self.beta),
            )
        return None if beta == 1 and self.own_beta == "1" else beta

    def _dropout(self) -> float:
        """Parse the probability of dropout."""
        rate = 0.0 if self.dropout is None else _number(self.dropout)
        if not 0 <= rate < 1:
            raise self._fault(
                "dropout",
                _("{option} must be a number of at least 0 and below 1, got {written}."),
                written=quoted(self.dropout),
            )
        return rate

    def check(self) -> None:
        """Raise a ValueError for a setting beyond its limits, or that does not go with another."""
        for each in fields(self):
            self._check_limits(each.name, getattr(self, each.name), Setting.of(each))
        if self.step is not None:
            self._check_goes_with_a_step()
        if not 0 <= self.head < self.heads:
            raise self._fault(
                "head",
                _("{option} must be in 0..{most}, got {head}."),
                most=self.heads - 1,
                head=self.head,
            )
        if self.dim is not None and (self.vectors is not None or self.worked is not None):
            raise self._fault(
                "dim",
                _(
                    "{option} sets the width of random vectors, but the vectors are given. Omit "
                    "{option}."
                ),
            )

    def _check_goes_with_a_step(self) -> None:
        for each in fields(self):
            is_given = getattr(self, each.name) != each.default
            if is_given and each.name not in ("step", "query", "seed", "decimals", "lang"):
                raise self._fault(
                    "step",
                    _(
                        "{option} has a sentence and a layer of its own, got {other} too. Omit one "
                        "of them."
                    ),
                    other=self.named(each.name),
                )

    def _check_limits(self, name: str, value: Any, known: Setting) -> None:
        least = -math.inf if known.least is None else known.least
        most = math.inf if known.most is None else known.most
        if not isinstance(value, int) or least <= value <= most:
            return
        limits = Message("at least {least}", least=least)
        if known.most is not None:
            limits = Message("from {least} to {most}", least=least, most=most)
        raise self._fault(
            name,
            _("{option} must be {limits}, got {value}."),
            limits=limits,
            value=value,
        )


def _number(written: str) -> float:
    """Parse a number; NaN where it is none, as Python's own 1_000."""
    try:
        return math.nan if "_" in written else float(written)
    except ValueError:
        return math.nan
