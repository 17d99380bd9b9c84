"""Options of the command `observe`."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.messages import whole_number
from glasshead.cli.output import OUTPUT
from glasshead.recipe.mask_text import HELP as MASK_HELP

SUBJECT, RECIPE = "Input and statistics", "The attention"

Subject = Annotated[
    str | None,
    Argument(
        metavar="TEXT|MODEL",
        show_default=False,
        help="A sentence, whose words get made-up vectors, or those of --vectors. With --text, "
        "the folder of a run of train write, or of a text model of Hugging Face, with its "
        "config.json, its tokenizer and its weights as safetensors. Without any and without "
        "--vectors: the worked example of the texts.",
    ),
]
Text = Annotated[
    list[str] | None,
    Option(
        metavar="FILE",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="A text that MODEL reads, while each of its attentions is observed: plain, the texts "
        "of a .jsonl, .csv or .tsv, a folder of such files, or a pattern, as in 'corpus/*.jsonl', "
        "quoted; and again for each more. Files of any size are read bit by bit. Started by "
        "torchrun, each process reads its share.",
    ),
]
FilesFrom = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=SUBJECT,
        help="A file with the names of files that MODEL reads, one a line; - reads standard input: "
        "find corpus -name '*.txt' | glasshead observe MODEL --files-from -",
    ),
]
LengthOfPiece = Annotated[
    str | None,
    Option(
        metavar="N|whole",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="Tokens per sequence, cut from all texts concatenated; whole: one sequence per "
        "text. If not given, the context of MODEL, at most 1024.",
    ),
]
Truncate = Annotated[
    bool,
    Option(
        "--truncate",
        rich_help_panel=SUBJECT,
        help="With --length whole: truncate a text that is longer than the context of MODEL, "
        "and count such texts. If not given, such a text is an error.",
    ),
]
Vectors = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=SUBJECT,
        help="A safetensors file with query, key and perhaps value, \\[length, dim], \\[heads, "
        "length, dim] or \\[batch, heads, length, dim]; or tokens with their vectors, as "
        "explain takes them, where - reads standard input.",
    ),
]
MaskOption = Annotated[
    str | None,
    Option(
        metavar="M",
        show_default=False,
        rich_help_panel=RECIPE,
        help=f"Attention mask: {MASK_HELP} If not given: none; a model has its own.",
    ),
]
EngineOption = Annotated[
    str | None,
    Option(
        metavar="E",
        show_default=False,
        rich_help_panel=RECIPE,
        help="Engine: auto, the fastest; fused, streaming or reference. If not given: auto; a "
        "model has its own.",
    ),
]
Statistics = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        show_default=False,
        rich_help_panel=SUBJECT,
        help="A statistic, and again for each more: entropy, max-weight, mean-distance, "
        "received or received:16 (by the last 16 queries), mass-on:0,1 (on these keys), "
        "top-k:3 (not of a model), log-sum-exp, max-score, distance-histogram:0,1,8,inf. If "
        "not given, the first six.",
    ),
]
Layer = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Layer whose keys and map are drawn, from 0, of a model. If not given, the mean "
        "over all.",
    ),
]
Head = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="Head whose keys and map are drawn, from 0. If not given, the mean over all.",
    ),
]
Save = Annotated[
    str | None,
    Option(
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Also write the observation, as safetensors, for gh.load in Python, which gives a "
        "gh.Observation. Of a model it gives a gh.CorpusResult: the means, \\[heads, …], such "
        "as those of blocks.0.attention.entropy, and the tokens where FILE is one text.",
    ),
]
Resume = Annotated[
    bool,
    Option(
        "--resume",
        rich_help_panel=OUTPUT,
        help="With --text and --save FILE: go on where a run was interrupted, by the sums that "
        "it keeps in FILE.partial every ten seconds.",
    ),
]
