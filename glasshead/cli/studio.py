"""The command `studio`: a local page of a model's attention."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.messages import check_extra, check_extra_of, quoted, whole_number

_DEMO = Path("demo/translator")
_PORTS = range(2**16)


@dataclass(frozen=True, kw_only=True)
class StudioRequest:
    """What the user wrote; the fields are the options of the command."""

    model: str | None
    host: str
    port: int
    opens: bool

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        check_extra("studio", "glasshead studio")
        if self.port not in _PORTS:
            raise ValueError(
                f"--port takes a number from 0 to {_PORTS[-1]}, and got {self.port}: take 0."
            )
        if not self.host.strip():
            raise ValueError(
                "--host takes an address of this machine, and got none: take 0.0.0.0 "
                "for all of them."
            )
        if self.model is not None and not _is_one(Path(self.model)):
            raise FileNotFoundError(
                f"glasshead studio takes the folder of a run or a model, or a .safetensors file of "
                f"weights, and {quoted(self.model)} is none: check its name, or name none."
            )
        self._check_libraries()

    def execute(self) -> None:
        """Serve until interrupted."""
        from glasshead.cli.exits import leaving_at_once
        from glasshead.studio.server.serving import serve
        from glasshead.studio.studio import Studio

        folder = self._folder()
        studio = Studio(folder)
        # What is no run is told here, before a page opens to say it.
        _ = studio.subject.kind
        with leaving_at_once():
            serve(studio, host=self.host, port=self.port, opens=self.opens, told=self._tell)

    def _check_libraries(self) -> None:
        """Raise where what opens the model is not installed; stored weights take nothing more."""
        folder = self._folder()
        if folder is not None and folder.is_dir():
            check_extra_of(folder, "glasshead studio RUN_OR_HF_DIR")

    def _folder(self) -> Path | None:
        if self.model is not None:
            return Path(self.model)
        return _DEMO if (_DEMO / "config.json").is_file() else None

    def _tell(self, url: str) -> None:
        typer.echo(f"The studio is at {url}")
        if "?token=" in url:
            typer.echo("Whoever has this address can open it, from other machines too.")
        typer.echo("Ctrl-C ends it.")
        sys.stdout.flush()


def _is_one(path: Path) -> bool:
    return path.is_dir() or (path.suffix == ".safetensors" and path.is_file())


def studio(
    model: Annotated[
        str | None,
        Argument(
            metavar="[RUN_OR_HF_DIR]",
            show_default=False,
            help="The folder of a run, or of a text model of Hugging Face; or a .safetensors file "
            "that Weights.save has written. If not given, the run of the demo where there is one, "
            "and the worked example.",
        ),
    ] = None,
    *,
    host: Annotated[
        str,
        Option(
            metavar="ADDRESS",
            help="Where to listen; another than this machine's own gets a token into the URL.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, Option(metavar="N", parser=whole_number, help="On which port; 0: any that is free.")
    ] = 0,
    opens: Annotated[bool, Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """Open a page on which attention can be seen, of three words, a model, or a whole book."""
    request = StudioRequest(model=model, host=host, port=port, opens=opens)
    request.check()
    request.execute()
