"""Each sequence that a model writes is seen as it is alone in one pass, or reading it raises."""

import random
from collections.abc import Iterable, Iterator
from itertools import combinations, product, starmap

import pytest
import torch

import glasshead as gh
import watched_models as models
from watching import decoding
from watching.decoding import BEAM_SEARCHES, DECODINGS, STATISTICS, Case, Reading
from watching.families import FAMILIES

pytest.importorskip("transformers")
pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:transformers")

SIDES = ("none", "left", "right")
ENDINGS = ("none", "config", "argument")
CACHES = ("dynamic", "whole", "static")
MODES = ("sdpa", "eager")
QUICK = 12


def every_pair(cases: Iterable[Case]) -> Iterator[Case]:
    """Some of the cases, in which any two values of different fields that can meet do meet."""
    pairs = {case: set(combinations(enumerate(case), 2)) for case in cases}
    missing = set().union(*pairs.values())
    together: dict[tuple[str, str], list[Case]] = {}
    for case in pairs:
        together.setdefault((case.family, case.decoding), []).append(case)
    groups = list(together.values())
    random.Random(7).shuffle(groups)
    # The two longest fields make as many cases as they have pairs; those of others fit in.
    for group in [*groups, *([case] for case in pairs)]:
        best = max(group, key=lambda case: len(pairs[case] & missing))
        if pairs[best] & missing:
            missing -= pairs[best]
            yield best


CASES = list(
    every_pair(
        case
        for case in starmap(Case, product(FAMILIES, DECODINGS, SIDES, ENDINGS, CACHES, MODES))
        if case.possible
    )
)


def chosen() -> list[object]:
    """The cases, the first of which, of many kinds, are quick."""
    return [
        pytest.param(case, id="-".join(case), marks=[pytest.mark.slow] if place >= QUICK else [])
        for place, case in enumerate(CASES)
    ]


@pytest.mark.parametrize("case", chosen())
@torch.no_grad()
def test_a_sequence_is_seen_as_it_is_alone(case: Case) -> None:
    model, prompts = case.of.build(case.mode), decoding.prompts_of(case)
    with decoding.ending(case, model, prompts) as ended:
        with models.skipped_where_transformers_fails(ValueError, RuntimeError, IndexError):
            plain = decoding.write(case, model, prompts, **ended.asked)
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            written = decoding.write(case, model, prompts, **ended.asked)
    assert torch.equal(written.sequences, plain.sequences)
    alone = decoding.returned(case, model, prompts, written, ended.tokens)
    if case.decoding in BEAM_SEARCHES:
        rows = decoding.in_rows(case, model, prompts, written)
        Reading(seen, rows).check(without=("frame",))
        assert not Reading(seen.follow(), rows).check().refused
        seen = seen.follow(written.beams)
    assert not Reading(seen, alone).check().refused
