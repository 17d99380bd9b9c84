"""The command `train`: a command of its own for each task."""

from typing import Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.messages import whole_number

train = typer.Typer(
    help="Train a transformer on your texts, into a folder that is all that using it needs.",
    invoke_without_command=True,
)
_RUN, _HARDWARE = "The run", "The machine"


@train.callback()
def _train(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _add(task: str, *, about: str, examples: str, presets: str) -> None:
    """Add the command of a task: its options are those of the others."""

    @train.command(task, help=about)
    def train_task(
        files: Annotated[
            list[str] | None, Argument(metavar="FILE", show_default=False, help=examples)
        ] = None,
        *,
        run: Annotated[
            str,
            Option("--run", metavar="DIR", show_default=False, help="The folder of the run."),
        ],
        preset: Annotated[
            str | None,
            Option(
                metavar="P",
                show_default=False,
                rich_help_panel=_RUN,
                help=f"{presets} If not given, tiny.",
            ),
        ] = None,
        held_out: Annotated[
            list[str] | None,
            Option(
                metavar="FILE",
                show_default=False,
                rich_help_panel=_RUN,
                help="What to validate with, and never train on; without it, a share of FILE.",
            ),
        ] = None,
        assign: Annotated[
            list[str] | None,
            Option(
                "--set",
                metavar="KEY=VALUE",
                show_default=False,
                rich_help_panel=_RUN,
                help="Changes a setting of the preset, as in --set steps=500 --set tokenizer=bpe; "
                "config.json in the run names them all.",
            ),
        ] = None,
        resume: Annotated[
            bool,
            Option(
                "--resume",
                rich_help_panel=_RUN,
                help="Go on with the run in the folder, longer or shorter by --set steps=N.",
            ),
        ] = False,
        watch: Annotated[
            bool,
            Option(
                "--watch",
                rich_help_panel=_RUN,
                help="Write entropy and maximum score of each head into the run, every 40 steps "
                "(4 log_every), and say which tell that training is about to diverge.",
            ),
        ] = False,
        devices: Annotated[
            int,
            Option(
                metavar="N",
                parser=whole_number,
                rich_help_panel=_HARDWARE,
                help="Processes on each machine.",
            ),
        ] = 1,
        strategy: Annotated[
            str,
            Option(
                metavar="S",
                rich_help_panel=_HARDWARE,
                help="auto; ddp: a whole model on each device; fsdp: a share of it on each GPU.",
            ),
        ] = "auto",
        nodes: Annotated[
            int,
            Option(
                metavar="N",
                parser=whole_number,
                rich_help_panel=_HARDWARE,
                help="Machines; start the command on each by torchrun.",
            ),
        ] = 1,
        accelerator: Annotated[
            str,
            Option(metavar="A", rich_help_panel=_HARDWARE, help="auto, cpu, gpu, cuda or mps."),
        ] = "auto",
        precision: Annotated[
            str,
            Option(
                metavar="P",
                rich_help_panel=_HARDWARE,
                help="auto: bfloat16 where a GPU has it; 32-true or bf16-mixed.",
            ),
        ] = "auto",
    ) -> None:
        from glasshead.cli.inputs.messages import check_extra

        check_extra("train", "glasshead train")
        from glasshead.cli.training import TrainRequest, run_training

        run_training(
            TrainRequest(
                task=task,
                files=tuple(files or ()),
                held_out=tuple(held_out or ()),
                run=run,
                preset=preset,
                assign=tuple(assign or ()),
                resume=resume,
                watch=watch,
                hardware={
                    "devices": devices,
                    "strategy": strategy,
                    "nodes": nodes,
                    "accelerator": accelerator,
                    "precision": precision,
                },
            )
        )


_add(
    "classify",
    about="Train a classifier: by default a tiny one, on little reviews, in a minute.",
    examples="Tables of texts and labels: .jsonl, .csv, .tsv; .gz and .xz too. Their columns are "
    "text and label, or others by --set text=COLUMN --set label=COLUMN. Without any: little "
    "reviews that are made up.",
    presets="tiny: a minute on two cores; small: some minutes; base: for a GPU; course: rung 9 of "
    "the ladder.",
)
_add(
    "translate",
    about="Train a translator: by default a tiny one, of German, in two minutes.",
    examples="Two text files, line by line texts and their translations, as in train.de train.en; "
    "or tables, .jsonl, .csv, .tsv, whose columns are source and target, or others by --set "
    "source=COLUMN --set target=COLUMN; .gz and .xz too. Without any: German and English that is "
    "made up.",
    presets="tiny: two minutes on two cores; small: an hour or so; base: for a GPU.",
)
_add(
    "write",
    about="Train a language model: by default a tiny one, on little stories, in two minutes.",
    examples="Texts: .txt, or .jsonl, .csv, .tsv with a column of texts; .gz and .xz too. Without "
    "any: little stories that are made up.",
    presets="tiny: two minutes on two cores; small: ten; base: for a GPU; nano: nanoGPT's setting "
    "for a CPU.",
)
