"""The command `write`: generate text with a language model."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from glasshead.cli.inputs.messages import (
    check_task,
    number,
    options_of_decoding,
    whole_number,
)
from glasshead.cli.output import print_text
from glasshead.drawing.printable import as_command
from glasshead.extras import require
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.models.decoding import Strategy

# An option of decoding, which is not given by default.
_decoding = partial(Option, show_default=False, rich_help_panel="Decoding")
_TEMPERATURE = 0.8
_MOST_TOKENS = 10**9


def write(
    context: typer.Context,
    model: Annotated[
        str,
        Argument(
            metavar="RUN_OR_HF_DIR",
            show_default=False,
            help="A run folder, the folder of a Hugging Face model, or a llama2.c model file.",
        ),
    ],
    *,
    prompt: Annotated[
        str, Option(metavar="TEXT", help="Prompt for the model to continue. Default: empty.")
    ] = "",
    tokens: Annotated[
        int, Option(metavar="N", parser=whole_number, help="Maximum number of new tokens.")
    ] = 200,
    stop: Annotated[
        list[str] | None,
        Option(
            metavar="TEXT",
            show_default=False,
            help="Stop string: generation ends before this text. May be repeated. \\n is a "
            "newline.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        _decoding(
            metavar="T",
            parser=number,
            help="Sampling temperature; lower is more conservative, 0 is greedy. Default: 0.8.",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        _decoding(
            metavar="K",
            parser=whole_number,
            help="Top-k sampling: keep the K most probable tokens.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        _decoding(
            metavar="P",
            parser=number,
            help="Top-p (nucleus) sampling: keep the fewest tokens whose probabilities sum to P.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        _decoding(
            metavar="R",
            parser=number,
            help="Repetition penalty: a value above 1, such as 1.2, makes earlier tokens less "
            "probable.",
        ),
    ] = None,
    seed: Annotated[
        int | None, _decoding(metavar="N", parser=whole_number, help="Random seed.")
    ] = None,
    beam: Annotated[
        int | None,
        _decoding(
            metavar="WIDTH",
            parser=whole_number,
            help="Beam width: beam search for the most probable text instead of sampling.",
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        _decoding(
            metavar="A",
            parser=number,
            help="Length penalty of beam search. Above 0, it favors longer texts. Default: 1.",
        ),
    ] = None,
) -> None:
    """Continue a text, token by token."""
    require("glasshead write", "tokenizers")
    from glasshead.tasks.write import Writer

    if context.args:
        prompt = as_command([" ".join(context.args)])
        raise ValueError(f"the text to continue must come after --prompt. Write --prompt {prompt}.")
    with options_of_decoding():
        strategy = chosen_strategy(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            beam=beam,
            length_penalty=length_penalty,
        )
    if not 1 <= tokens <= _MOST_TOKENS:
        raise ValueError(f"--tokens must be a number from 1 to {_MOST_TOKENS}, got {tokens}.")
    stops = tuple(text.replace(r"\n", "\n") for text in stop or ())
    if "" in stops:
        raise ValueError("--stop must be a text of at least one character, got ''. Omit it.")
    check_task(Path(model), "write", "write")
    pieces = Writer.load(model).write(prompt, strategy, max_tokens=tokens, stop=stops)
    print_text(prompt)
    for piece in pieces:
        print_text(piece)
    print_text("", end="\n")


def chosen_strategy(**options: Any) -> "Strategy":
    """Return a decoding strategy: greedy at temperature 0, beam search with a width, else sampling.

    Args:
        options: As the command line names them; None for what is not given.

    Errors: a ValueError if the options exclude each other, or a number is out of range.

    >>> chosen_strategy(temperature=0.0), chosen_strategy(beam=3)
    (Greedy(repetition_penalty=1.0), Beam(width=3, length_penalty=1.0, candidates=1))
    """
    from glasshead.models.decoding import Beam, Greedy, Sampling

    given = {name: value for name, value in options.items() if value is not None}
    if "beam" in given:
        alone = {"beam", "length_penalty"}
        _check_only(given, alone, "--beam searches, so")
        return Beam(given["beam"], length_penalty=given.get("length_penalty", 1.0))
    if "length_penalty" in given:
        raise ValueError(
            Message("--length-penalty needs --beam. Add --beam WIDTH, or omit --length-penalty.")
        )
    if given.get("temperature") == 0:
        alone = {"temperature", "seed", "repetition_penalty"}
        _check_only(given, alone, "--temperature 0 always picks the likeliest token, so")
        return Greedy(repetition_penalty=given.get("repetition_penalty", 1.0))
    return Sampling(
        temperature=given.get("temperature", _TEMPERATURE),
        top_k=given.get("top_k"),
        top_p=given.get("top_p"),
        seed=given.get("seed"),
        repetition_penalty=given.get("repetition_penalty", 1.0),
    )


def _check_only(given: dict[str, Any], known: set[str], why: str) -> None:
    surplus = [f"--{name.replace('_', '-')}" for name in given if name not in known]
    if surplus:
        raise ValueError(f"{why} {', '.join(surplus)} would change nothing. Omit it.")
