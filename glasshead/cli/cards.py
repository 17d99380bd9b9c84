"""The command `cards`: describe every attention head of a model on a card."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from glasshead.cli.inputs.files import (
    TextModel,
    check_partial,
    input_file,
    output_file,
    shown,
    titled,
)
from glasshead.cli.inputs.messages import (
    as_option,
    check_task,
    print_stderr,
    unobserved_as_value_error,
)
from glasshead.cli.output import (
    OUTPUT,
    PAGE,
    Counter,
    Html,
    Kind,
    Lang,
    Width,
    check_language,
    check_outputs,
    check_width,
    in_language,
    print_drawing,
    spoken,
    write_bytes,
    write_page,
)
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from glasshead.drawing import Document
    from glasshead.watching.analytics import HeadCards

_JSON = Kind("--json", "the file of cards", "cards.json")
_MARKDOWN = Kind("--markdown", "the file of cards", "cards.md")
_text_option = partial(Option, rich_help_panel="Texts")


def cards(
    model: TextModel,
    *,
    text: Annotated[
        list[str] | None,
        _text_option(
            metavar="FILE",
            show_default=False,
            help="What the model reads: a plain text file, a .jsonl, .csv or .tsv file of texts, "
            "or a folder of such files; may be repeated. Default: repeated random tokens.",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        _text_option(
            metavar="TOKEN",
            show_default=False,
            help="Token between two parts of a text, to find heads that align them. Default: the "
            "only token that each of three texts or more has once, between parts that share a "
            "token.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write the cards as JSON."),
    ] = None,
    markdown: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write the cards as Markdown."),
    ] = None,
    html: Html = None,
    float64: Annotated[
        bool,
        Option(
            "--float64",
            help="Compute in float64, so that the cards are the same on every processor.",
        ),
    ] = False,
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="With --json FILE: resume after an interruption, from the sums stored in "
            "FILE.partial.",
        ),
    ] = False,
    width: Width = None,
    lang: Lang = None,
) -> None:
    """Describe every head of a model on a card: its role, where it looks, and what feeds it."""
    folder = Path(model)
    texts = [file for one in text or () if (file := input_file(one, "--text")) is not None]
    files = [
        (kind, output_file(written, kind.option))
        for kind, written in ((_JSON, json), (_MARKDOWN, markdown), (PAGE, html))
    ]
    if not model:
        raise ValueError(Message("MODEL must be the folder of a model, got an empty name."))
    check_width(width)
    check_language(lang)
    _check_files(folder, texts, files)
    written = files[0][1]
    kept = None if written is None else written.with_name(f"{written.name}.partial")
    check_partial(kept, "--json", resume=resume)
    require_for_model(folder, "glasshead cards MODEL")
    check_task(folder, "write", "cards")
    from glasshead import __version__
    from glasshead.tasks.readers.cards_of_texts import cards_of_texts, inputs_of, texts_for_cards
    from glasshead.tasks.readers.open_reader import open_reader

    reader = open_reader(folder)
    if float64:
        reader.model.double()
    with Counter("reading texts"):
        given = texts_for_cards(reader, texts, separator, as_option)
    inputs = inputs_of(reader, given, __version__)
    with Counter("describing heads") as counter, unobserved_as_value_error():
        found = cards_of_texts(reader, given, inputs, partial=kept, progress=counter.show)
    name, say = titled(reader.name), spoken(lang)
    between = None if given.separator is None else reader.token(given.separator)
    content = cards_json(found, inputs | {"short": given.short}, name)
    document = in_language(report(found, name, hash_of(content), between), say)
    _write(files, content, document)
    if kept is not None:
        kept.unlink(missing_ok=True)
    whole = all(path is None for _, path in files)
    print_drawing(document if whole else _summary(document), width)
    written = [shown(path) for _, path in files if path is not None]
    if written:
        print_stderr(say("The cards are at {place}", place=", ".join(written)))


def _check_files(
    folder: Path, texts: Sequence[Path], files: Sequence[tuple[Kind, Path | None]]
) -> None:
    """Check that what is written replaces nothing that is read."""
    from glasshead.tasks.readers.texts import files_of

    own = list(folder.iterdir()) if folder.is_dir() else [folder]
    check_outputs(files, [*(file for text in texts for file in files_of(text)), *own])


def cards_json(found: "HeadCards", inputs: dict[str, Any], name: str) -> str:
    """Return JSON with a line for each card, and the hash of inputs and cards."""
    from glasshead.watching.analytics.head_card import entry

    cards = [dumps(entry(card), ensure_ascii=False) for card in found.cards]
    digest = hashlib.sha256("\n".join([dumps(inputs), *cards]).encode()).hexdigest()
    content = {"hash": digest, "name": name, "inputs": inputs, "texts": found.texts}
    content |= {"unknown": found.unknown, "layers": found.layers}
    head = dumps(content, indent=1, ensure_ascii=False)
    lines = ",\n".join(f"  {card}" for card in cards)
    return f'{head[:-2]},\n "cards": [\n{lines}\n ]\n}}\n'


def hash_of(content: str) -> str:
    """Return the hash in the JSON of cards."""
    return loads(content)["hash"]


def report(found: "HeadCards", name: str, digest: str, between: str | None) -> "Document":
    """Return the roles and cards of all heads, under the name of the model.

    Args:
        found: The cards.
        name: The name of the model.
        digest: The hash of inputs and cards.
        between: The token between the two parts of each text; None: there are no two parts.
    """
    from dataclasses import replace

    from glasshead.drawing import Paragraph, visible

    document = found.document()
    said = [Message("Hash of inputs and cards: {digest}", digest=digest[:16])]
    if between is not None:
        said.append(
            Message("Separator of the two parts of a text: {token}", token=visible(between))
        )
    title = Message("Head cards of {name}", name=name)
    return replace(document, blocks=[*map(Paragraph, said), *document.blocks], title=title)


def _summary(document: "Document") -> "Document":
    """Return what stands before the first card."""
    from dataclasses import replace

    from glasshead.drawing import Heading

    blocks = document.blocks
    first = next(place for place, one in enumerate(blocks) if isinstance(one, Heading))
    return replace(document, blocks=blocks[:first])


def _write(files: Sequence[tuple[Kind, Path | None]], content: str, document: "Document") -> None:
    (as_json, json), (as_markdown, markdown), (_, page) = files
    if json is not None:
        write_bytes(json, content.encode(), as_json)
    if markdown is not None:
        write_bytes(markdown, "\n".join(_markdown(document)).encode(), as_markdown)
    if page is not None:
        write_page(page, document.html())


def _markdown(document: "Document") -> Iterator[str]:
    """Yield the lines of a document of cards in Markdown."""
    from glasshead.drawing import Cards, Heading, Note, Paragraph

    yield f"# {document.title}"
    for block in document.blocks:
        yield ""
        if isinstance(block, Heading):
            yield f"## {block.text}"
        elif isinstance(block, Paragraph | Note):
            yield _escaped(block.text)
        elif isinstance(block, Cards):
            for card in block.cards:
                yield f"### {card.title}" + (f": {card.mark}" if card.mark else "")
                yield ""
                yield "- " + ", ".join(f"{name} {share:.2f}" for name, share in card.bars)
                for row, text in card.rows:
                    yield f"- {row}: {_escaped(text)}"
                yield ""
        else:
            yield "```text"
            yield block.as_text(120)
            yield "```"
    yield ""


def _escaped(text: str) -> str:
    """Return a text in which nothing is markup."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~$!" else letter for letter in text)
