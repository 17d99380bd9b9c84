"""Documents: several in one sequence that do not see each other."""

import torch
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.structures.structure import Structure, same_throughout
from glasshead.recipe.masks import documents

# More documents than these are no line of code.
_MOST = 16


def packed(case: Case) -> Structure | None:
    """The documents of a sequence whose queries are its keys; they have yet to be compared.

    The first key that a query sees names its document. None where batch rows differ.
    """
    if case.queries != case.keys or case.layout.position != 0 or not bool(case.rows.alive.any()):
        return None
    firsts = case.rows.first
    if not same_throughout(firsts):
        return None
    ids = firsts.reshape(-1, case.keys)[0]
    _, numbered = ids.unique(return_inverse=True)
    line = _line(numbered)
    if line is None:
        return None
    return Structure(documents(numbered.cpu()), line, frozenset({"documents"}))


def _line(ids: Tensor) -> str | None:
    if len(ids) <= _MOST:
        return f"gh.documents({ids.tolist()})"
    runs, lengths = ids.unique_consecutive(return_counts=True)
    if len(runs) > _MOST or not torch.equal(runs, torch.arange(len(runs), device=runs.device)):
        return None
    return (
        f"gh.documents(torch.arange({len(runs)}).repeat_interleave("
        f"torch.tensor({lengths.tolist()})))"
    )
