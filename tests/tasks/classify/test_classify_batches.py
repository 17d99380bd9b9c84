"""Batches of labelled texts: what is read of each, and that no text hears of its neighbours."""

import pytest
import torch

import glasshead as gh
from glasshead.tasks.classify.train import ClassifyData, ClassifyObjective, LabelledBatches, encoded
from glasshead.tasks.tokenizers.train_tokenizer import words

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TOKENIZER = words([" ".join(WORDS)], 100)
A, B, C, D, E, F, G, H = TOKENIZER.encode(" ".join(WORDS))
PAD = TOKENIZER.pad_id
LABELLED = [
    ("a b c", "good"),
    ("", "bad"),
    ("d e f g h a b", "so so"),
    ("c", "good"),
    ("h h", "bad"),
    ("b a d e f", "good"),
    (" ", "so so"),
]


def data_of(**given):
    return ClassifyData(**{"answers": ("bad", "good", "so so"), "batch_tokens": 17, **given})


@pytest.fixture
def batches():
    return LabelledBatches(TOKENIZER, LABELLED, data_of(), seed=3)


@pytest.mark.parametrize(
    ("first", "last", "read"),
    [
        (3, 2, [A, B, C, G, H]),
        (5, 0, [A, B, C, D, E]),
        (1, 6, [A, C, D, E, F, G, H]),
        (5, 3, [A, B, C, D, E, F, G, H]),
        (4, 9, [A, B, C, D, E, F, G, H]),
    ],
)
def test_of_a_long_text_the_first_and_the_last_tokens_are_read(first, last, read):
    data = data_of(first=first, last=last)
    assert encoded(TOKENIZER, [" ".join(WORDS), "h g", ""], data) == [read, [H, G], []]


def test_texts_stand_side_by_side_with_their_lengths_and_answers(batches):
    found = batches.collate([0, 1, 4])
    assert found["tokens"].tolist() == [[A, B, C], [PAD, PAD, PAD], [H, H, PAD]]
    assert found["lengths"].tolist() == [3, 0, 2]
    assert found["answers"].tolist() == [1, 0, 0]


def test_an_epoch_has_every_text_once_in_batches_that_fit(batches):
    epochs = [batches.batches(epoch) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(index for batch in epoch for index in batch) == [*range(len(LABELLED))]
        for batch in epoch:
            assert batches.collate(batch)["tokens"].numel() <= 17
            assert batches.count(batch) == len(batch) == len(batches.collate(batch)["answers"])
    assert epochs[0] == batches.batches(0)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]


def model_of(**given):
    torch.manual_seed(7)
    sizes = {"vocab_size": TOKENIZER.vocab_size, "d_model": 12, "num_heads": 3, "num_layers": 2}
    config = gh.ClassifierConfig(**{**sizes, "num_answers": 3, "dropout": 0.0, **given})
    model = gh.Classifier(config).double()
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
    {"pooling": "max", "positions": "sinusoidal", "order": "post", "embedding_norm": True},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"pooling": "mean", "positions": "alibi"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_batch_learns_what_its_texts_learn_alone(settings, batches):
    task = ClassifyObjective(model_of(**settings), smoothing=0.2)
    together, gradient = learned(task, batches.collate(range(7)))
    apart = [learned(task, batches.collate([index])) for index in range(7)]
    torch.testing.assert_close(together, sum(loss for loss, _ in apart))
    for place, whole in enumerate(gradient):
        torch.testing.assert_close(whole, sum(own[place] for _, own in apart))
        assert whole.any()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_stands_in_the_padding_changes_nothing(settings, batches):
    task = ClassifyObjective(model_of(**settings))
    batch = batches.collate(range(7))
    real = torch.arange(7) < batch["lengths"][:, None]
    noise = torch.randint(TOKENIZER.vocab_size, batch["tokens"].shape)
    other = {**batch, "tokens": batch["tokens"].where(real, noise)}
    assert not torch.equal(batch["tokens"], other["tokens"])
    expected = learned(task, batch)
    torch.testing.assert_close(learned(task, other), expected)


class Fixed(torch.nn.Module):
    """A classifier that gives what it was told to."""

    def __init__(self, shares):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(shares).log())

    def forward(self, tokens, lengths):
        del lengths
        return self.logits[: len(tokens)]


def test_figures_by_hand_and_without_smoothing(batches):
    # The right answers are good, bad and so so: numbers 1, 0 and 2.
    shares = [[0.25, 0.5, 0.25], [0.125, 0.75, 0.125], [0.2, 0.2, 0.6]]
    task, batch = ClassifyObjective(Fixed(shares), smoothing=0.3), batches.collate([0, 1, 2])
    sums = {name: value.item() for name, value in task.validate(batch).items()}
    loss = -torch.tensor([0.5, 0.125, 0.6]).log().sum().item()
    assert sums == {"loss": pytest.approx(loss), "targets": 3, "right": 2}
    assert task.metrics(sums) == {
        "loss": pytest.approx(loss / 3),
        "accuracy": pytest.approx(2 / 3),
    }
    smoothed = ClassifyObjective(Fixed(shares)).loss(batch)
    assert smoothed.item() == pytest.approx(loss)
    assert task.loss(batch).item() > loss + 0.01


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_of_a_batch_sum_to_the_whole(parts, batches):
    task = ClassifyObjective(model_of(), smoothing=0.2)
    order = [3, 0, 6, 2, 1, 5, 4]
    whole = task.validate(batches.collate(order))
    dealt = [order[part::parts] for part in range(parts)]
    sums = [task.validate(batches.collate(part)) for part in dealt]
    for name in ("loss", "targets", "right"):
        torch.testing.assert_close(sum(each[name] for each in sums), whole[name])
    assert sum(map(batches.count, dealt)) == batches.count(order) == whole["targets"]
    losses = [task.loss(batches.collate(part)) for part in dealt]
    torch.testing.assert_close(sum(losses), task.loss(batches.collate(order)))
