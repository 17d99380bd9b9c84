"""The command `observe`: statistics of an attention, or of a model over texts."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from glasshead.cli.inputs.files import (
    STANDARD_INPUT,
    check_partial,
    check_sentence,
    input_file,
    output_file,
    read_text,
    shown,
)
from glasshead.cli.inputs.messages import check_task, print_stderr
from glasshead.cli.observe_options import (
    EngineOption,
    FilesFrom,
    Head,
    Layer,
    LengthOfPiece,
    MaskOption,
    Resume,
    Save,
    Statistics,
    Subject,
    Text,
    Truncate,
    Vectors,
)
from glasshead.cli.output import (
    OBSERVATION,
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
from glasshead.cli.statistic_options import (
    DEFAULT,
    STATISTICS,
    StatisticOption,
    parse_statistics,
)
from glasshead.explanation.choices import one_of, quoted
from glasshead.message import Message
from glasshead.recipe.mask_text import check_mask_text
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from glasshead.drawing import Document

# By name, so that options are checked before torch is there.
ENGINES = ("auto", "fused", "streaming", "reference")
# It names keys, and those of one sequence are not those of the next.
_OF_ONE_TEXT = "top-k"


def observe(
    subject: Subject = None,
    *,
    text: Text = None,
    files_from: FilesFrom = None,
    length: LengthOfPiece = None,
    truncate: Truncate = False,
    vectors: Vectors = None,
    mask: MaskOption = None,
    engine: EngineOption = None,
    stat: Statistics = None,
    layer: Layer = None,
    head: Head = None,
    save: Save = None,
    resume: Resume = False,
    html: Html = None,
    width: Width = None,
    lang: Lang = None,
) -> None:
    """Observe one attention of any length, or every attention of a model that reads texts."""
    vectors_file = input_file(vectors, "--vectors")
    check_language(lang)
    outputs = _Outputs(output_file(save, "--save"), output_file(html, "--html"), width, lang)
    of_model = _ModelOptions(
        texts=_text_files(text, files_from),
        length=_length(length),
        truncate=truncate,
        layer=layer,
        resume=resume,
    )
    statistics = tuple(stat or ())
    if of_model.texts:
        check_given = partial(_check_none_given, vectors=vectors, mask=mask, engine=engine)
        _observe_model(subject, of_model, statistics, head, outputs, check_given)
        return
    of_model.check_none_given()
    if vectors_file is None:
        check_sentence(subject)
    mask = check_mask_text("none" if mask is None else mask, "--mask")
    asked = parse_statistics(statistics)
    engine = one_of("auto" if engine is None else engine, ENGINES, "--engine")
    of_model.check_no_layer()
    outputs.check(head, [vectors_file])
    from glasshead.cli.observe_attention import observed, report, subject_of

    with going_on("Observing…"):
        inputs = subject_of(subject, vectors_file)
        found = observed(inputs, asked, mask=mask, engine=engine, head=head)
    outputs.write(report(found, head), found.seen.save)


@dataclass(frozen=True)
class _ModelOptions:
    """Options of a model that reads texts."""

    texts: list[Path]
    length: int | str | None
    truncate: bool
    layer: int | None
    resume: bool

    def check(self, head: int | None) -> None:
        """Check the options that do not depend on files.

        Errors: a ValueError that names the option.
        """
        if self.truncate and self.length != "whole":
            raise ValueError(
                Message("--truncate needs --length whole. Add it, or omit --truncate.")
            )
        if head is not None and self.layer is None:
            raise ValueError(Message("--head needs --layer. Add --layer N, or omit --head."))
        if self.layer is not None and self.layer < 0:
            raise ValueError(
                Message("--layer must be a layer, counted from 0, got {layer}.", layer=self.layer)
            )

    def check_none_given(self) -> None:
        """Check that none but the layer is given, where no model reads.

        Errors: a ValueError that names the option.
        """
        if self.length is not None:
            raise ValueError(Message("--length needs --text. Add --text FILE, or omit --length."))
        if self.truncate:
            raise ValueError(
                Message(
                    "--truncate needs --text FILE and --length whole. Add them, or omit --truncate."
                )
            )
        if self.resume:
            raise ValueError(
                Message("--resume needs --text FILE and --save. Add them, or omit --resume.")
            )

    def check_no_layer(self) -> None:
        """Raise a ValueError if a layer is given, and no model reads."""
        if self.layer is not None:
            raise ValueError(
                Message("--layer needs a model. Name the folder of a run, and add --text FILE.")
            )


def _observe_model(
    run: str | None,
    options: _ModelOptions,
    statistics: tuple[str, ...],
    head: int | None,
    outputs: "_Outputs",
    check_given: Callable[[], None],
) -> None:
    """Observe every attention of a model while it reads texts."""
    from glasshead.tasks.readers.distributed import world_size

    folder = Path(run or "")

    def checked_statistics() -> tuple[StatisticOption, ...]:
        _check_names_a_run(run, options)
        check_given()
        asked = _model_statistics(statistics)
        options.check(head)
        _check_files(folder, options, head, outputs)
        require_for_model(folder, "glasshead observe MODEL", "torchmetrics")
        check_task(folder, "write", "observe")
        return asked

    # Of several processes, one may find wrong what others do not; they check the options where
    # they can tell each other.
    processes = world_size()
    asked = () if processes else checked_statistics()
    from glasshead.cli.observe_model import (
        HeadChoice,
        observe_model,
        omitted,
        places,
        report,
        save,
    )

    observed = observe_model(
        folder,
        options.texts,
        checked_statistics if processes else lambda: asked,
        length=options.length,
        truncate=options.truncate,
        choice=HeadChoice(options.layer, head),
        partial=outputs.partial,
    )
    if observed is not None:
        outputs.write(report(observed), partial(save, observed))
        for sentence in (*places(observed), *omitted(observed.pieces, observed.reader)):
            print_stderr(spoken(outputs.lang).translated(sentence))


def _check_names_a_run(run: str | None, options: _ModelOptions) -> None:
    if not run:
        raise ValueError(
            Message(
                "--text needs the folder of a run whose model reads it. Name it, as in glasshead "
                "observe RUN --text {path}.",
                path=shown(options.texts[0]),
            )
        )


def _check_files(
    folder: Path, options: _ModelOptions, head: int | None, outputs: "_Outputs"
) -> None:
    """Check that what is written replaces nothing that is read."""
    from glasshead.tasks.readers.texts import files_of

    read = [file for text in options.texts for file in files_of(text)]
    outputs.check(head, [*read, *_model_files(folder)])
    check_partial(outputs.partial, "--save", resume=options.resume)


def _text_files(text: list[str] | None, files_from: str | None) -> list[Path]:
    """Return the files, folders and patterns that are read.

    Errors: a ValueError if a name is empty, or the list holds none.
    """
    given = [file for one in text or () if (file := input_file(one, "--text")) is not None]
    names = input_file(files_from, "--files-from")
    if names is None:
        return given
    from glasshead.tasks.readers.distributed import world_size

    if names == STANDARD_INPUT and world_size():
        raise ValueError(
            Message(
                "--files-from - reads standard input, which several processes do not share. Write "
                "the names to a file, and name that."
            )
        )
    listed = [Path(line) for line in read_text(names).splitlines() if line.strip()]
    if not listed:
        raise ValueError(
            Message(
                "--files-from must name a file with one file name per line, got none in {path}. "
                "Add some, or omit it.",
                path=shown(names),
            )
        )
    return [*given, *listed]


@dataclass(frozen=True)
class _Outputs:
    """The files to write, and the width of the printed text."""

    save: Path | None
    html: Path | None
    width: int | None
    lang: str | None = None

    @property
    def partial(self) -> Path | None:
        """The file of the sums so far, beside the observation."""
        return None if self.save is None else self.save.with_name(f"{self.save.name}.partial")

    def check(self, head: int | None, sources: Iterable[Path | None]) -> None:
        """Check the options of the output, given the files that are read.

        Errors: a ValueError or an OSError that names the option.
        """
        if head is not None and head < 0:
            raise ValueError(
                Message("--head must be a head, counted from 0, got {head}.", head=head)
            )
        check_width(self.width)
        check_outputs([(PAGE, self.html), (OBSERVATION, self.save)], sources)

    def write(self, document: "Document", save: Callable[[Path], None]) -> None:
        """Write the files, print the document, then print where the files are.

        Errors: an OSError if a file cannot be written. Then nothing was printed.
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
                    "{option} cannot be combined with --text, because {why}. Omit one of them.",
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
        if one.spelling is STATISTICS[_OF_ONE_TEXT]:
            others = ", ".join(name for name in STATISTICS if name != _OF_ONE_TEXT)
            raise ValueError(
                Message(
                    "--stat {written} names keys of one text, but a model reads many pieces. Use "
                    "{others}.",
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

    Errors: a ValueError if it is none.

    >>> _length("256"), _length("whole")
    (256, 'whole')
    """
    if written in (None, "whole"):
        return written
    if not re.fullmatch("[0-9]{1,9}", written) or int(written) == 0:
        raise ValueError(
            Message(
                "--length must be a number of tokens, or whole, got {written}.",
                written=quoted(written),
            )
        )
    return int(written)
