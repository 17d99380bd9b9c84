"""The command `classify`: label texts with a trained classifier."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import Run, output_file, shown, texts_of
from glasshead.cli.inputs.messages import check_task, print_stderr, print_unknown
from glasshead.cli.output import (
    check_target,
    print_drawing,
    print_json,
    print_text,
    spoken,
    write_page,
)
from glasshead.extras import require
from glasshead.message import _

if TYPE_CHECKING:
    from glasshead.drawing import Block, HeatMap
    from glasshead.explanation.translations import Say
    from glasshead.tasks.classify import Classification, TokenAttention

_CAPTION = _("Attention that each word receives, mean over words and heads; one row per layer")


def classify(
    run: Run,
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="One or more texts. Default: the lines of standard input.",
        ),
    ] = None,
    *,
    attention: Annotated[
        bool, Option("--attention", help="Show the attention that each word of a text receives.")
    ] = False,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Also write the attention as one self-contained HTML page. Missing folders are "
            "created.",
        ),
    ] = None,
    json: Annotated[
        bool,
        Option(
            "--json",
            help="Print one line of JSON for each text, with the probability of each label.",
        ),
    ] = False,
) -> None:
    """Classify each text, and print its label, the probability of the label, and the text."""
    require("glasshead classify", "tokenizers")
    page_file = output_file(html, "--html")
    if json and attention:
        raise ValueError(
            "--json and --attention cannot be combined, as --json prints JSON alone. Omit one of "
            "them."
        )
    if page_file is not None:
        check_target(page_file)
    from glasshead.drawing import Document, Heading, Paragraph
    from glasshead.tasks.classify import TextClassifier, token_attention

    check_task(Path(run), "classify", "classify")
    classifier = TextClassifier.load(run)
    say = spoken(None)
    printed: set[str] = set()
    width = max(map(len, classifier.settings.data.answers))
    page: list[Block] = []
    for lines in texts_of(tuple(texts or ())):
        answers = classifier.classify(lines.texts)
        print_unknown(classifier.tokenizer, lines.texts, printed)
        for text, answer in zip(lines.texts, answers, strict=True):
            _print(text, answer, width, json=json)
            if not text.strip() or not (attention or page_file):
                continue
            received = token_attention(classifier, text)
            if not received.words:
                continue
            drawn = _attention_map(received, say)
            if attention:
                print_drawing(drawn)
            page += [Heading(text), Paragraph(_probabilities(answer)), drawn]
    if page_file is not None:
        blocks = page or [Paragraph(say("None of the texts contains a word."))]
        title = say("Attention of a classifier")
        write_page(
            page_file,
            Document(blocks, title=title, language=say.language, words=say.words()).html(),
        )
        print_stderr(say("The page is at {place}", place=shown(page_file)))


def _print(text: str, answer: "Classification", width: int, *, json: bool) -> None:
    if json:
        print_json({"text": text, "label": answer.label, "shares": answer.shares})
    elif text.strip():
        share = answer.shares[answer.label]
        print_text(f"{answer.label:<{width}}  {share:.3f}  {text}", end="\n")
    else:
        print_text("", end="\n")


def _attention_map(received: "TokenAttention", say: "Say") -> "HeatMap":
    from glasshead.drawing import HeatMap

    layers = [say("layer {layer}", layer=layer) for layer in range(len(received.received))]
    return HeatMap(received.received, layers, received.words, caption=say(_CAPTION))


def _probabilities(answer: "Classification") -> str:
    return ", ".join(f"{label} {share:.3f}" for label, share in answer.shares.items())
