"""The command `roles`: find what each attention head of a model does."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, shown
from glasshead.cli.inputs.messages import check_extra, check_extra_of, print_stderr, whole_number
from glasshead.cli.output import (
    OUTPUT,
    Kind,
    Width,
    check_outputs,
    check_width,
    print_drawing,
    write_bytes,
)

_PICTURE = Kind("--png", "the picture", "roles.png")
_SCORES = Kind("--json", "the file of scores", "roles.json")
# Half as many bits as a seed of PyTorch may have at most.
_LARGEST_SEED = 2**32
_SUBJECT = "Test texts"


def roles(
    model: Annotated[
        str,
        Argument(
            metavar="MODEL",
            show_default=False,
            help="The folder of a run of train write, or of a text model of Hugging Face, with its "
            "config.json, its tokenizer and its weights as safetensors.",
        ),
    ],
    *,
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="Also score the heads on a text: plain, the texts of a .jsonl, .csv or .tsv, or a "
            "folder of such files.",
        ),
    ] = None,
    period: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="Number of random tokens that are repeated. If not given, 25, or as many as fit "
            "twice into the context of MODEL.",
        ),
    ] = None,
    seed: Annotated[
        int,
        Option(
            metavar="N",
            parser=whole_number,
            rich_help_panel=_SUBJECT,
            help="Random seed of the tokens.",
        ),
    ] = 0,
    png: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also draw all scores, layers × heads; folders are made as needed.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Also write all scores, as JSON."),
    ] = None,
    width: Width = None,
) -> None:
    """Find what each head of a model does, on repeated random tokens and on a text."""
    folder, text_file = Path(model), input_file(text, "--text")
    picture_file, scores_file = output_file(png, "--png"), output_file(json, "--json")
    if not model:
        raise ValueError("MODEL takes the folder of a model, and got nothing: name one.")
    if period is not None and period < 2:
        raise ValueError(f"--period takes a number of tokens from 2, and got {period}.")
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"--seed takes a number from 0 to 2^32, and got {seed}.")
    check_width(width)
    from glasshead.tasks.data.tables import text_files

    texts = [] if text_file is None else text_files(text_file)
    own = list(folder.iterdir()) if folder.is_dir() else []
    check_outputs([(_PICTURE, picture_file), (_SCORES, scores_file)], [*texts, *own])
    check_extra_of(folder, "glasshead roles MODEL")
    if picture_file is not None:
        check_extra("train", "glasshead roles --png", ("matplotlib",))
    from glasshead.cli.roles_report import picture, report, score_texts, scores_json
    from glasshead.tasks.readers.open_reader import open_reader

    reader = open_reader(folder)
    tests = score_texts(reader, text_file, period=period, seed=seed)
    if picture_file is not None:
        write_bytes(picture_file, picture(reader.name, tests), _PICTURE)
    if scores_file is not None:
        write_bytes(scores_file, scores_json(reader, tests).encode(), _SCORES)
    print_drawing(report(reader.name, tests), width)
    for what, path in (("The picture is", picture_file), ("The scores are", scores_file)):
        if path is not None:
            print_stderr(f"{what} at {shown(path)}")
