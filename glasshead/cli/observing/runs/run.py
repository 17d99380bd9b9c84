"""Run: from the options of `glasshead observe RUN --text FILE` to what is printed and written."""

import time
from functools import partial

import torch

import glasshead as gh
from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.delivery import deliver
from glasshead.cli.observing.pooled import MAP
from glasshead.cli.observing.runs.choice import Choice
from glasshead.cli.observing.runs.gathering import Gathered, Gathering
from glasshead.cli.observing.runs.pieces import Pieces, read_pieces
from glasshead.cli.observing.runs.processes import Processes, processes
from glasshead.cli.observing.runs.report import Observed, left_out, report
from glasshead.cli.observing.runs.request import ObserveRunRequest
from glasshead.cli.observing.runs.saving import save
from glasshead.cli.outputs.progress import Counter
from glasshead.cli.outputs.terminal import remark
from glasshead.recipe.masks import Mask
from glasshead.statistics.reductions import edges
from glasshead.tasks.readers.base import Reader
from glasshead.tasks.readers.open_reader import open_reader

# What is written of each token is no larger than a file's head may be.
_MOST_TOKENS = 2**20


def run(request: ObserveRunRequest) -> None:
    """Observe, write what is to be written, and print.

    Of several processes each reads its share, and the first one writes and prints.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed.
    """
    with processes() as all_of_them:
        observed = _observed(request, all_of_them)
    if observed is not None:
        deliver(report(observed), partial(save, observed), request)
        for sentence in left_out(observed.pieces, observed.reader):
            remark(sentence)


def _observed(request: ObserveRunRequest, processes: Processes) -> Observed | None:
    """What was seen; None in a process that only helps."""
    choice = Choice(request.layer, request.head)
    with processes.together():
        if processes.count > 1:
            request.check_options()
        reader = open_reader(request.folder, processes.device)
        with Counter("reading texts", shown=processes.leads) as counter:
            pieces = read_pieces(
                reader,
                request.text,
                request.length,
                truncate=request.truncate,
                progress=counter.show,
            )
        asked = request.statistics()
        gathering = Gathering(reader, pieces, asked, processes)
    start = time.perf_counter()
    with Counter("observing", shown=processes.leads) as counter:
        gathering.read(choice.check, counter.show)
    gathered = gathering.gathered()
    if not processes.leads:
        return None
    return Observed(
        reader=reader,
        text=shown(request.text),
        pieces=pieces,
        names=_names(reader, pieces),
        tokens=_tokens(reader, pieces),
        asked=asked,
        gathered=gathered,
        mask=_mask(reader, pieces, gathered),
        choice=choice,
        seconds=time.perf_counter() - start,
    )


def _names(reader: Reader, pieces: Pieces) -> tuple[str, ...] | None:
    """The tokens of the one piece of full length; of several, a position has no name."""
    if pieces.full > 1 or pieces.uneven:
        return None
    return tuple(map(reader.token, pieces.groups[0][0].tolist()))


def _tokens(reader: Reader, pieces: Pieces) -> list[str] | None:
    """All tokens in their order, where they are those of one text; None of a very long one."""
    if not pieces.of_one_text or pieces.tokens > _MOST_TOKENS:
        return None
    numbers = [token for group in pieces.groups for token in group.flatten().tolist()]
    written = {token: reader.token(token) for token in set(numbers)}
    return [written[token] for token in numbers]


def _mask(reader: Reader, pieces: Pieces, gathered: Gathered) -> Mask | None:
    """Which pairs see each other, as the model says, or as its weights show."""
    if reader.mask is not None or MAP not in gathered.values:
        return reader.mask
    pooled = gathered.values[MAP]
    rows, columns = (edges(pieces.length, size) for size in pooled.shape[-2:])
    later = torch.tensor([[begin >= end for begin in columns[:-1]] for end in rows[1:]])
    return None if pooled[..., later].any() else gh.causal()
