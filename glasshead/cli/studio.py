"""The command `studio`: serve a local page of a model's attention."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.messages import whole_number
from glasshead.cli.output import spoken
from glasshead.explanation.choices import quoted
from glasshead.extras import is_installed, require
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model
from glasshead.tasks.story_model import FOLDER

if TYPE_CHECKING:
    from glasshead.studio.studio import Studio

_DEMO = Path("demo/translator")
_PORTS = range(2**16)


def studio(
    models: Annotated[
        list[str] | None,
        Argument(
            metavar="[RUN_OR_HF_DIR]",
            show_default=False,
            help="A run folder; the folder of a Hugging Face or llama2.c text model; a llama2.c "
            "model file (.bin, with its tokenizer next to it); or a .safetensors file "
            "written by Weights.save. Default: the translator of glasshead demo if it exists, or "
            "else the story model that comes with glasshead. Further models are compared with the "
            "first, head by head; further runs are drawn into its training curves.",
        ),
    ] = None,
    *,
    host: Annotated[
        str,
        Option(
            metavar="ADDRESS",
            help="Address to listen on. For any address other than loopback, the URL contains a "
            "token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        Option(metavar="N", parser=whole_number, help="Port to listen on; 0 chooses a free port."),
    ] = 0,
    tour: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Begin with a tour: a JSON file of stops, each with a place such as #steps and a "
            "sentence.",
        ),
    ] = None,
    opens: Annotated[
        bool, Option("--open/--no-open", help="Open the studio in the browser.")
    ] = True,
) -> None:
    """Open the studio: a local page that shows the attention of three words, a model or a book."""
    model, *others = models or [None]
    for each in (model, *others):
        check_options(each, host, port)
    other_folders = [Path(other) for other in others if other is not None]
    from glasshead.studio.app import serve
    from glasshead.studio.studio import Studio
    from glasshead.studio.tour import read_tour

    given = None if tour is None else read_tour(tour)
    served = Studio(_folder(model), other_folders=other_folders, tour=given)
    if other_folders:
        _check_all_read(served)
    # What cannot be shown is refused here, before a page opens to say it.
    if served.subject.kind == "weights":
        served.subject.weights()
    with _exiting_at_once():
        serve(served, host=host, port=port, opens=opens, announce=_print_address)


def _check_all_read(served: "Studio") -> None:
    """Check that several models all read texts.

    Errors: a ValueError or an OSError in one sentence if one does not.
    """
    for subject in (served.subject, *served.others):
        if subject.kind == "weights":
            raise ValueError(
                Message(
                    "models to compare must read a text, got {name}, which holds stored weights "
                    "alone. Name it alone.",
                    name=subject.name,
                )
            )


def check_options(model: str | None, host: str, port: int) -> None:
    """Check the options of `studio` before torch is imported.

    Errors: a ValueError or an OSError that names the option, or the library that is missing.
    """
    require("glasshead studio", "fastapi", "uvicorn")
    if port not in _PORTS:
        raise ValueError(
            Message(
                "--port must be a number from 0 to {largest}, got {port}. Use 0 for a free one.",
                largest=_PORTS[-1],
                port=port,
            )
        )
    if not host.strip():
        raise ValueError(
            Message(
                "--host must be an address of this machine, got none. Use 0.0.0.0 for all of them."
            )
        )
    if model is not None and not _is_one(Path(model)):
        raise FileNotFoundError(
            Message(
                "RUN_OR_HF_DIR must be the folder of a run or a model, a .bin file of llama2.c, or "
                "a .safetensors file of weights, got {model}. Check its name, or omit it.",
                model=quoted(model),
            )
        )
    folder = _folder(model)
    # A file of stored weights takes no other library.
    if folder is not None and (folder.is_dir() or folder.suffix == ".bin"):
        require_for_model(folder, "glasshead studio RUN_OR_HF_DIR")


def _folder(model: str | None) -> Path | None:
    if model is not None:
        return Path(model)
    if (_DEMO / "config.json").is_file():
        return _DEMO
    # Without the library that reads its tokenizer, the studio works the example.
    return FOLDER if is_installed("tokenizers") else None


def _print_address(url: str) -> None:
    say = spoken(None)
    typer.echo(say("The studio is at {url}", url=url))
    if "?token=" in url:
        typer.echo(say("Anyone who has this address can open it, also from other machines."))
    typer.echo(say("Press Ctrl-C to stop it."))
    sys.stdout.flush()


def _is_one(path: Path) -> bool:
    return path.is_dir() or (path.suffix in (".safetensors", ".bin") and path.is_file())


_PATIENCE = 0.5


@contextmanager
def _exiting_at_once() -> Iterator[None]:
    """Exit the process on an interruption if a thread does not end soon by itself.

    A thread deep in a product of matrices sees no interruption; Python would wait for it, or take
    its interpreter away under it.
    """
    try:
        yield
    except KeyboardInterrupt:
        if _threads_remain():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(128 + signal.SIGINT)
        raise


def _threads_remain() -> bool:
    """Wait a moment for other threads, and return whether one is still alive."""
    end = time.monotonic() + _PATIENCE
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    return any(thread.is_alive() for thread in others)
