"""Batches of pairs: what is shown and told, and that no pair hears of its neighbours."""

import math

import pytest
import torch

import glasshead as gh
from glasshead.tasks.tokenizers.train_tokenizer import words
from glasshead.tasks.training.task import IGNORED
from glasshead.tasks.translate.train import PairBatches, TranslateObjective

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TOKENIZER = words([" ".join(WORDS)], 100)
A, B, C, D, E, F, G, H = TOKENIZER.encode(" ".join(WORDS))
PAD, START, END = TOKENIZER.pad_id, TOKENIZER.start_id, TOKENIZER.end_id
PAIRS = [
    ("a b c", "d e"),
    ("d", "a b c d e f g"),
    ("e f g h a b c d e", "h"),
    ("c c", "b b b"),
    ("h", "g f"),
    ("b a d e f", "a a a a b"),
    ("g", "c"),
]


@pytest.fixture
def batches():
    return PairBatches(TOKENIZER, PAIRS, tokens=23, seed=3)


def test_a_translation_is_shown_after_a_start_and_told_with_an_end(batches):
    found = batches.collate([0, 1, 6])
    assert found["source"].tolist() == [[A, B, C], [D, PAD, PAD], [G, PAD, PAD]]
    assert found["lengths"].tolist() == [3, 1, 1]
    filled, ignored = [PAD] * 5, [IGNORED] * 5
    assert found["target"].tolist() == [
        [START, D, E, *filled],
        [START, A, B, C, D, E, F, G],
        [START, C, PAD, *filled],
    ]
    assert found["answers"].tolist() == [
        [D, E, END, *ignored],
        [A, B, C, D, E, F, G, END],
        [C, END, IGNORED, *ignored],
    ]


def test_an_epoch_has_every_pair_once_in_batches_that_fit(batches):
    assert batches.longest == 9
    # Beside the end of a translation.
    assert PairBatches(TOKENIZER, [("a b", "c d e"), ("f", "g")], tokens=23).longest == 4
    epochs = [batches.batches(epoch) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(index for batch in epoch for index in batch) == [*range(len(PAIRS))]
        for batch in epoch:
            collated = batches.collate(batch)
            assert max(collated["source"].numel(), collated["target"].numel()) <= 23
            assert batches.count(batch) == (collated["answers"] != IGNORED).sum()
    assert epochs[0] == batches.batches(0)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]


def model_of(**given):
    torch.manual_seed(7)
    sizes = {"vocab_size": TOKENIZER.vocab_size, "d_model": 12, "num_heads": 3, "num_layers": 2}
    model = gh.Translator(gh.TranslatorConfig(**{**sizes, "dropout": 0.0, **given})).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return model


def learned(task, batch):
    """The loss of a batch, and the gradient of every parameter."""
    task.model.zero_grad()
    loss = task.loss(batch)
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in task.model.parameters()]


SETTINGS = [
    {},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"positions": "learned", "order": "post", "num_decoder_layers": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_batch_learns_what_its_pairs_learn_alone(settings, batches):
    task = TranslateObjective(model_of(**settings), smoothing=0.2)
    together, gradient = learned(task, batches.collate(range(7)))
    apart = [learned(task, batches.collate([index])) for index in range(7)]
    torch.testing.assert_close(together, sum(loss for loss, _ in apart))
    for place, whole in enumerate(gradient):
        torch.testing.assert_close(whole, sum(own[place] for _, own in apart))
        assert whole.any()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_stands_in_the_padding_changes_nothing(settings, batches):
    task = TranslateObjective(model_of(**settings), smoothing=0.2)
    batch = batches.collate(range(7))
    real = {
        "source": torch.arange(9) < batch["lengths"][:, None],
        "target": batch["answers"] != IGNORED,
    }
    other = dict(batch)
    for name, where in real.items():
        noise = torch.randint(TOKENIZER.vocab_size, batch[name].shape)
        other[name] = batch[name].where(where, noise)
        assert not torch.equal(batch[name], other[name])
    expected = learned(task, batch)
    torch.testing.assert_close(learned(task, other), expected)


class Fixed(torch.nn.Module):
    """A translator that gives what it was told to."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, source, lengths, target):
        del source, lengths
        return self.logits[:, : target.shape[1]]


def test_figures_by_hand_and_without_smoothing(batches):
    """Of the pairs 4 and 6 five answers count: g, f, end and c, end."""
    batch = batches.collate([4, 6])
    shares = torch.full((2, 3, TOKENIZER.vocab_size), 0.01)
    for row, place, token, share in [
        *[(0, 0, G, 0.5), (0, 1, A, 0.8), (0, 1, F, 0.125), (0, 2, END, 0.25)],
        *[(1, 0, C, 0.75), (1, 1, B, 0.5)],
        # Not an answer, and yet the likeliest of all.
        (1, 2, 0, 0.9),
    ]:
        shares[row, place, token] = share
    shares /= shares.sum(-1, keepdim=True)
    task = TranslateObjective(Fixed(shares.log()), smoothing=0.3)
    sums = {name: value.item() for name, value in task.validate(batch).items()}
    told = [shares[0, 0, G], shares[0, 1, F], shares[0, 2, END], shares[1, 0, C], shares[1, 1, END]]
    loss = -sum(math.log(share) for share in told)
    assert sums == {"loss": pytest.approx(loss), "targets": 5, "right": 3}
    assert task.metrics(sums) == {
        "loss": pytest.approx(loss / 5),
        "perplexity": pytest.approx(math.exp(loss / 5)),
        "accuracy": pytest.approx(3 / 5),
    }
    assert TranslateObjective(Fixed(shares.log()), smoothing=0.0).loss(batch) == pytest.approx(loss)
    assert task.loss(batch).item() > loss + 0.01


def test_a_loss_beyond_all_numbers_has_a_perplexity(batches):
    task = TranslateObjective(model_of(), smoothing=0.0)
    assert math.isfinite(task.metrics({"loss": 1e6, "targets": 5, "right": 0})["perplexity"])


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_of_a_batch_sum_to_the_whole(parts, batches):
    task = TranslateObjective(model_of(), smoothing=0.2)
    order = [3, 0, 6, 2, 1, 5, 4]
    whole = task.validate(batches.collate(order))
    dealt = [order[part::parts] for part in range(parts)]
    sums = [task.validate(batches.collate(part)) for part in dealt]
    for name in ("loss", "targets", "right"):
        torch.testing.assert_close(sum(each[name] for each in sums), whole[name])
    assert sum(map(batches.count, dealt)) == batches.count(order) == whole["targets"]
    losses = [task.loss(batches.collate(part)) for part in dealt]
    torch.testing.assert_close(sum(losses), task.loss(batches.collate(order)))
