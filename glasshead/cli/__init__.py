"""The command line: run a command, and print what went wrong in one sentence."""

import os
import re
import signal
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

from glasshead.extras import MissingLibraryError
from glasshead.message import Message, _
from glasshead.out_of_memory import is_out_of_memory
from glasshead.refusals import is_refusal

if TYPE_CHECKING:
    from glasshead.explanation.translations import Say

__all__ = ["main"]

_DONE, _CLOSED_PIPE, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 128 + signal.SIGINT
_IMPORTING = "<frozen importlib._bootstrap>"

_TOO_LARGE = (
    "this takes more memory than there is. Give it fewer tokens, or a smaller model or batch."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Bad input, which the package raises as ValueError, TypeError or OSError, becomes one line on
    standard error and the code 2. A bug shows its traceback. An interruption gives 130; a closed
    pipe, as of `head`, or a closed standard output gives 1 without a message.

    Args:
        arguments: The arguments after the program's name; those of the process if not given.

    >>> main(["--version"])
    glasshead 0.1.0
    0
    """
    if sys.stdout is None:
        return _CLOSED_PIPE
    try:
        if arguments is None:
            _keep_own_descriptors()
            _let_idle_threads_sleep()
        _check_output()
        _check_columns()
        with _interruptible() if arguments is None else nullcontext():
            code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _drop_output()
        return _refuse(_TOO_LARGE)
    except (ValueError, TypeError, OSError, MissingLibraryError) as error:
        _drop_output()
        if not is_refusal(error):
            raise
        return _refuse(_sentence(error), arguments)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    # Imported late, so that an interruption meets `main` from the first moment on.
    import typer

    from glasshead.cli.app import program

    words = sys.argv[1:] if arguments is None else arguments
    command = program(_spoken(words).language)
    try:
        code = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="glasshead",
            standalone_mode=False,
        )
    except _usage_error() as error:
        about = _command(error, words, command.commands)
        return _refuse(_usage(error, about), arguments)
    except typer.Abort:
        return _INTERRUPTED
    return code if isinstance(code, int) else _DONE


def _usage_error() -> Any:
    """Return the class of errors about how a command was written: older typers raise click's."""
    import typer

    if hasattr(typer, "TyperException"):
        return typer.TyperException
    return import_module("click").ClickException


@contextmanager
def _interruptible() -> Iterator[None]:
    """End this process on a Ctrl-C during an import; elsewhere, raise a KeyboardInterrupt.

    Libraries that start others from C, as torch does numpy, take a KeyboardInterrupt for a library
    that is missing, and go on without it: the interruption would be lost, or become a traceback.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _check_output() -> None:
    """Replace characters that the terminal's encoding lacks by question marks."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _keep_own_descriptors() -> None:
    """Keep descriptors 0 to 2 for what they are, and write to a copy of that of standard error.

    A file that is opened while one of them is closed would get its number, and what libraries and
    handlers write there. The number 2 is libraries' alone, so that what they write can be set aside
    while a bar is drawn.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free, which is this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is not None and sys.stderr.fileno() == 2:
        old = sys.stderr
        sys.stderr = os.fdopen(
            os.dup(2), "w", buffering=1, encoding=old.encoding, errors=old.errors
        )


def _let_idle_threads_sleep() -> None:
    """Have OpenMP put idle threads to sleep soon, unless the user chose otherwise.

    By default they spin for long, and take the processors from those who work: where other
    programs run too, training takes many times as long. Asleep at once they would wake too late on
    a quiet machine. OpenMP of GNU reads it when torch is loaded, and child processes inherit it.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _check_columns() -> None:
    """Replace a COLUMNS that is no width by 80: with 0, rich would print nothing, not even help."""
    written = os.environ.get("COLUMNS")
    if written and (not re.fullmatch("[0-9]{1,6}", written) or int(written) == 0):
        os.environ["COLUMNS"] = "80"


def _refuse(sentence: str, arguments: Sequence[str] | None = None) -> int:
    """Write a sentence to standard error, in the language of the output if it can be translated."""
    if sys.stderr is not None:
        from glasshead.drawing.printable import one_line

        line = f"glasshead: error: {one_line(sentence)}"
        if isinstance(sentence, Message):
            say = _spoken(sys.argv[1:] if arguments is None else arguments)
            line = say("glasshead: error: {sentence}", sentence=one_line(say.translated(sentence)))
        sys.stderr.write(f"{line}\n")
    return _BAD_INPUT


def _spoken(arguments: Sequence[str]) -> "Say":
    """Return the translator to the language of --lang, or else of the environment."""
    from glasshead.cli.output import spoken

    asked = None
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if before == "--lang":
            asked = argument
        elif argument.startswith("--lang="):
            asked = argument.removeprefix("--lang=")
    try:
        return spoken(asked)
    except ValueError:
        return spoken(None)


def _sentence(error: ValueError | TypeError | OSError | MissingLibraryError) -> str:
    """Return an error's message; of an OSError of the system, its file and reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the output cannot be written'}: {error.strerror}."
    first = error.args[0] if len(error.args) == 1 else None
    return first if isinstance(first, Message) else str(error)


def _command(error: Exception, arguments: Sequence[str], commands: Container[str]) -> str:
    """Return the command that an error of usage is about, as the user types it."""
    context: Any = getattr(error, "ctx", None)
    if context is not None:
        return context.command_path
    # An option that lacks its value is found before there is a context of the command.
    first = next(iter(arguments), "")
    return f"glasshead {first}" if first in commands else "glasshead"


# What typer, and click before it, say of how a command was written.
_USAGE = (
    _("No such option: {option} (Possible options: {names})"),
    _("No such option {option}. (Did you mean one of: {names}?)"),
    _("No such option {option}. Did you mean {alike}?"),
    _("No such option: {option}"),
    _("No such option {option}"),
    _("No such command {name}. Did you mean {alike}?"),
    _("No such command {name}"),
    _("Missing argument {name}"),
    _("Missing option {name}"),
    _("Missing command"),
    _("Option {option} requires an argument"),
    _("Option {option} does not take a value"),
    _("Got unexpected extra argument(s) ({words})"),
    _("Invalid value for {name}: {why}"),
)


def _usage(error: Any, command: str) -> str:
    """Return an error of usage as a message, and where to read on."""
    written = error.format_message()
    message = _as_message(written, error.message)
    if written.endswith("?"):
        return Message("{message} See {command} --help.", message=message, command=command)
    return Message("{message}; see {command} --help.", message=message, command=command)


def _as_message(written: str, why: str) -> Message:
    """Find the sentence that an error of usage is; one that is not known stays in English."""
    for sentence in _USAGE:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(sentence))
        found = re.fullmatch(pattern, written.removesuffix("."))
        if found:
            places = found.groupdict()
            if isinstance(why, Message):
                places["why"] = why
            return Message(sentence, **places)
    return Message("{written}", written=written.removesuffix("."))


def _drop_output() -> None:
    """Flush or drop the output buffer, which Python would fail to write again at exit."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (AttributeError, OSError, ValueError):
            sys.stdout = None
