"""The command `diagnose`: describe an attention mask and find what is wrong with it."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, shown
from glasshead.cli.inputs.messages import number_option, print_stderr
from glasshead.cli.output import (
    Html,
    Lang,
    Width,
    check_apart,
    check_language,
    check_target,
    check_width,
    in_language,
    print_drawing,
    spoken,
    write_page,
)
from glasshead.explanation.choices import one_of
from glasshead.message import Message

CONVENTIONS = ("attend", "hidden", "additive", "tokenizer")
UNHEALTHY = 1


def diagnose(
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            show_default=False,
            help="Mask file: .npy, .npz with one array, .safetensors, .json (nested lists), or a "
            "table of 0, 1, true, false, numbers or -inf (.csv, .tsv, .txt). - reads a table "
            "or JSON from standard input.",
        ),
    ],
    *,
    tensor: Annotated[
        str | None,
        Option(
            metavar="NAME",
            show_default=False,
            help="Tensor to read, if a safetensors file has several. FILE:NAME means the same.",
        ),
    ] = None,
    queries: Annotated[int | None, number_option("Number of queries. Default: the mask's.")] = None,
    keys: Annotated[int | None, number_option("Number of keys. Default: the mask's.")] = None,
    offset: Annotated[
        int | None,
        number_option("Position of the first query among the keys. Default: keys - queries."),
    ] = None,
    convention: Annotated[
        str | None,
        Option(
            metavar="C",
            show_default=False,
            help="Mask convention: attend (1 = may attend), hidden (1 = hidden), additive or "
            "tokenizer. Default: detected from the mask.",
        ),
    ] = None,
    html: Html = None,
    width: Width = None,
    lang: Lang = None,
) -> None:
    """Diagnose an attention mask of any library: its meaning and its errors.

    The exit code is 0 for a healthy mask, 1 for errors or warnings, 2 for bad input.
    """
    page_file = output_file(html, "--html")
    _check_lengths(queries, keys, offset)
    if convention is not None:
        one_of(convention, CONVENTIONS, "--convention")
    check_width(width)
    check_language(lang)
    if page_file is not None:
        check_target(page_file)
        check_apart(page_file, (_mask_source(file, tensor)[0],))
    path, name = _mask_source(file, tensor)
    import glasshead as gh
    from glasshead.cli.inputs.masks import read_mask

    mask = read_mask(path, name)
    try:
        diagnosis = gh.diagnose(
            mask, queries=queries, keys=keys, convention=convention, offset=offset
        )
    except (ValueError, TypeError) as error:
        raise ValueError(Message("{path}: {error}", path=shown(path), error=error)) from error
    say = spoken(lang)
    document = in_language(diagnosis.document(), say)
    if page_file is not None:
        write_page(page_file, document.html())
    print_drawing(document, width)
    if page_file is not None:
        print_stderr(say("The page is at {place}", place=shown(page_file)))
    if not diagnosis.healthy:
        raise typer.Exit(UNHEALTHY)


def _check_lengths(queries: int | None, keys: int | None, offset: int | None) -> None:
    """Raise a ValueError if a length or the offset is out of range."""
    for option, count in (("--queries", queries), ("--keys", keys)):
        if count is not None and not 1 <= count <= 2**31:
            raise ValueError(
                Message(
                    "{option} must be a whole number from 1 to 2^31, got {count}. Omit it for the "
                    "mask's own.",
                    option=option,
                    count=count,
                )
            )
    if offset is not None and abs(offset) > 2**31:
        raise ValueError(
            Message(
                "--offset must be a whole number of at most 2^31, got {offset}. Omit it for keys "
                "- queries.",
                offset=offset,
            )
        )


def _mask_source(file: str, tensor: str | None) -> tuple[Path, str | None]:
    """Return the file, and the name of the tensor in it if one is given.

    Errors: a ValueError if the name is empty, or two tensors are named.
    """
    path = input_file(file, "FILE")
    if path is None:
        raise ValueError(Message("FILE must be a file, got an empty name."))
    name, colon, inner = file.rpartition(":")
    if not colon or not name.lower().endswith(".safetensors") or path.exists():
        return path, tensor
    if tensor not in (None, inner):
        raise ValueError(
            Message(
                "--tensor names {tensor}, but FILE names {inner}. Omit one of them.",
                tensor=tensor,
                inner=inner,
            )
        )
    return Path(name), inner
