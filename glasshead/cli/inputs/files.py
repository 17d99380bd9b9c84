"""Read and check files and lines that the user names."""

import errno
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

from typer import Argument

from glasshead.cli.inputs.messages import print_stderr
from glasshead.drawing.printable import printable
from glasshead.files import open_regular, opened_at_once
from glasshead.message import Message
from glasshead.tasks.data import files

Run = Annotated[
    str,
    Argument(metavar="RUN", show_default=False, help="Run folder, as written by glasshead train."),
]
TextModel = Annotated[
    str,
    Argument(
        metavar="MODEL",
        show_default=False,
        help="A run folder of glasshead train write, or the folder of a Hugging Face text model "
        "(config.json, tokenizer, safetensors weights).",
    ),
]


@dataclass(frozen=True, slots=True)
class Row:
    """A token of a file, its numbers and its line."""

    line: int
    token: str
    numbers: list[float]


class ParseError(ValueError):
    """An error in the content of a file, without the file's name, which the caller adds."""


STANDARD_INPUT = Path("-")


def input_file(written: str | None, option: str) -> Path | None:
    """Return the file that an option reads: `STANDARD_INPUT` for -, None if none is given.

    Errors: a ValueError if the name is empty.

    >>> input_file("-", "--vectors") == STANDARD_INPUT
    True
    """
    if written is None:
        return None
    _check_given(written, option)
    path = Path(written)
    # ./- is a file of that name.
    return path.absolute() if path == STANDARD_INPUT and written != "-" else path


def output_folder(written: str, option: str) -> Path:
    """Return the folder that an option writes into; it need not exist.

    Errors: a ValueError if the name is empty; an OSError if it is a file.

    >>> output_folder("", "--folder")
    Traceback (most recent call last):
    ValueError: --folder must be a folder, got an empty name. Name one, or omit it.
    """
    if not written.strip():
        raise ValueError(
            Message(
                "{option} must be a folder, got an empty name. Name one, or omit it.",
                option=option,
            )
        )
    path = Path(written)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            Message(
                "{option} must be a folder, got the file {written}. Name another.",
                option=option,
                written=written,
            )
        )
    return path


def check_partial(kept: Path | None, option: str, *, resume: bool) -> None:
    """Check --resume against what an interrupted run has left.

    Args:
        kept: Where the run keeps what it has so far; None: nowhere.
        option: The option that names its file, such as "--save".
        resume: Whether an interrupted run is continued.

    Errors: a ValueError if there is nothing to go on with, or what is there would be lost.
    """
    if kept is None:
        if resume:
            raise ValueError(
                Message(
                    "--resume continues an interrupted run with {option} FILE. Add {option}, or "
                    "omit --resume.",
                    option=option,
                )
            )
    elif resume and not kept.exists():
        raise ValueError(
            Message("--resume found no {path}. Omit --resume to begin.", path=shown(kept))
        )
    elif kept.exists() and not resume:
        raise ValueError(
            Message(
                "{path} exists, from an interrupted run. Add --resume to continue that run, or "
                "delete the file to begin again.",
                path=shown(kept),
            )
        )


def output_file(written: str | None, option: str) -> Path | None:
    """Return the file that an option writes; None if none is given.

    Errors: a ValueError if the name is empty, that of a folder, or stands for standard output.

    >>> output_file("new/", "--html")
    Traceback (most recent call last):
    ValueError: --html must be a file to write, got the folder new/. Name a file in it.
    """
    if written is None:
        return None
    _check_given(written, option)
    if written == "-":
        raise ValueError(
            Message(
                "{option} must be a file to write, got -, standard output, which has the text. "
                "Name a file, as in page.html.",
                option=option,
            )
        )
    if written.endswith(("/", os.sep)):
        raise ValueError(
            Message(
                "{option} must be a file to write, got the folder {written}. Name a file in it.",
                option=option,
                written=written,
            )
        )
    return Path(written)


def check_sentence(text: str | None) -> None:
    """Raise a ValueError if a sentence is the name of a file or a folder.

    >>> check_sentence("he/she")
    """
    if not text:
        return
    name, path = printable(text), Path(text)
    try:
        is_folder, exists = path.is_dir(), path.exists()
        in_folder = len(path.parts) > 1 and path.parent.is_dir()
    except OSError:  # no file may have a name as long as a sentence
        return
    if is_folder:
        raise ValueError(
            Message(
                "TEXT must be a sentence, got the folder {name}. Open the model in it with "
                "glasshead observe {name} --text FILE, or glasshead studio {name}.",
                name=name,
            )
        )
    if exists:
        raise ValueError(
            Message(
                "TEXT must be a sentence, got the file {name}. Write the sentence itself, or "
                "have a model read the file with glasshead observe MODEL --text {name}.",
                name=name,
            )
        )
    if in_folder:
        raise ValueError(
            Message(
                "TEXT must be a sentence, got the missing file {name}. Check its name.", name=name
            )
        )


def _check_given(written: str, option: str) -> None:
    if not written:
        raise ValueError(
            Message(
                "{option} must be a file, got an empty name. Name one, or omit it.", option=option
            )
        )


# More than this is no table for a reader, and a pipe may never end.
_MOST_BYTES = 2**30


def titled(names: str) -> str:
    """Return names of files for a page or a picture, without folders outside the current one.

    >>> titled("/home/ada/models/gpt2"), titled("texts/a.txt, ../data/b.txt")
    ('gpt2', 'texts/a.txt, b.txt')
    """
    paths = [Path(part) for part in names.split(", ")]
    return ", ".join(
        path.name if path.anchor or ".." in path.parts else str(path) for path in paths
    )


def shown(path: Path) -> str:
    """Format a path for errors."""
    return "standard input" if path == STANDARD_INPUT else printable(str(path))


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file, or of standard input.

    Errors: an OSError, worded for the user, if it is not there, is a folder or a device, or
    cannot be read; a ValueError if it is larger than 1 GiB, or a pipe that nobody fills.
    """
    try:
        with _opened(path) as file:
            state = os.fstat(file.fileno())
            # What a regular file says that it has is all that is read of it.
            size = state.st_size if stat.S_ISREG(state.st_mode) else _MOST_BYTES + 1
            too_large = stat.S_ISREG(state.st_mode) and size > _MOST_BYTES
            content = b"" if too_large else file.read(size)
            is_pipe = stat.S_ISFIFO(state.st_mode)
    except FileNotFoundError as error:
        raise files.no_such_file(path) from error
    except IsADirectoryError as error:
        raise files.is_a_folder(path) from error
    except PermissionError as error:
        raise PermissionError(
            Message(
                "{path} may not be read by this user. Change its permissions.", path=shown(path)
            )
        ) from error
    except OSError as error:
        raise OSError(
            Message("{path} cannot be read: {strerror}.", path=shown(path), strerror=error.strerror)
        ) from error
    if too_large or len(content) > _MOST_BYTES:
        raise ValueError(
            Message(
                "{path} must have at most 1 GiB, but it is larger, or never ends. Keep only what "
                "you need of it.",
                path=shown(path),
            )
        )
    if is_pipe and not content:
        raise ValueError(
            Message(
                "{path} must be a file, got a pipe into which nobody writes. Fill it first, or "
                "name a file.",
                path=shown(path),
            )
        )
    return content


def _opened(path: Path) -> BinaryIO:
    if path == STANDARD_INPUT:
        return _standard_input()
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        return open(path, "rb", opener=opened_at_once)
    # /dev/stdin is another name of a terminal.
    if stat.S_ISCHR(state.st_mode) and sys.stdin is not None and _is(0, state):
        return _standard_input()
    return open_regular(path)


def _standard_input() -> BinaryIO:
    # Of devices a terminal ends, and what is nothing.
    if stat.S_ISCHR(os.fstat(0).st_mode) and not (os.isatty(0) or _is(0, Path(os.devnull).stat())):
        raise OSError(errno.EINVAL, "it is a device, not a file")
    return open(0, "rb", closefd=False)


def _is(descriptor: int, state: os.stat_result) -> bool:
    return os.path.samestat(os.fstat(descriptor), state)


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without a byte order mark; .gz and .xz are unpacked.

    Errors: as for `read_bytes`, and a ValueError that names the line if it is not UTF-8, or
    if a file is not packed as its name says.
    """
    if path != STANDARD_INPUT and files.packing(path):
        return files.read_text(files.existing(path))
    content = read_bytes(path)
    try:
        text, place = content.decode("utf-8-sig"), content.find(b"\0")
    except UnicodeDecodeError as error:
        raise files.not_text(shown(path), error.object, error.start) from error
    if place >= 0:
        raise files.not_text(shown(path), content, place)
    return text


# How many lines are worked on at once, where they are there, and how long one may be, in bytes.
_AT_ONCE, _LONGEST = 64, 2**22


@dataclass(frozen=True)
class Lines:
    """A batch of texts, with a name of each for errors."""

    texts: list[str]
    names: list[str]

    def name(self, number: int) -> str:
        """Return the name of one text for errors, counted from 1."""
        return self.names[number - 1]


def texts_of(arguments: Sequence[str] | None) -> Iterator[Lines]:
    """Yield texts in batches: the arguments, or else the lines of standard input.

    As many lines as are there are given at once, and a single one does not wait for another: so a
    file is read fast, and whoever types is answered line by line.

    Errors: a ValueError if a line is not UTF-8, or an argument is the name of a file; an OSError
    if standard input is closed, or cannot be read.

    >>> list(texts_of(["Guten Morgen", "Danke"]))
    [Lines(texts=['Guten Morgen', 'Danke'], names=['text 1', 'text 2'])]
    """
    if arguments:
        _check_no_files(arguments)
        yield Lines([*arguments], [f"text {number}" for number in range(1, len(arguments) + 1)])
        return
    if sys.stdin is None:
        raise OSError(
            Message("standard input is closed. Pass a TEXT, or redirect a file with < FILE.")
        )
    if os.isatty(0):
        end = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
        print_stderr(f"Type a text and Enter; {end} at the beginning of a line ends.")
    lines = _arriving()
    number, ended = 0, False
    while not ended:
        some = [lines.get()]
        while len(some) < _AT_ONCE and some[-1] is not None and not lines.empty():
            some.append(lines.get())
        ended = some[-1] is None
        found = Lines([], [])
        for number, line in enumerate(filter(None, some), number + 1):  # noqa: B020 - it goes on
            name = f"standard input, line {number}"
            if isinstance(line, OSError):
                raise OSError(
                    Message(
                        "{name} cannot be read ({strerror}). Redirect a file with < FILE.",
                        name=name,
                        strerror=line.strerror,
                    )
                ) from line
            if len(line) > _LONGEST:
                raise ValueError(
                    Message(
                        "{name}: expected a line of at most {longest:,} bytes, got a longer one. "
                        "Break it.",
                        name=name,
                        longest=_LONGEST,
                    )
                )
            found.names.append(name)
            found.texts.append(_decoded(line, name, "utf-8-sig" if number == 1 else "utf-8"))
        if found.texts:
            yield found


def _check_no_files(texts: Sequence[str]) -> None:
    """Raise a ValueError if a text is the name of a file, such as texts.txt."""
    for path in map(Path, texts):
        try:
            is_file = bool(path.suffix) and path.is_file()
        except OSError:  # no file may have a name as long as a text
            continue
        if is_file:
            raise ValueError(
                Message(
                    "TEXT must be a text, got the file {path}. Read its lines with <{path}, "
                    "without TEXT.",
                    path=shown(path),
                )
            )


def _arriving() -> "queue.Queue[bytes | OSError | None]":
    """Queue the lines of standard input, an error that ends them, and None at their end."""
    lines: queue.Queue[bytes | OSError | None] = queue.Queue(maxsize=4 * _AT_ONCE)

    def read() -> None:
        try:
            # Not by `sys.stdin`, whose lock a waiting thread would hold when the program ends.
            with open(0, "rb", closefd=False) as file:
                # A line that never ends is not waited for.
                while line := file.readline(_LONGEST + 1):
                    lines.put(line)
                    if len(line) > _LONGEST:
                        break
        except OSError as error:
            lines.put(error)
        finally:
            lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _decoded(line: bytes, name: str, encoding: str) -> str:
    try:
        return line.decode(encoding).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            Message(
                "{name}: expected UTF-8 text, got the byte 0x{value:02x}. Save it as UTF-8.",
                name=name,
                value=error.object[error.start],
            )
        ) from error
