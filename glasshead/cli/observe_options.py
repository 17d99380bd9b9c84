"""Options of the command `observe`."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.messages import whole_number
from glasshead.cli.output import OUTPUT
from glasshead.recipe.mask_text import HELP as MASK_HELP

SUBJECT, RECIPE = "Input and statistics", "Attention"

Subject = Annotated[
    str | None,
    Argument(
        metavar="TEXT|MODEL",
        show_default=False,
        help=(
            "A sentence; its words get random vectors, or the vectors of --vectors. With --text: a "
            "run folder of glasshead train write, or the folder of a Hugging Face text model "
            "(config.json, tokenizer, safetensors weights). Default: the worked example of the "
            "tutorials."
        ),
    ),
]
Text = Annotated[
    list[str] | None,
    Option(
        metavar="FILE",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="Text for MODEL to read: a plain text file, a .jsonl, .csv or .tsv file of texts, a "
        "folder of such files, or a quoted pattern such as 'corpus/*.jsonl'. May be "
        "repeated. Files of any size are streamed. Under torchrun, each process reads its "
        "share.",
    ),
]
FilesFrom = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=SUBJECT,
        help="File that lists the files for MODEL to read, one per line. - reads standard input: "
        "find corpus -name '*.txt' | glasshead observe MODEL --files-from -",
    ),
]
LengthOfPiece = Annotated[
    str | None,
    Option(
        metavar="N|whole",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="Tokens per sequence; all texts are concatenated and cut. whole: one sequence per "
        "text. Default: the context length of MODEL, at most 1024.",
    ),
]
Truncate = Annotated[
    bool,
    Option(
        "--truncate",
        rich_help_panel=SUBJECT,
        help="With --length whole: truncate texts that are longer than the context of MODEL, and "
        "count them. Without it, such a text is an error.",
    ),
]
Vectors = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=SUBJECT,
        help="A safetensors file with query, key and optionally value, each \\[length, dim], "
        "\\[heads, length, dim] or \\[batch, heads, length, dim]; or tokens with their "
        "vectors, as for explain. - reads such tokens from standard input.",
    ),
]
MaskOption = Annotated[
    str | None,
    Option(
        metavar="M",
        show_default=False,
        rich_help_panel=RECIPE,
        help=f"Attention mask: {MASK_HELP} Default: none. Not for a model, which has its own.",
    ),
]
EngineOption = Annotated[
    str | None,
    Option(
        metavar="E",
        show_default=False,
        rich_help_panel=RECIPE,
        help="Engine: auto (the fastest), fused, streaming or reference. Default: auto. Not for a "
        "model, which chooses its own.",
    ),
]
Statistics = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="Statistic; may be repeated: entropy, max-weight, mean-distance, received or "
        "received:16 (by the last 16 queries), mass-on:0,1 (on these keys), top-k:3 (not for "
        "a model), log-sum-exp, max-score, distance-histogram:0,1,8,inf. Default: the first "
        "six.",
    ),
]
Layer = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Layer of a model whose keys and map are drawn, counted from 0. Default: the mean "
        "over all layers.",
    ),
]
Head = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Head whose keys and map are drawn, counted from 0. Default: the mean over all heads.",
    ),
]
Save = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Also write the observation as safetensors. In Python, gh.load returns it as a "
        "gh.Observation. For a model, gh.load returns a gh.CorpusResult: means \\[heads, …], "
        "such as blocks.0.attention.entropy, and the tokens if FILE is one text.",
    ),
]
Resume = Annotated[
    bool,
    Option(
        "--resume",
        rich_help_panel=OUTPUT,
        help="With --text and --save FILE: resume after an interruption, from the sums stored in "
        "FILE.partial every ten seconds.",
    ),
]
