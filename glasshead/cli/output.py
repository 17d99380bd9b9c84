"""Printing and writing: documents, JSON, progress bars, files, language."""

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from os.path import normcase, realpath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

from rich.console import Console, RenderableType
from typer import Option

from glasshead.cli.inputs.files import STANDARD_INPUT, shown
from glasshead.cli.inputs.messages import whole_number
from glasshead.explanation.choices import quoted
from glasshead.explanation.settings import OUTPUT
from glasshead.files import whole_file
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.drawing import Document
    from glasshead.explanation.translations import Say

Width = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Width of the text in columns. Default: the width of the terminal.",
    ),
]
Html = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Also write one self-contained HTML page. Missing folders are created.",
    ),
]

Lang = Annotated[
    str | None,
    Option(
        metavar="L",
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Language: en, tr, es, zh-Hant or zh-Hans. Default: the language of LC_ALL, "
        "LC_MESSAGES or LANG, else en.",
    ),
]


_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def check_language(asked: str | None) -> None:
    """Raise a ValueError for a language that is not supported.

    >>> check_language("zh_TW.UTF-8")
    """
    from glasshead.explanation.translations import LANGUAGES, language_of

    if asked is None:
        return
    try:
        language_of(asked)
    except ValueError:
        raise ValueError(
            Message(
                "--lang must be one of {languages}, got {got}.",
                languages=Message.joined(", ", LANGUAGES),
                got=quoted(asked),
            )
        ) from None


def chosen_language(asked: str | None, environment: Mapping[str, str]) -> str:
    """Return the language of the output: en, tr, es, zh-Hant or zh-Hans.

    Without a choice, the first of LC_ALL, LC_MESSAGES and LANG that is set decides, as for other
    programs; a language that is not here is English.

    Errors: a ValueError if the choice is none of them.

    >>> chosen_language(None, {"LANG": "tr_TR.UTF-8"}), chosen_language("es", {})
    ('tr', 'es')
    """
    from glasshead.explanation.translations import language_of

    check_language(asked)
    if asked is not None:
        return language_of(asked)
    named = next(filter(None, map(environment.get, _VARIABLES)), "en")
    try:
        return language_of(named)
    except ValueError:
        return "en"


def spoken(asked: str | None) -> "Say":
    """Return the translator to the language of the output.

    Errors: as of `chosen_language`.
    """
    from glasshead.explanation.translations import Say

    return Say(chosen_language(asked, os.environ))


def in_language(document: "Document", say: "Say") -> "Document":
    """Translate the messages of a document, in each of its blocks."""
    return replace(_translated(document, say), language=say.language, words=say.words())


def _translated(part: Any, say: "Say") -> Any:
    from glasshead.drawing import Block, Document

    if isinstance(part, str):
        return say.translated(part)
    if isinstance(part, list | tuple):
        return type(part)(_translated(one, say) for one in part)
    if isinstance(part, Block | Document) and is_dataclass(part):
        own = [field.name for field in fields(part) if field.init]
        return replace(part, **{name: _translated(getattr(part, name), say) for name in own})
    return part


NARROWEST, WIDEST = 20, 1000


def check_width(width: int | None) -> None:
    """Raise a ValueError for a width out of range."""
    if width is not None and not NARROWEST <= width <= WIDEST:
        raise ValueError(
            Message(
                "--width must be {narrowest} to {widest} columns, got {width}. Omit it for the "
                "width of the terminal.",
                narrowest=NARROWEST,
                widest=WIDEST,
                width=width,
            )
        )


def print_drawing(drawing: RenderableType, width: int | None = None) -> None:
    """Print a rich renderable, in color where standard output is a terminal that has some."""
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    # COLUMNS may say anything; in fewer columns, numbers would lose their digits.
    console.width = max(console.width, NARROWEST)
    # Code that is wider than the terminal wraps.
    console.print(drawing, crop=False)


def print_text(text: str, *, end: str = "") -> None:
    """Print a text and flush; a terminal gets no control characters, and a file no NUL.

    A model that has learnt little may write any byte, and a file with a NUL is no text.
    """
    if sys.stdout.isatty():
        from glasshead.drawing.printable import printable

        text = "\n".join(printable(line) for line in text.split("\n"))
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    sys.stdout.write(text + end)
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Print JSON alone, in ASCII where standard output has no more than that."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(value, ensure_ascii=not unicode, allow_nan=False)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_SECONDS = 2.0


@contextmanager
def going_on(doing: str) -> Iterator[None]:
    """Show a status in the terminal while the block runs, after some seconds.

    It is written to standard error, so that a pipe does not take it; and not where that is no
    terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(doing)
    timer = threading.Timer(_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # It may be about to begin.
        timer.join()
        status.stop()


class Counter:
    """A progress bar on standard error; hidden where that is no terminal.

    >>> with Counter("evaluating") as counter:
    ...     counter.show(1, 2)
    """

    def __init__(self, doing: str, *, shown: bool = True) -> None:
        from rich.progress import Progress

        console = Console(stderr=True)
        hidden = not (shown and console.is_terminal)
        self._bar = Progress(console=console, transient=True, disable=hidden)
        self._task = self._bar.add_task(doing, total=None)

    def show(self, done: int, of: int | None) -> None:
        """Update the bar; without a total, it tells that work goes on."""
        self._bar.update(self._task, completed=done, total=of)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()


@dataclass(frozen=True)
class Kind:
    """Wording of errors about an output file.

    Attributes:
        option: The option that names the file.
        noun: The noun for it.
        example: An example of a file name.
    """

    option: str
    noun: str
    example: str


PAGE = Kind("--html", "the page", "page.html")
OBSERVATION = Kind("--save", "the observation", "seen.safetensors")
PICTURE = Kind("--png", "the picture", "space.png")


# What the commands write, and pictures of other kinds: a file that ends so is taken for such a one.
_SUFFIXES = {".html", ".json", ".safetensors", ".png", ".pdf", ".svg", ".jpg", ".jpeg", ".gif"}


def check_target(path: Path, kind: Kind = PAGE) -> None:
    """Check that a file can be written to `path`: no folder, no device, not below a file.

    Errors: an OSError that says which, and what to do; a ValueError if its name ends as that of
    another kind of file.
    """
    try:
        there = path.exists()
    except OSError as error:
        raise _refusal(path, error, kind) from error
    _check_ending(path, kind)
    if path.is_dir():
        raise IsADirectoryError(
            Message(
                "{option} must be a file to write, got the folder {path}. Name a file in it, as "
                "in {given}.",
                option=kind.option,
                path=shown(path),
                given=shown(path / kind.example),
            )
        )
    if there and not path.is_file():
        raise OSError(
            Message(
                "{option} must be a file to write, got {path}, which is not a regular file. Name "
                "another.",
                option=kind.option,
                path=shown(path),
            )
        )
    # Moving a page into its place asks for no permission to write there, and root needs none.
    if there and not (os.access(path, os.W_OK) and path.stat().st_mode & 0o222):
        raise PermissionError(
            Message(
                "{option} must be a file to write, got {path}, which is write-protected. Change "
                "its permissions, or name another.",
                option=kind.option,
                path=shown(path),
            )
        )
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(
            Message(
                "{option} must be in a folder, got {path}, but {above} is a file. Name another "
                "place.",
                option=kind.option,
                path=shown(path),
                above=shown(above),
            )
        )


def _check_ending(path: Path, kind: Kind) -> None:
    """Raise a ValueError if a name ends as that of another kind of file."""
    own = Path(kind.example).suffix
    if path.suffix.lower() in _SUFFIXES - {own}:
        raise ValueError(
            Message(
                "{option} must be a file that ends in {own}, got {path}, which ends in {suffix}. "
                "Name it {given}.",
                option=kind.option,
                own=own,
                path=shown(path),
                suffix=path.suffix,
                given=shown(path.with_suffix(own)),
            )
        )


def check_apart(path: Path, sources: Iterable[Path | None], kind: Kind = PAGE) -> None:
    """Raise a ValueError if an output file would replace an input file."""
    for source in sources:
        if source in (None, STANDARD_INPUT):
            continue
        if path.exists() and source.exists() and path.samefile(source):
            raise ValueError(
                Message(
                    "{option} must be another file than {source}, which is read. Name a new file.",
                    option=kind.option,
                    source=shown(source),
                )
            )


def check_outputs(
    files: Sequence[tuple[Kind, Path | None]], sources: Iterable[Path | None]
) -> None:
    """Check that each given file can be written, and replaces neither an input nor another.

    Errors: a ValueError or an OSError that names the option.
    """
    sources = tuple(sources)
    given = [(kind, path) for kind, path in files if path is not None]
    for kind, path in given:
        check_target(path, kind)
        check_apart(path, sources, kind)
    # Links may lead in a circle, which Path.resolve does not bear before Python 3.13; Windows reads
    # capitals as small letters.
    if len({normcase(realpath(path)) for _, path in given}) < len(given):
        options = Message.joined(" and ", [kind.option for kind, _ in given])
        raise ValueError(
            Message(
                "{options} must be two files, got {given} for both. Name two.",
                options=options,
                given=shown(given[0][1]),
            )
        )


def write_page(path: Path, page: str) -> None:
    """Write a page, as `write_bytes` does."""
    write_bytes(path, page.encode(), PAGE)


def write_bytes(path: Path, content: bytes, kind: Kind) -> None:
    """Write a file atomically; missing folders are made.

    It is written beside its place and then moved there, so that nobody, not even a reader of
    an older one, ever finds half of it.

    Errors: an OSError if it cannot be written; nothing is left behind.
    """
    check_target(path, kind)
    try:
        Path(realpath(path)).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise _refusal(path, error, kind) from error


def _refusal(path: Path, error: OSError, kind: Kind) -> OSError:
    return OSError(
        f"{kind.noun} cannot be written to {shown(path)} ({error.strerror}). Name another place."
    )
