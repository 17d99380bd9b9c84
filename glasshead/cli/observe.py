"""The command `observe`: its options."""

import re
from typing import Annotated, Any

from typer import Argument, Option

from glasshead.cli.inputs.naming import input_file, output_file
from glasshead.cli.inputs.wording import quoted, whole_number
from glasshead.cli.observing.request import ObserveRequest
from glasshead.cli.observing.runs.request import ObserveRunRequest
from glasshead.cli.outputs.options import OUTPUT, Width

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
