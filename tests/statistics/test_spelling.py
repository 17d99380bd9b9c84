"""The spellings of statistics: one for each that text can ask for, with the facts of its class."""

import glasshead.statistics as own
from glasshead.statistics.spelling import SPELLINGS


def test_spellings_state_the_facts_of_their_classes():
    for name, spelling in SPELLINGS.items():
        assert spelling.name.lower() == name.replace("-", "")
        assert spelling.gives_keys is getattr(own, spelling.name).gives_keys


def test_each_statistic_of_numbers_has_a_spelling():
    kinds = {one for one in own.__all__ if isinstance(getattr(own, one), type)}
    # A base class, the values of one, and the map that `observe` draws.
    assert kinds - {one.name for one in SPELLINGS.values()} == {"Statistic", "TopKeys", "PooledMap"}
