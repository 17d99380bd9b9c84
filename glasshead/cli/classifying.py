"""The work of `glasshead classify`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.files import shown, texts_of
from glasshead.cli.output import (
    check_target,
    print_drawing,
    print_json,
    print_stderr,
    print_text,
    write_page,
)
from glasshead.drawing import Block, Document, Heading, HeatMap, Paragraph
from glasshead.tasks.classify import Classification, TextClassifier, TokenAttention, token_attention

_CAPTION = "What each word received, the mean over words and heads; a row is a layer"


@dataclass(frozen=True)
class ClassifyRequest:
    """What the user wrote; the fields are the options of the command."""

    run: str
    texts: tuple[str, ...]
    attention: bool
    html: Path | None
    json: bool

    def execute(self) -> None:
        """Classify every text, in order.

        Errors: an OSError or ValueError where an option, the run or a text is not what it is to be.
        """
        if self.json and self.attention:
            raise ValueError("--json prints JSON alone, and --attention a map: leave out one.")
        if self.html is not None:
            check_target(self.html)
        classifier = TextClassifier.load(self.run)
        width = max(map(len, classifier.settings.data.answers))
        page: list[Block] = []
        for some in texts_of(self.texts):
            for text, answer in zip(some.texts, classifier.classify(some.texts), strict=True):
                self._print(text, answer, width)
                if not text.strip() or not (self.attention or self.html):
                    continue
                looked = token_attention(classifier, text)
                if not looked.words:
                    continue
                drawn = _map(looked)
                if self.attention:
                    print_drawing(drawn)
                page += [Heading(text), Paragraph(_said(answer)), drawn]
        if self.html is not None:
            blocks: Sequence[Block] = page or [Paragraph("No text had a word.")]
            write_page(self.html, Document(blocks, title="What these texts are").html())
            print_stderr(f"The page is at {shown(self.html)}")

    def _print(self, text: str, answer: Classification, width: int) -> None:
        if self.json:
            print_json({"text": text, "label": answer.label, "shares": answer.shares})
        elif text.strip():
            share = answer.shares[answer.label]
            print_text(f"{answer.label:<{width}}  {share:.3f}  {text}", end="\n")
        else:
            print_text("", end="\n")


def _map(looked: TokenAttention) -> HeatMap:
    layers = [f"layer {layer}" for layer in range(len(looked.received))]
    return HeatMap(looked.received, layers, looked.words, caption=_CAPTION)


def _said(answer: Classification) -> str:
    return ", ".join(f"{label} {share:.3f}" for label, share in answer.shares.items())
