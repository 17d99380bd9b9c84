"""Little stories: the same for a seed, each hangs together, and those held out are never told.

Batches: every example once an epoch, little padding, and nothing but the seed and the epoch.
"""

import hashlib
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.tasks.data.batches import by_length, pad, shuffled
from glasshead.tasks.data.stories import (
    GRAMMAR,
    PLACES,
    held_out,
    stories,
)
from hypothesis_profiles import examples

TOLD = stories(2_000, seed=1)


GIRLS, BOYS, COLORS, THINGS = (GRAMMAR[kind] for kind in ("girls", "boys", "colors", "things"))
NAMES = {*GIRLS.split(), *BOYS.split()}


THING = re.compile(rf"({'|'.join(COLORS.split())}) ({'|'.join(THINGS.split())})\b")


PLACE = re.compile("|".join(where.split(maxsplit=1)[1] for where in PLACES))


def facts(story):
    """Who is told of first, what thing, and where."""
    child = next(word for word in re.findall(r"\w+", story) if word in NAMES)
    return child, THING.search(story)[0], PLACE.search(story)[0]


def test_a_seed_tells_the_same_stories_everywhere():
    told = "\n".join([*stories(101, seed=7), *held_out(101, seed=7)])
    assert hashlib.sha256(told.encode()).hexdigest()[:16] == "9bc5456935d13fdc"


@given(st.integers(0, 23), st.integers(0, 2**40))
def test_more_stories_begin_with_the_same(count, seed):
    assert stories(count, seed) == stories(29, seed)[:count]
    assert stories(29, seed) != stories(29, seed + 1)


def test_they_are_many_short_and_in_few_words():
    assert len(set(stories(20_000))) > 19_900
    words = set(re.findall(r"[a-z]+", " ".join(stories(20_000)).lower()))
    assert 150 < len(words) < 220
    for story in TOLD:
        assert 3 <= len(re.findall(r'[.!?]"?(?= ["A-Z]|$)', story)) <= 6
        assert not re.search(r"[{}\n]|  ", story)


@pytest.mark.parametrize("told", [TOLD, held_out(500)], ids=["stories", "held out"])
def test_each_names_the_same_child_thing_and_place_again_at_its_end(told):
    for story in told:
        child, thing, place = facts(story)
        last = re.split(r'(?<=[.!?"]) (?=["A-Z])', story)[-1]
        assert child in last
        assert thing in last
        assert place in last
        assert {found[0] for found in THING.finditer(story)} == {thing}
        assert set(PLACE.findall(story)) == {place}
        assert story.count(THING.search(story)[2]) >= 2


def test_she_is_a_girl_and_he_is_a_boy():
    told = 0
    she = {"she", "her", "girl"}, {"he", "him", "his", "boy"}
    for story in TOLD:
        fitting, other = she if facts(story)[0] in GIRLS.split() else she[::-1]
        words = {word.lower() for word in re.findall(r"\w+", story)}
        told += bool(words & fitting)
        assert not words & other
    # A few do without.
    assert told > 0.9 * len(TOLD)


def test_the_thing_is_never_found_where_it_was_not():
    for story in TOLD:
        spots = [s for listed in PLACES.values() for s in listed.split(", ") if s in story]
        assert len(spots) == len({*spots}) <= 2
        looked = re.search(r"looked (\w+ [\w ]+?)(?:,| and found|\.)", story)
        assert looked is None or looked[1].strip() in " ".join(PLACES.values())


def test_what_is_held_out_is_never_told():
    never = {facts(story) for story in held_out(3_000, seed=3)}
    assert len(never) > 1_000
    told = {facts(story) for seed in (0, 3, 5) for story in stories(7_001, seed)}
    assert len(told) > 9_000
    assert not told & never


def test_every_line_of_the_grammar_is_told():
    whole = " ".join(stories(20_000))
    for lines in GRAMMAR["rules"].values():
        for line in lines.strip().splitlines():
            pattern = re.sub(r"\\\{[^}]+\\\}", ".+", re.escape(line.strip()))
            assert re.search(pattern, whole)


def test_numbers_that_are_none():
    with pytest.raises(ValueError, match="count must be a whole number of at least 0, got -1"):
        stories(-1)
    with pytest.raises(TypeError, match="seed must be a whole number.*got 0.5"):
        held_out(1, seed=0.5)


SEEDS = st.integers(0, 2**32)


EPOCHS = st.integers(0, 1000)


# Of any kind, and so much alike that neighbours are not in the order of their lengths.
LENGTHS = st.lists(st.integers(1, 41), max_size=97) | st.lists(st.integers(35, 41), min_size=29)


@given(LENGTHS, st.integers(41, 211), SEEDS, EPOCHS)
@examples(200)
def test_every_example_is_in_one_batch_that_holds_it(lengths, tokens, seed, epoch):
    batches = by_length(lengths, tokens, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == [*range(len(lengths))]
    for batch in batches:
        assert 0 < len(batch) * max(lengths[i] for i in batch) <= tokens
    assert batches == by_length(torch.tensor(lengths, dtype=torch.long), tokens, seed, epoch)


@given(st.integers(0, 97), st.integers(1, 23), SEEDS, EPOCHS, st.booleans())
@examples(200)
def test_every_example_is_in_one_batch_of_its_size(count, size, seed, epoch, drop_last):
    batches = shuffled(count, size, seed, epoch, drop_last=drop_last)
    seen = [i for batch in batches for i in batch]
    assert len(seen) == len({*seen}) == (count - count % size if drop_last else count)
    assert {*seen} <= {*range(count)}
    assert all(len(batch) == size for batch in batches[:-1])
    assert batches == shuffled(count, size, seed, epoch, drop_last=drop_last)


def test_an_epoch_groups_and_orders_anew():
    lengths = torch.randint(1, 31, (1009,)).tolist()
    for make in (lambda *now: by_length(lengths, 307, *now), lambda *now: shuffled(1009, 13, *now)):
        epochs = [make(3, 0), make(3, 1), make(4, 0)]
        groups = [{frozenset(batch) for batch in batches} for batches in epochs]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert epochs[i] != epochs[j]
            # Grouped again, too, not only put in another order.
            assert len(groups[i] & groups[j]) < len(groups[i]) / 10
    longest = [max(lengths[i] for i in batch) for batch in by_length(lengths, 307, 3, 0)]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_little_is_padding():
    # Lengths of sentences: some 13 words each, a few of them long.
    lengths = (torch.randn(10_007).mul(0.4).exp() * 13).ceil().clamp(max=199).long().tolist()
    batches = by_length(lengths, 3_001, seed=0, epoch=0)
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    assert 1 - sum(lengths) / padded < 0.04
    # Batches are full, as well.
    assert len(batches) < 1.1 * sum(lengths) / 3_001


def test_padding_is_beside_the_rows():
    rows = [[5, 6, 7], [], [8]]
    assert pad(rows, -100).tolist() == [[5, 6, 7], [-100] * 3, [8, -100, -100]]
    assert pad(rows, 0, side="left").tolist() == [[5, 6, 7], [0, 0, 0], [0, 0, 8]]
    assert pad(rows, 0).dtype == torch.int64
    assert torch.equal(pad([torch.tensor([1, 2]), [3]], 0), torch.tensor([[1, 2], [3, 0]]))
    assert pad([[], []], 0).shape == (2, 0)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: by_length([3, 7, 5], 6, 0, 0),
            ValueError,
            "example 1 of lengths has 7 tokens.*tokens=6. Raise",
        ),
        (
            lambda: by_length([3, 0], 6, 0, 0),
            ValueError,
            "example 1 of lengths has 0 tokens.*Omit empty",
        ),
        (lambda: by_length([[3, 1]], 6, 0, 0), ValueError, r"one number an example.*\[1, 2\]"),
        (lambda: by_length([0.5], 6, 0, 0), TypeError, "lengths must be whole numbers"),
        (lambda: by_length([1], 0, 0, 0), ValueError, "tokens must be.* at least 1, got 0"),
        (lambda: by_length([1], 2, -1, 0), ValueError, "seed must be.* at least 0, got -1"),
        (lambda: shuffled(3, 2, 0, -1), ValueError, "epoch must be.* at least 0, got -1"),
        (lambda: shuffled(3, 0, 0, 0), ValueError, "size must be.* at least 1, got 0"),
        (lambda: shuffled(-3, 1, 0, 0), ValueError, "count must be.* at least 0, got -3"),
        (lambda: pad([], 0), ValueError, "at least one row, got none"),
        (lambda: pad([[1]], 0, side="top"), ValueError, "'left' or 'right', got 'top'"),
    ],
)
def test_what_cannot_be_batched_is_said(make, error, match):
    with pytest.raises(error, match=match):
        make()
