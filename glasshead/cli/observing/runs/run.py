"""Run: from the options of `glasshead observe RUN --text FILE` to what is printed and written."""

import time
from functools import partial

from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.delivery import deliver
from glasshead.cli.observing.runs.choice import Choice
from glasshead.cli.observing.runs.gathering import gather
from glasshead.cli.observing.runs.pieces import Pieces, read_pieces
from glasshead.cli.observing.runs.report import Observed, report
from glasshead.cli.observing.runs.request import ObserveRunRequest
from glasshead.cli.observing.runs.saving import save
from glasshead.cli.outputs.progress import Counter
from glasshead.layers import MultiHeadAttention
from glasshead.models import LanguageModel
from glasshead.recipe.masks import Mask
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.write import Writer


def run(request: ObserveRunRequest) -> None:
    """Observe, write what is to be written, and print.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed.
    """
    writer = Writer.load(request.folder)
    config = writer.model.config
    choice = Choice(request.layer, request.head)
    choice.check(config.num_layers, config.num_heads)
    pieces, asked = read_pieces(writer, request.text), request.statistics()
    start = time.perf_counter()
    with Counter("observing") as counter:
        gathered = gather(writer.model, pieces, asked, counter.show)
    observed = Observed(
        run=shown(request.folder),
        text=shown(request.text),
        pieces=pieces,
        unknown=_unknown(writer.tokenizer, pieces),
        names=_names(writer.tokenizer, pieces),
        asked=asked,
        gathered=gathered,
        mask=_mask(writer.model),
        choice=choice,
        seconds=time.perf_counter() - start,
    )
    deliver(report(observed), partial(save, observed), request)


def _unknown(tokenizer: Tokenizer, pieces: Pieces) -> int:
    """How many tokens the tokenizer did not know; where it knows all, another token stands in."""
    if tokenizer.unknown_id == tokenizer.end_id:
        return 0
    return int((pieces.tokens == tokenizer.unknown_id).sum())


def _names(tokenizer: Tokenizer, pieces: Pieces) -> tuple[str, ...] | None:
    """The tokens of the one piece of full length; of several, a position has no name."""
    if pieces.whole > 1:
        return None
    return tuple(tokenizer.token(token) for token in pieces.tokens[: pieces.length].tolist())


def _mask(model: LanguageModel) -> Mask | None:
    """The mask of the model's attentions, which have all the same."""
    return next(x for x in model.modules() if isinstance(x, MultiHeadAttention)).attention.mask
