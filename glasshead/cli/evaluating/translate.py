"""How near translations come to those of people."""

from collections.abc import Sequence
from pathlib import Path

import typer

from glasshead.cli.inputs.reading import shown
from glasshead.cli.outputs.page_file import Kind, check_target, write_bytes
from glasshead.cli.outputs.progress import Counter
from glasshead.cli.outputs.terminal import print_json, remark
from glasshead.cli.training.figures import print_figures
from glasshead.models.decoding import Beam
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.translate import evaluate as evaluate_translations

_TRANSLATIONS = Kind("--save", "the translations", "translations.txt")


def evaluate_translator(
    run: str,
    files: Sequence[str],
    strategy: Beam,
    save: Path | None,
    *,
    json: bool,
) -> None:
    """Print the figures.

    Errors: an OSError or ValueError where the run or a file is not what it is to be.
    """
    if save is not None:
        check_target(save, _TRANSLATIONS)
    translator = TextTranslator.load(run)
    with Counter("translating") as counter:
        found = evaluate_translations(translator, tuple(files), strategy, counter.show)
    if save is not None:
        lines = "".join(f"{translation.text}\n" for translation in found.translations)
        write_bytes(save, lines.encode(), _TRANSLATIONS)
    figures = {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact, "texts": found.texts}
    signatures = {"bleu": found.bleu_signature, "chrf": found.chrf_signature}
    if json:
        print_json({**figures, "signatures": signatures})
    else:
        print_figures(figures)
        for name, signature in signatures.items():
            typer.echo(f"{name + ' signature':<20}{signature}")
    if save is not None:
        remark(f"The translations are at {shown(save)}")
