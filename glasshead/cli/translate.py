"""The command `translate`: translate texts with a trained encoder-decoder."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import Run, output_file, shown, texts_of
from glasshead.cli.inputs.messages import (
    check_task,
    number,
    options_of_decoding,
    print_stderr,
    print_unknown,
    whole_number,
)
from glasshead.cli.output import (
    Lang,
    check_language,
    check_target,
    print_drawing,
    print_text,
    spoken,
    write_page,
)
from glasshead.extras import require
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.drawing import Block, Document, HeatMap
    from glasshead.explanation.translations import Say
    from glasshead.models.decoding import Strategy
    from glasshead.tasks.translate import Alignment, TextTranslator, Translation

_search_option = partial(Option, rich_help_panel="Beam search")
_attention_option = partial(Option, show_default=False, rich_help_panel="Attention")


def translate(
    run: Run,
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            show_default=False,
            help="One or more sentences. Default: the lines of standard input.",
        ),
    ] = None,
    *,
    beam: Annotated[
        int,
        _search_option(
            metavar="WIDTH", parser=whole_number, help="Beam width; 1 is greedy search."
        ),
    ] = 5,
    length_penalty: Annotated[
        float,
        _search_option(
            metavar="A",
            parser=number,
            help="Length penalty: the exponent α of the length normalization. Above 0, it favors "
            "longer translations.",
        ),
    ] = 1.0,
    attention: Annotated[
        bool,
        _attention_option(
            "--attention",
            help="Show the cross-attention from each word of the translation to the words of the "
            "sentence.",
        ),
    ] = False,
    layer: Annotated[
        int | None,
        _attention_option(
            metavar="N",
            parser=whole_number,
            help="Decoder layer to show, counted from 0. Default: the last.",
        ),
    ] = None,
    head: Annotated[
        int | None,
        _attention_option(
            metavar="N",
            parser=whole_number,
            help="Head to show, counted from 0. Default: the mean over all heads.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        _attention_option(
            metavar="FILE",
            help="Also write the cross-attention as one self-contained HTML page. Missing folders "
            "are created.",
        ),
    ] = None,
    lang: Lang = None,
) -> None:
    """Translate each sentence, and optionally show the cross-attention."""
    require("glasshead translate", "tokenizers")
    page_file = output_file(html, "--html")
    drawn = attention or page_file is not None
    if not drawn and (layer is not None or head is not None):
        raise ValueError(Message("--layer and --head need --attention. Add it, or omit them."))
    check_language(lang)
    if page_file is not None:
        check_target(page_file)
    from glasshead.models.decoding import Beam
    from glasshead.tasks.translate import TextTranslator, align, check_choice

    with options_of_decoding():
        strategy = Beam(beam, length_penalty=length_penalty)
    check_task(Path(run), "translate", "translate")
    translator = TextTranslator.load(run)
    check_choice(translator, layer, head)
    say = spoken(lang)
    alignments: list[tuple[Translation, Alignment]] = []
    for translation in _translations(translator, texts or (), strategy, say):
        print_text(translation.text, end="\n")
        alignment = align(translator, translation, layer, head) if drawn else None
        if alignment is None or not alignment.target:
            continue
        alignments.append((translation, alignment))
        if attention:
            print_drawing(alignment_map(alignment, say))
    if page_file is not None:
        write_page(page_file, alignment_page(alignments, say).html())
        print_stderr(say("The page is at {place}", place=shown(page_file)))


def _translations(
    translator: "TextTranslator", texts: Iterable[str], strategy: "Strategy", say: "Say"
) -> "Iterator[Translation]":
    """Translate the texts, or standard input; a warning names words that have no token."""
    printed: set[str] = set()
    for lines in texts_of(tuple(texts)):
        translations = translator.translate(lines.texts, strategy, name=lines.name)
        print_unknown(translator.tokenizer, lines.texts, printed, say)
        yield from translations


def alignment_map(alignment: "Alignment", say: "Say") -> "HeatMap":
    """Draw an alignment as a heat map: rows are translated words, columns words of the text."""
    from glasshead.drawing import HeatMap

    caption = say(
        "Cross-attention: each word of the translation (rows), and the words that it looked "
        "at (columns)"
    )
    return HeatMap(alignment.weights, alignment.target, alignment.source, caption=caption)


def alignment_blocks(alignment: "Alignment", say: "Say") -> "list[Block]":
    """Draw an alignment as bands and a heat map; nothing for a translation without a word."""
    from glasshead.drawing import WordBands

    if not alignment.target:
        return []
    caption = say("Each word of the translation, and the words it looked at")
    bands = WordBands(alignment.weights, alignment.target, alignment.source, caption=caption)
    return [bands, alignment_map(alignment, say)]


def alignment_page(translated: "Iterable[tuple[Translation, Alignment]]", say: "Say") -> "Document":
    """Build a page of all translations, each with its alignment."""
    from glasshead.drawing import Document, Heading, Paragraph

    blocks: list[Block] = []
    for translation, alignment in translated:
        blocks += [
            Heading(translation.source),
            Paragraph(translation.text),
            *alignment_blocks(alignment, say),
        ]
    return Document(
        blocks or [Paragraph(say("None of the texts contains a word."))],
        title=say("Translations"),
        language=say.language,
        words=say.words(),
    )
