"""Prefixes: a causal mask whose first keys all queries see."""

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.structures.bands import named
from glasshead.diagnosis.structures.structure import Structure, of_each_row
from glasshead.recipe.masks import prefix

_MOST_ROWS = 256


def prefixed(case: Case) -> Structure | None:
    """A causal mask or a prefix of it; it has yet to be compared.

    Query 0 sees the prefix alone. None where heads differ.
    """
    if case.uniform or case.queries < 2:
        return None
    lengths = of_each_row(
        (case.rows.last[..., 0] + 1) * case.rows.alive[..., 0], len(case.layout.shape)
    )
    if lengths is None or lengths.numel() > _MOST_ROWS:
        return None
    base = named(None, 0, case.layout.position)
    line = f"gh.prefix({lengths.tolist()})"
    return base | Structure(prefix(lengths.cpu()), line, frozenset({"prefix"}))
