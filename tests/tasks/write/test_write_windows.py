"""Windows: which pieces of a text are trained on, and which are told."""

import pytest
import torch

from glasshead.tasks.training.task import IGNORED
from glasshead.tasks.write.train import HeldOutWindows, TrainingWindows


def test_held_out_windows_tell_each_token_but_the_first_once():
    tokens = torch.arange(100, 123)
    windows = HeldOutWindows(tokens, length=5)
    told, after = [], []
    for batch in windows.batches():
        collated = windows.collate(batch)
        counted = collated["targets"] != IGNORED
        assert windows.count(batch) == counted.sum()
        told += collated["targets"][counted].tolist()
        after += collated["tokens"][counted].tolist()
    assert told == list(range(101, 123))
    assert after == list(range(100, 122))


def test_a_training_epoch_has_no_token_twice_and_misses_less_than_two_pieces():
    tokens = torch.arange(211)
    windows = TrainingWindows(tokens, length=7, batch_size=1, seed=3)
    seen = [
        token
        for batch in windows.batches(epoch=5)
        for token in windows.collate(batch)["tokens"].flatten().tolist()
    ]
    assert len(seen) == len(set(seen))
    assert len(seen) > 211 - 2 * 7


def test_what_follows_each_token_is_its_target():
    windows = TrainingWindows(torch.arange(53), length=5, batch_size=3, seed=0)
    for batch in windows.batches(epoch=0):
        collated = windows.collate(batch)
        assert torch.equal(collated["targets"], collated["tokens"] + 1)


def test_epochs_are_functions_of_seed_and_number():
    def places(seed, epoch):
        return TrainingWindows(torch.arange(211), 7, 3, seed).batches(epoch)

    assert places(1, 0) == places(1, 0)
    assert places(1, 0) != places(1, 1)
    assert places(1, 0) != places(2, 0)


@pytest.mark.parametrize("tokens", [8, 9, 13])
def test_a_text_of_hardly_more_than_one_piece_has_a_batch(tokens):
    windows = TrainingWindows(torch.arange(tokens), length=7, batch_size=11, seed=0)
    for epoch in range(5):
        (batch,) = windows.batches(epoch)
        assert windows.collate(batch)["targets"].max() < tokens
        assert windows.count(batch) == 7
