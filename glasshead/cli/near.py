"""The command `near`: nearest neighbors of a word in a trained embedding space."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.files import Run, output_file
from glasshead.cli.inputs.messages import check_task, whole_number
from glasshead.cli.output import PICTURE, check_target, write_bytes
from glasshead.drawing.printable import visible
from glasshead.extras import require


def near(
    run: Run,
    word: Annotated[
        str, Argument(metavar="WORD", show_default=False, help="Word; it must be a single token.")
    ],
    *,
    count: Annotated[
        int, Option(metavar="N", parser=whole_number, help="Number of neighbors to list.")
    ] = 10,
    png: Annotated[
        str | None,
        Option(metavar="FILE", show_default=False, help="Also draw the embedding space, as PNG."),
    ] = None,
) -> None:
    """List the nearest neighbors of a word in a model's embedding space."""
    require("glasshead near", "tokenizers")
    picture = output_file(png, "--png")
    if picture is not None:
        check_target(picture, PICTURE)
        require("glasshead near --png", "matplotlib")
    if count < 1:
        raise ValueError(f"--count must be a number from 1, got {count}.")
    from glasshead.tasks.embedding_space import EmbeddingSpace
    from glasshead.tasks.write import Writer

    check_task(Path(run), "write", "near")
    writer = Writer.load(run)
    space = EmbeddingSpace(writer.model.embedding.tokens.weight, writer.tokenizer)
    neighbors = space.near(word, count)
    for neighbor in neighbors:
        typer.echo(f"{neighbor.similarity:6.3f}  {visible(neighbor.token)}")
    if picture is not None:
        write_bytes(picture, space.picture(word, neighbors), PICTURE)
