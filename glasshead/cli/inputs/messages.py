"""Error messages: options, files of models, unknown words."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glasshead.drawing.printable import as_command
from glasshead.explanation.choices import listed, quoted
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.explanation.translations import Say
    from glasshead.tasks.tokenizers.tokenizer import Tokenizer

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")


def malformed_json(error: JSONDecodeError) -> Message:
    """Return the rest of a sentence that opens with the file: where its JSON is malformed."""
    return Message(
        ", line {lineno}: malformed JSON ({msg}, column {colno}). Check brackets, commas and "
        "quotes there.",
        lineno=error.lineno,
        msg=error.msg,
        colno=error.colno,
    )


def whole_number(written: str | int) -> int:
    """Parse the whole number of an option.

    Errors: a usage error if it is none; typer adds which option it was.

    >>> whole_number("12")
    12
    """
    if not _WHOLE_NUMBER.fullmatch(str(written)):
        raise typer.BadParameter(
            Message("it must be a whole number, got {written}", written=quoted(written))
        )
    return int(written)


def number(written: str | float) -> float:
    """Parse the number of an option.

    Errors: a usage error if it is none; typer adds which option it was.

    >>> number("0.8")
    0.8
    """
    try:
        return float(written)
    except ValueError:
        raise typer.BadParameter(
            Message("it must be a number, got {written}", written=quoted(written))
        ) from None


def number_option(description: str, panel: str | None = None, *, metavar: str = "N") -> Any:
    """Create the option of a whole number; a default of None is not shown."""
    return typer.Option(
        metavar=metavar, parser=whole_number, rich_help_panel=panel, help=description
    )


# What a strategy of decoding calls an argument, before what it takes.
_ARGUMENT = re.compile(r"^(?:Sampling|Greedy|Beam)\((\w+)(?:=…)?\)")


@contextmanager
def options_of_decoding() -> Iterator[None]:
    """Name the options of the command line where a strategy of decoding refuses its arguments.

    >>> from glasshead.models.decoding import Beam
    >>> with options_of_decoding():
    ...     Beam(0)
    Traceback (most recent call last):
    ValueError: --beam must be a whole number of at least 1, got 0.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(_ARGUMENT.sub(_option, str(error))) from error


def _option(argument: re.Match[str]) -> str:
    name = "beam" if argument[1] == "width" else argument[1].replace("_", "-")
    return f"--{name}"


def as_option(option: str, value: object = None) -> str:
    """Spell an option of the command line, for errors; True is a flag.

    >>> as_option("length", 64), as_option("truncate", True)
    ('--length 64', '--truncate')
    """
    return f"--{option}" if value is None or value is True else f"--{option} {value}"


@contextmanager
def unobserved_as_value_error() -> Iterator[None]:
    """Raise an `UnseenError` of a watch as a ValueError, which is bad input."""
    from glasshead.watching import UnseenError

    try:
        yield
    except UnseenError as error:
        raise ValueError(str(error)) from error


# What the run of a task holds, and what it is used by.
_TASKS = {
    "classify": ("a classifier", "glasshead classify {} TEXT --attention"),
    "translate": ("a translator", "glasshead translate {} TEXT --attention"),
    "write": ("a language model", "glasshead write {} --prompt TEXT"),
}


def check_task(folder: Path, task: str, command: str) -> None:
    """Raise a ValueError if a folder holds a model of another task than a command needs.

    Args:
        folder: Of a run, or of a model of Hugging Face, which goes on with texts.
        task: "classify", "translate" or "write".
        command: The name of the command.
    """
    from glasshead.tasks.run_folder import RunFolder, is_of_huggingface

    if not RunFolder(folder).config.is_file():
        return
    of_others = is_of_huggingface(folder)
    own = "write" if of_others else RunFolder(folder).read_config().get("task")
    if own == task or own not in _TASKS:
        return
    holds, used = _TASKS[own]
    if of_others:
        holds, used = "a Hugging Face model", "glasshead observe {} --text FILE"
    name = as_command([str(folder)])
    raise ValueError(
        Message(
            "glasshead {command} needs {value}, and {folder} holds {holds}. Look into that with "
            "{format} or glasshead studio {name}, or name a run of glasshead train {task}.",
            command=command,
            value=_TASKS[task][0],
            folder=folder,
            holds=holds,
            format=used.format(name),
            name=name,
            task=task,
        )
    )


def print_unknown(
    tokenizer: "Tokenizer", texts: Iterable[str], printed: set[str], say: "Say | None" = None
) -> None:
    """Print the words that become the unknown token, each once, and why if they are most words.

    Args:
        tokenizer: The tokenizer; one of bytes knows every text.
        texts: The texts.
        printed: Those that were printed before; new ones are added.
        say: The translator of the sentence if the command speaks languages.
    """
    found = tokenizer.unknown_words(texts)
    unknown = [word for word in found.words if word not in printed]
    if unknown:
        printed.update(unknown)
        words = listed(map(quoted, unknown))
        sentence = Message(
            "unknown word: {words}. The model has no token for it, so it reads all unknown words "
            "alike.",
            words=words,
        )
        if len(unknown) > 1:
            sentence = Message(
                "unknown words: {words}. The model has no tokens for them, so it reads all "
                "unknown words alike.",
                words=words,
            )
        print_stderr(sentence if say is None else say.translated(sentence))
        if 2 * found.count > found.total:
            sentence = Message(
                "{count} of {total} words are unknown to this model: {cause}",
                count=found.count,
                total=found.total,
                cause=_cause(tokenizer, found.words),
            )
            print_stderr(sentence if say is None else say.translated(sentence))


def _cause(tokenizer: "Tokenizer", words: Iterable[str]) -> Message:
    """Return why words are unknown, as far as the vocabulary shows it."""
    from glasshead.tasks.tokenizers.tokenizer import SPECIAL
    from glasshead.tasks.tokenizers.words_and_letters import script_of

    tokens = {*tokenizer.inner.get_vocab()} - {*SPECIAL}
    vocabulary = {letter for token in tokens for letter in token}
    scripts = {*map(script_of, filter(str.isalpha, vocabulary))}
    letters = dict.fromkeys(filter(str.isalpha, "".join(words)))
    foreign = [letter for letter in letters if script_of(letter) not in scripts]
    if 2 * len(foreign) > len(letters):
        return Message(
            "its training texts are in another script, without letters like {letters}. Use a model "
            "of this language.",
            letters=listed(map(quoted, foreign), most=5),
        )
    if not tokenizer.unknown_words(word.lower() for word in words).words:
        return Message("it distinguishes capital letters, and knows these words in small letters.")
    return Message("its training texts have few or none of them. Use a model of texts like these.")


def print_stderr(text: str) -> None:
    """Print a line beside the output, if a pipe does not take it."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
