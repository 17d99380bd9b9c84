"""The command `observe`: statistics of an attention, or of a model over texts."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from os.path import realpath
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, shown
from glasshead.cli.inputs.messages import check_extra, one_of, quoted, whole_number
from glasshead.cli.output import (
    OBSERVATION,
    OUTPUT,
    PAGE,
    Width,
    check_apart,
    check_target,
    check_width,
)
from glasshead.cli.recipe_options import Band, parse_mask
from glasshead.cli.statistic_options import DEFAULT, STATISTICS, StatisticOption, parse_statistics


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user wrote; the fields are the options of the command."""

    stat: tuple[str, ...] = ()
    layer: int | None = None
    head: int | None = None
    save: Path | None = None
    html: Path | None = None
    width: int | None = None

    def statistics(self) -> tuple[StatisticOption, ...]:
        """The statistics that are asked for; none where the choice is ours."""
        return parse_statistics(self.stat)

    def check_outputs(self, sources: Iterable[Path | None]) -> None:
        """Raise where an option of the output is wrong by itself.

        Args:
            sources: The files that are read, which are not to be written.

        Errors: a ValueError or an OSError that names the option.
        """
        if self.head is not None and self.head < 0:
            raise ValueError(f"--head takes a head, counted from 0, and got {self.head}.")
        check_width(self.width)
        sources = tuple(sources)
        for kind, path in ((PAGE, self.html), (OBSERVATION, self.save)):
            if path is not None:
                check_target(path, kind)
                check_apart(path, sources, kind)
        # Links may lead in a circle, which Path.resolve does not bear.
        if self.html and self.save and realpath(self.html) == realpath(self.save):
            raise ValueError(
                f"--html and --save take a file each, and both got {shown(self.html)}: name two."
            )


def check_place(noun: str, place: int | None, count: int) -> None:
    """Raise a ValueError where there is no such head, or layer, among `count`.

    >>> check_place("head", 4, 4)
    Traceback (most recent call last):
    ValueError: --head takes a head from 0 to 3, and got 4: there are 4 heads.
    """
    if place is not None and place >= count:
        there = f"is one {noun}" if count == 1 else f"are {count} {noun}s"
        raise ValueError(
            f"--{noun} takes a {noun} from 0 to {count - 1}, and got {place}: there {there}."
        )


# By name, so that options are checked before torch is there.
ENGINES = ("auto", "fused", "streaming", "reference")


@dataclass(frozen=True, kw_only=True)
class ObserveRequest(Options):
    """What the user wrote to have one attention observed."""

    text: str | None = None
    vectors: Path | None = None
    mask: str = "none"
    engine: str = "auto"

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        self.bands()
        self.statistics()
        one_of(self.engine, ENGINES, "--engine")
        if self.layer is not None:
            raise ValueError(
                "--layer takes a layer of a model, which here is none: name the folder of a run, "
                "and add --text FILE."
            )
        self.check_outputs([self.vectors])

    def bands(self) -> tuple[Band, ...]:
        """The mask that is asked for."""
        return parse_mask(self.mask)

    def execute(self) -> None:
        """Observe, write and print."""
        from glasshead.cli.observing import run

        run(self)


# What it tells each of them.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def rank_from_environment(name: str, default: str = "") -> int:
    """A number that the launcher tells by a variable of the environment.

    Errors: a ValueError where it is none.
    """
    told = os.environ.get(name, default)
    if not told.isdecimal():
        raise ValueError(
            f"the launcher tells a whole number by {name}, and it is {told!r}: start with torchrun."
        )
    return int(told)


def started_together() -> int:
    """How many processes were started to do one work; 0 for one that is alone.

    >>> started_together()
    0
    """
    if not all(os.environ.get(name) for name in _TOLD):
        return 0
    count = rank_from_environment("WORLD_SIZE")
    return count if count > 1 else 0


# It names keys, and those of one piece are not those of the next.
_OF_ONE_TEXT = "top-k"


@dataclass(frozen=True, kw_only=True)
class ObserveRunRequest(Options):
    """What the user wrote to have a model observed; the last three belong to one attention."""

    run: str | None
    text: Path
    vectors: Path | None = None
    mask: str | None = None
    engine: str | None = None
    length: int | str | None = None
    truncate: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the model."""
        return Path(self.run or "")

    @cached_property
    def of_huggingface(self) -> bool:
        """Whether the folder is that of a model of Hugging Face."""
        from glasshead.tasks.run_folder import is_of_huggingface

        return is_of_huggingface(self.folder)

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Of several processes that torchrun has started, one may find wrong what others do not; they
        check it in `execute`, where they can tell each other.

        Errors: a ValueError or an OSError that names the option.
        """
        if not started_together():
            self.check_options()

    def check_options(self) -> None:
        """The same in any case."""
        if not self.run:
            raise ValueError(
                "--text takes the folder of a run whose model reads it: name it, as in glasshead "
                f"observe RUN --text {shown(self.text)}."
            )
        for option, why in self._of_one_attention():
            raise ValueError(f"{option} does not go with --text, as {why}: leave one out.")
        self.statistics()
        if self.truncate and self.length != "whole":
            raise ValueError(
                "--truncate cuts texts that are read whole: add --length whole, or leave it out."
            )
        if self.head is not None and self.layer is None:
            raise ValueError(
                "--head takes the layer that the head is in, too: add --layer N, or leave it out."
            )
        if self.layer is not None and self.layer < 0:
            raise ValueError(f"--layer takes a layer, counted from 0, and got {self.layer}.")
        self.check_outputs([*self._texts(), *self._files_of_the_model()])
        if self.of_huggingface:
            check_extra("hf", "glasshead observe MODEL")
        else:
            check_extra("train", "glasshead observe RUN")

    def statistics(self) -> tuple[StatisticOption, ...]:
        """The statistics that are asked for, or else those of one attention that a model has too.

        Errors: as of `parse_statistics`, and a ValueError for what only one text has.
        """
        asked = parse_statistics(
            self.stat or [name for name in DEFAULT if not name.startswith(_OF_ONE_TEXT)]
        )
        for one in asked:
            if one.form is STATISTICS[_OF_ONE_TEXT]:
                others = ", ".join(name for name in STATISTICS if name != _OF_ONE_TEXT)
                raise ValueError(
                    f"--stat {one.written} names the keys of one text, and a model reads many "
                    f"pieces: take {others}."
                )
        return asked

    def execute(self) -> None:
        """Observe, write and print."""
        from glasshead.cli.observing_texts import run

        run(self)

    def _of_one_attention(self) -> Iterator[tuple[str, str]]:
        """The options that are given in vain, and why."""
        if self.vectors is not None:
            yield "--vectors", "the model makes its own vectors"
        if self.mask is not None:
            yield "--mask", "the model has its own mask"
        if self.engine is not None:
            yield "--engine", "the model chooses its own engine"

    def _texts(self) -> list[Path]:
        from glasshead.cli.text_chunks import text_files

        return text_files(self.text)

    def _files_of_the_model(self) -> list[Path]:
        from glasshead.tasks.run_folder import RunFolder

        own = list(self.folder.iterdir()) if self.folder.is_dir() else []
        return [*own, RunFolder(self.folder).checkpoint]


_SUBJECT, _RECIPE = "What is observed", "The attention"


def observe(
    subject: Annotated[
        str | None,
        Argument(
            metavar="TEXT|MODEL",
            show_default=False,
            help="A sentence, whose words get made-up vectors, or those of --vectors. With --text, "
            "the folder of a run of train write, or of a text model of Hugging Face, with its "
            "config.json, its tokenizer and its weights as safetensors. Without any and without "
            "--vectors: the worked example of the texts.",
        ),
    ] = None,
    *,
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="A text that MODEL reads, while each of its attentions is observed: plain, the "
            "texts of a .jsonl, .csv or .tsv, or a folder of such files. Started by torchrun, each "
            "process reads its share.",
        ),
    ] = None,
    length: Annotated[
        str | None,
        Option(
            metavar="N|whole",
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="How many tokens MODEL reads at once, of all texts one after another; whole: each "
            "text on its own. If not given, as many as it can, at most 1024.",
        ),
    ] = None,
    truncate: Annotated[
        bool,
        Option(
            "--truncate",
            rich_help_panel=_SUBJECT,
            help="With --length whole: cut a text that is longer than MODEL reads at once to what "
            "it reads, and tell how many were cut. If not given, such a text is refused.",
        ),
    ] = False,
    vectors: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="A safetensors file with query, key and perhaps value, \\[length, dim], \\[heads, "
            "length, dim] or \\[batch, heads, length, dim]; or tokens with their vectors, as "
            "explain takes them, where - reads standard input.",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        Option(
            metavar="M",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="What a query sees: none hides nothing; causal: nothing later; window:3: itself "
            "and 3 before; window:3:1: and 1 after; causal+window:3:1: what both show. If not "
            "given: none; a model has its own.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        Option(
            metavar="E",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="What computes it: auto, the fastest; fused, streaming or reference. If not "
            "given: auto; a model has its own.",
        ),
    ] = None,
    stat: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="A statistic, and again for each more: entropy, max-weight, mean-distance, "
            "received or received:16 (by the last 16 queries), mass-on:0,1 (on these keys), "
            "top-k:3 (not of a model), log-sum-exp, max-score, distance-histogram:0,1,8,inf. If "
            "not given, the first six.",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=OUTPUT,
            help="Which layer's keys and map are drawn, from 0, of a model. If not given, the mean "
            "over all.",
        ),
    ] = None,
    head: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=OUTPUT,
            help="Which head's keys and map are drawn, from 0. If not given, the mean over all.",
        ),
    ] = None,
    save: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also write the observation, as safetensors, for gh.load in Python, which gives a "
            "gh.Observation. Of a model it gives a gh.CorpusResult: the means, \\[heads, …], such "
            "as those of blocks.0.attention.entropy, and the tokens where FILE is one text.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also write one self-contained page; folders are made as needed.",
        ),
    ] = None,
    width: Width = None,
) -> None:
    """Observe attention: one of any length, or every one of a model while it reads a text."""
    options: dict[str, Any] = {
        "stat": tuple(stat or ()),
        "layer": layer,
        "head": head,
        "vectors": input_file(vectors, "--vectors"),
        "save": output_file(save, "--save"),
        "html": output_file(html, "--html"),
        "width": width,
    }
    recipe = {"mask": mask, "engine": engine}
    options |= {name: written for name, written in recipe.items() if written is not None}
    file = input_file(text, "--text")
    if file is None:
        if length is not None:
            raise ValueError(
                "--length goes with --text, which a model reads: add it, or leave it out."
            )
        if truncate:
            raise ValueError(
                "--truncate goes with --text FILE and --length whole: add them, or leave it out."
            )
        request = ObserveRequest(text=subject, **options)
    else:
        options |= {"length": _length(length), "truncate": truncate}
        request = ObserveRunRequest(run=subject, text=file, **options)
    request.check()
    request.execute()


def _length(written: str | None) -> int | str | None:
    """The length of a piece.

    Errors: a ValueError where it is none.

    >>> _length("256"), _length("whole")
    (256, 'whole')
    """
    if written in (None, "whole"):
        return written
    if not re.fullmatch("[0-9]{1,9}", written) or int(written) == 0:
        raise ValueError(f"--length takes a number of tokens, or whole, and got {quoted(written)}.")
    return int(written)
