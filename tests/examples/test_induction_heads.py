"""The example on induction heads: its texts, its measures, and what it tells and draws."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import glasshead as gh
from scripts import script


@pytest.fixture(scope="module")
def example():
    return script("examples/induction_heads.py")


@pytest.fixture(scope="module")
def learned(example):
    return example.learned(seed=3, steps=30)


class Copying(nn.Module):
    """Knows what the texts are, and says the token before a place where it is to say that one."""

    def __init__(self, text, wrong=()):
        super().__init__()
        self.text, self.wrong = text, wrong

    def forward(self, tokens):
        said = self.text[:, 1:].clone()
        said[:, self.wrong] = tokens[:, self.wrong]
        return nn.functional.one_hot(said, 64) * 100.0


def test_every_text_repeats(example):
    for row in example.repeating(53, torch.Generator().manual_seed(1)):
        first = {}
        for place, token in enumerate(row.tolist()):
            first.setdefault(token, []).append(place)
        periods = {b - a for places in first.values() for a, b in pairwise(places)}
        assert len(periods) == 1
        assert 8 <= periods.pop() <= 32


def test_texts_repeat_at_many_distances(example):
    texts = example.repeating(211, torch.Generator().manual_seed(1))
    once = [len(set(row.tolist())) for row in texts]
    assert min(once) < 16
    assert max(once) > 28
    assert len(set(texts[:, 0].tolist())) > 40


def test_accuracy_and_loss_count_what_could_be_copied(example):
    text = example.unseen(7)
    # Of the places that could be copied, 32 to 62, two; and one that could not.
    model = Copying(text, wrong=[3, 40, 50])
    assert example.accuracy(model, text) == pytest.approx(29 / 31)
    losses = example.losses(model, text)
    assert losses.nonzero().flatten().tolist() == [3, 40, 50]
    assert losses[40] == pytest.approx(100)


def test_every_parameter_learns_from_the_first_steps_on(example, learned):
    model, moments = learned
    assert [one.step for one in moments] == [0, 20, 30]
    assert all(0 < one.loss < 5 and 0 < one.previous < 1 for one in moments)
    first, _ = example.learned(seed=3, steps=1)
    for before, after in zip(first.parameters(), model.parameters(), strict=True):
        assert not torch.equal(before, after)


def test_the_same_seed_learns_the_same(example, learned):
    again, _ = example.learned(seed=3, steps=30)
    for mine, other in zip(again.parameters(), learned[0].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_removals_are_the_heads_of_the_roles_and_all_others(example):
    scores = dict.fromkeys(("first", "duplicate", "local", "broad"), torch.zeros(2, 3))
    scores["previous"] = torch.tensor([[0.1, 0.9, 0.2], [0.0, 0.0, 0.0]])
    scores["induction"] = torch.tensor([[0.0, 0.0, 0.0], [0.7, 0.1, 0.8]])
    even = dict.fromkeys(scores, torch.zeros(2, 3))
    roles = gh.HeadRoles(("a", "b"), scores, even, dict.fromkeys(scores, 0.5))
    assert example.removals(roles) == {
        "nothing": [],
        "previous": [("a", 1)],
        "induction": [("b", 0), ("b", 2)],
        "others": [("a", 0), ("a", 2), ("b", 1)],
    }


def test_without_a_head_the_losses_are_others(example, learned):
    model, text = learned[0], example.unseen(3)
    whole = example.losses(model, text)
    assert torch.equal(example.losses(model, text, []), whole)
    without = example.losses(model, text, [("blocks.0.attention", 1), ("blocks.1.attention", 0)])
    weights = [block.attention.output.weight for block in model.blocks]
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        weights[0][:, 32:], weights[1][:, :32] = 0, 0
        by_hand = example.losses(model, text)
        for weight, old in zip(weights, kept, strict=True):
            weight.copy_(old)
    torch.testing.assert_close(without, by_hand)
    assert not torch.allclose(without, whole)


def test_it_tells_and_draws(example, tmp_path, capsys):
    file = tmp_path / "new" / "heads.png"
    assert example.main([str(file), "5"], steps=2) == 0
    out = capsys.readouterr().out
    assert "blocks.1.attention 1" in out
    assert "By chance it would copy 1.6% right, at a loss of 4.16 nats." in out
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments", [["2"], ["a.png", "-1"], ["a.png", "1", "2"], ["a.txt"]])
def test_arguments_that_it_does_not_take(example, arguments, capsys):
    assert example.main(arguments) == 2
    assert "a file that ends in .png is expected" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(example, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert example.main([str(tmp_path / "file" / "a.png")]) == 2
    assert "the picture cannot be written" in capsys.readouterr().err
