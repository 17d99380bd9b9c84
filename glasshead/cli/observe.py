"""The command `observe`: statistics of an attention, or of a model over texts."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from glasshead.cli.attention_options import (
    DEFAULT,
    STATISTICS,
    StatisticOption,
    parse_mask,
    parse_statistics,
)
from glasshead.cli.inputs.files import check_sentence, input_file, output_file, shown
from glasshead.cli.inputs.messages import check_task, one_of, print_stderr, quoted, whole_number
from glasshead.cli.output import (
    OBSERVATION,
    OUTPUT,
    PAGE,
    Html,
    Lang,
    Width,
    check_language,
    check_outputs,
    check_width,
    going_on,
    in_language,
    print_drawing,
    spoken,
    write_page,
)
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from glasshead.drawing import Document

# By name, so that options are checked before torch is there.
ENGINES = ("auto", "fused", "streaming", "reference")
# It names keys, and those of one sequence are not those of the next.
_OF_ONE_TEXT = "top-k"
_SUBJECT, _RECIPE = "Input and statistics", "The attention"


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
            help="Tokens per sequence, cut from all texts concatenated; whole: one sequence per "
            "text. If not given, the context of MODEL, at most 1024.",
        ),
    ] = None,
    truncate: Annotated[
        bool,
        Option(
            "--truncate",
            rich_help_panel=_SUBJECT,
            help="With --length whole: truncate a text that is longer than the context of MODEL, "
            "and count such texts. If not given, such a text is an error.",
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
            help="Attention mask: none; causal; window:3: each query's own key and 3 before; "
            "window:3:1: and 1 after; causal+window:3:1: the keys that both show. If not given: "
            "none; a model has its own.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        Option(
            metavar="E",
            show_default=False,
            rich_help_panel=_RECIPE,
            help="Engine: auto, the fastest; fused, streaming or reference. If not given: auto; a "
            "model has its own.",
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
            help="Layer whose keys and map are drawn, from 0, of a model. If not given, the mean "
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
            help="Head whose keys and map are drawn, from 0. If not given, the mean over all.",
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
    resume: Annotated[
        bool,
        Option(
            "--resume",
            rich_help_panel=OUTPUT,
            help="With --text and --save FILE: go on where a run was interrupted, by the sums that "
            "it keeps in FILE.partial every ten seconds.",
        ),
    ] = False,
    html: Html = None,
    width: Width = None,
    lang: Lang = None,
) -> None:
    """Observe attention: one of any length, or every one of a model while it reads a text."""
    vectors_file = input_file(vectors, "--vectors")
    check_language(lang)
    outputs = _Outputs(output_file(save, "--save"), output_file(html, "--html"), width, lang)
    text_file = input_file(text, "--text")
    statistics = tuple(stat or ())
    if text_file is not None:
        _observe_model(
            subject,
            text_file,
            statistics,
            length=_length(length),
            truncate=truncate,
            layer=layer,
            head=head,
            outputs=outputs,
            resume=resume,
            check_given=partial(_check_none_given, vectors=vectors, mask=mask, engine=engine),
        )
        return
    if length is not None:
        raise ValueError(
            Message("--length goes with --text, which a model reads: add it, or leave it out.")
        )
    if truncate:
        raise ValueError(
            Message(
                "--truncate goes with --text FILE and --length whole: add them, or leave it out."
            )
        )
    if resume:
        raise ValueError(
            Message(
                "--resume goes with --text FILE, which a model reads, and --save: add "
                "them, or leave it out."
            )
        )
    if vectors_file is None:
        check_sentence(subject)
    bands = parse_mask("none" if mask is None else mask)
    asked = parse_statistics(statistics)
    engine = one_of("auto" if engine is None else engine, ENGINES, "--engine")
    if layer is not None:
        raise ValueError(
            Message(
                "--layer takes a layer of a model, which here is none: name the folder "
                "of a run, and add --text FILE."
            )
        )
    outputs.check(head, [vectors_file])
    from glasshead.cli.observe_attention import observed, report, subject_of

    with going_on("Observing…"):
        inputs = subject_of(subject, vectors_file)
        found = observed(inputs, asked, bands=bands, engine=engine, head=head)
    outputs.write(report(found, head), found.seen.save)


def _observe_model(
    run: str | None,
    text: Path,
    statistics: tuple[str, ...],
    *,
    length: int | str | None,
    truncate: bool,
    layer: int | None,
    head: int | None,
    outputs: "_Outputs",
    resume: bool,
    check_given: Callable[[], None],
) -> None:
    """Observe every attention of a model while it reads a text."""
    from glasshead.tasks.data.tables import text_files
    from glasshead.tasks.readers.distributed import world_size

    folder = Path(run or "")
    save_to = outputs.save
    kept = None if save_to is None else save_to.with_name(f"{save_to.name}.partial")

    def checked_statistics() -> tuple[StatisticOption, ...]:
        if not run:
            raise ValueError(
                Message(
                    "--text takes the folder of a run whose model reads it: name it, as in "
                    "glasshead observe RUN --text {path}.",
                    path=shown(text),
                )
            )
        check_given()
        asked = _model_statistics(statistics)
        if truncate and length != "whole":
            raise ValueError(
                Message(
                    "--truncate cuts texts that are read whole: add --length whole, or "
                    "leave it out."
                )
            )
        if head is not None and layer is None:
            raise ValueError(
                Message(
                    "--head takes the layer that the head is in, too: add --layer N, or "
                    "leave it out."
                )
            )
        if layer is not None and layer < 0:
            raise ValueError(
                Message("--layer takes a layer, counted from 0, and got {layer}.", layer=layer)
            )
        outputs.check(head, [*text_files(text), *_model_files(folder)])
        _check_partial(kept, resume=resume)
        require_for_model(folder, "glasshead observe MODEL", "torchmetrics")
        check_task(folder, "write", "observe")
        return asked

    # Of several processes, one may find wrong what others do not; they check the options where
    # they can tell each other.
    processes = world_size()
    asked = () if processes else checked_statistics()
    from glasshead.cli.observe_model import HeadChoice, left_out, observe_model, report, save

    observed = observe_model(
        folder,
        text,
        checked_statistics if processes else lambda: asked,
        length=length,
        truncate=truncate,
        choice=HeadChoice(layer, head),
        partial=kept,
    )
    if observed is not None:
        outputs.write(report(observed), partial(save, observed))
        for sentence in left_out(observed.pieces, observed.reader):
            print_stderr(spoken(outputs.lang).told(sentence))


def _check_partial(kept: Path | None, *, resume: bool) -> None:
    """Check --resume against what an interrupted run has left.

    Errors: a ValueError where there is nothing to go on with, or what is there would be lost.
    """
    if kept is None:
        if resume:
            raise ValueError(
                Message(
                    "--resume goes on with what an interrupted run kept beside its --save "
                    "FILE: add --save, or leave it out."
                )
            )
        return
    if resume and not kept.exists():
        raise ValueError(
            Message("--resume finds no {path}: leave it out to begin.", path=shown(kept))
        )
    if kept.exists() and not resume:
        raise ValueError(
            Message(
                "{path} is there, of a run that was interrupted: add --resume to go on "
                "with it, or delete it to begin anew.",
                path=shown(kept),
            )
        )


@dataclass(frozen=True)
class _Outputs:
    """The files to write, and the width of the printed text."""

    save: Path | None
    html: Path | None
    width: int | None
    lang: str | None = None

    def check(self, head: int | None, sources: Iterable[Path | None]) -> None:
        """Check the options of the output, given the files that are read.

        Errors: a ValueError or an OSError that names the option.
        """
        if head is not None and head < 0:
            raise ValueError(
                Message("--head takes a head, counted from 0, and got {head}.", head=head)
            )
        check_width(self.width)
        check_outputs([(PAGE, self.html), (OBSERVATION, self.save)], sources)

    def write(self, document: "Document", save: Callable[[Path], None]) -> None:
        """Write the files, print the document, then print where the files are.

        Errors: an OSError where a file cannot be written. Then nothing was printed.
        """
        say = spoken(self.lang)
        document = in_language(document, say)
        if self.save is not None:
            self.save.parent.mkdir(parents=True, exist_ok=True)
            save(self.save)
        if self.html is not None:
            write_page(self.html, document.html())
        print_drawing(document, self.width)
        if self.save is not None:
            print_stderr(say("The observation is at {place}", place=shown(self.save)))
        if self.html is not None:
            print_stderr(say("The page is at {place}", place=shown(self.html)))


def _check_none_given(*, vectors: str | None, mask: str | None, engine: str | None) -> None:
    """Raise a ValueError for options of one attention, which a model does not take."""
    for option, written, why in (
        ("--vectors", vectors, Message("the model makes its own vectors")),
        ("--mask", mask, Message("the model has its own mask")),
        ("--engine", engine, Message("the model chooses its own engine")),
    ):
        if written is not None:
            raise ValueError(
                Message(
                    "{option} does not go with --text, as {why}: leave one out.",
                    option=option,
                    why=why,
                )
            )


def _model_statistics(written: tuple[str, ...]) -> tuple[StatisticOption, ...]:
    """Parse the statistics of a model; by default, those of one attention that a model has too.

    Errors: as of `parse_statistics`, and a ValueError for a statistic that only one text has.
    """
    asked = parse_statistics(
        written or [name for name in DEFAULT if not name.startswith(_OF_ONE_TEXT)]
    )
    for one in asked:
        if one.form is STATISTICS[_OF_ONE_TEXT]:
            others = ", ".join(name for name in STATISTICS if name != _OF_ONE_TEXT)
            raise ValueError(
                Message(
                    "--stat {written} names the keys of one text, and a model reads many "
                    "pieces: take {others}.",
                    written=one.written,
                    others=others,
                )
            )
    return asked


def _model_files(folder: Path) -> list[Path]:
    from glasshead.tasks.run_folder import RunFolder

    own = list(folder.iterdir()) if folder.is_dir() else []
    return [*own, RunFolder(folder).checkpoint]


def _length(written: str | None) -> int | str | None:
    """Parse the number of tokens per sequence, or "whole".

    Errors: a ValueError where it is none.

    >>> _length("256"), _length("whole")
    (256, 'whole')
    """
    if written in (None, "whole"):
        return written
    if not re.fullmatch("[0-9]{1,9}", written) or int(written) == 0:
        raise ValueError(
            Message(
                "--length takes a number of tokens, or whole, and got {written}.",
                written=quoted(written),
            )
        )
    return int(written)
