"""The command `train`: a command of its own for each task."""

from typing import Annotated

import typer
from typer import Argument, Option

from glasshead.cli.inputs.wording import whole_number

train = typer.Typer(
    help="Train a transformer on your texts, into a folder that is all that using it needs.",
    invoke_without_command=True,
)
_RUN, _HARDWARE = "The run", "The machine"


@train.callback()
def _train(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@train.command("write")
def write(
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="FILE",
            show_default=False,
            help="Texts: .txt, or .jsonl, .csv, .tsv with a column of texts; .gz and .xz too. "
            "Without any: little stories that are made up.",
        ),
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
            help="tiny: two minutes on two cores; small: ten; base: for a GPU; nano: nanoGPT's "
            "setting for a CPU. If not given, tiny.",
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
            help="Go on with the run that is in the folder, longer or shorter by --set steps=N.",
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
    """Train a language model: by default a tiny one, on little stories, in two minutes."""
    from glasshead.cli.inputs.extras import check_extra

    check_extra("train", "glasshead train")
    from glasshead.cli.training.write import TrainWriteRequest, run_training

    run_training(
        TrainWriteRequest(
            files=tuple(files or ()),
            run=run,
            preset=preset,
            assign=tuple(assign or ()),
            resume=resume,
            hardware={
                "devices": devices,
                "strategy": strategy,
                "nodes": nodes,
                "accelerator": accelerator,
                "precision": precision,
            },
        )
    )
