"""Loading: read any file that the library has saved."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from glasshead.attention import JoinedWeights, Observation, Weights
from glasshead.attention.tensor_files import READERS, description_of
from glasshead.watching.seen import Seen

if TYPE_CHECKING:
    from glasshead.watching.corpus import CorpusResult


def load(
    file: str | os.PathLike[str],
) -> "Observation | Weights | JoinedWeights | Seen | CorpusResult":
    """Read a file written by `save` or `glasshead observe --save`.

    The file gives the type: an `Observation` or the `Weights` of one attention, the `JoinedWeights`
    of a text that grew call by call, the `Seen` of a watched model, or the `CorpusResult` of a
    corpus. No code of the file is run.

    Errors: an OSError where the file cannot be read; a ValueError where it holds none of these.

    >>> import tempfile
    >>> import torch
    >>> import glasshead as gh
    >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "seen.safetensors"
    >>> gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy()]).save(file)
    >>> print(gh.load(file))
    Observation of 3 queries
    context  [3, 3]
    entropy  [3]     0.000 … 1.058  mean 0.570  nats
    """
    description = description_of(file)
    reader = READERS[description["kind"]]
    if reader == Weights.__name__ and "recipe" not in description:
        raise ValueError(
            f"{Path(file)} holds the parameters of a model, without its config: load the folder "
            f"that it is in, as by gh.Writer.load."
        )
    for one in (Observation, Weights, JoinedWeights, Seen):
        if reader == one.__name__:
            return one.load(file)
    from glasshead.watching.corpus import CorpusResult

    return CorpusResult.load(file)
