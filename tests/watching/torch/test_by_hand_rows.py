"""Rows of the scores are the texts of a batch or the heads of one text, as the module was given."""

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.torch.explicit import check, nothing_is_open, undisturbed, weights

TEXTS, LENGTH, WIDTH, HEADS = 3, 7, 10, 5


class OfIds(nn.Module):
    """Embedding and attention in one class, as tutorials write it."""

    def __init__(self, turned=False):
        super().__init__()
        self.embed, self.turned = nn.Embedding(101, WIDTH), turned
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def vectors(self, ids):
        return self.embed(ids.T if self.turned else ids)

    def forward(self, ids):
        x = self.vectors(ids)
        return (self.query(x) @ self.key(x).mT).softmax(-1) @ x

    def expected(self, ids):
        x = self.vectors(ids)
        parts = (part(x).detach().unsqueeze(1) for part in (self.query, self.key))
        return weights(*parts, scale=1.0)


def ids(texts=TEXTS, length=LENGTH):
    torch.manual_seed(5)
    return torch.randint(101, (texts, length))


@pytest.mark.parametrize("shape", [(TEXTS, LENGTH), (TEXTS, TEXTS), (1, LENGTH), (LENGTH, 2)])
@pytest.mark.parametrize("turned", [False, True])
def test_texts_of_ids_are_rows_of_the_batch(turned, shape):
    model = OfIds(turned).double()
    given = ids(*shape)
    given = given.T.contiguous() if turned else given
    call = undisturbed(model, given)[""][-1]
    assert call.shape == (shape[0], 1, shape[1])
    check(call, model.expected(given), tolerance=1e-6)


def test_texts_of_ids_have_no_second_head():
    model = OfIds()
    with (
        pytest.raises(ValueError, match="heads must be in 0..0 for '', got 1"),
        gh.watch(model, [gh.Entropy()]),
        gh.intervene(model, {"": gh.ZeroAblation(heads=[1])}),
    ):
        model(ids())
    assert nothing_is_open()


def test_numbers_that_are_embedded_one_by_one_are_tokens():
    class OfNumbers(OfIds):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(1, WIDTH)

        def vectors(self, ids):
            return self.embed(ids.unsqueeze(-1))

    model, given = OfNumbers().double(), torch.randn(TEXTS, LENGTH, dtype=torch.float64)
    call = undisturbed(model, given)[""][-1]
    check(call, model.expected(given), tolerance=1e-6)


class Heads(nn.Module):
    """Heads in the first axis: of one text, or those of each text of a batch after one another."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(101, HEADS * WIDTH)

    def forward(self, x):
        x = x if x.is_floating_point() else self.embed(x)
        parts = x.unflatten(-1, (HEADS, -1)).transpose(-3, -2)
        parts = parts.flatten(0, 1) if parts.ndim > 3 else parts
        return (parts @ parts.mT).softmax(-1) @ parts


@pytest.mark.parametrize("length", [LENGTH, HEADS])
@pytest.mark.parametrize("vectors", [False, True])
def test_a_text_alone_has_heads(vectors, length):
    text = torch.randn(length, HEADS * WIDTH) if vectors else ids(1, length)[0]
    call = undisturbed(Heads(), text)[""][-1]
    assert call.shape == (1, HEADS, length)


def test_heads_of_texts_of_ids_are_counted_by_the_texts():
    call = undisturbed(Heads(), ids())[""][-1]
    assert call.shape == (TEXTS, HEADS, LENGTH)


class Chunked(nn.Module):
    """Attends within chunks of a text, as Reformer does."""

    def __init__(self, size):
        super().__init__()
        self.size, self.num_heads = size, HEADS

    def forward(self, x):
        parts = x.unflatten(-1, (HEADS, -1)).transpose(1, 2).unflatten(2, (-1, self.size))
        return ((parts @ parts.mT).softmax(-1) @ parts).flatten(2, 3).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("chunks", [2, HEADS])
def test_chunks_are_no_heads(chunks):
    x = torch.randn(TEXTS, 7 * chunks, HEADS * WIDTH)
    sentence = "splits its text into chunks of 7 tokens, whose keys do not have the places of the"
    model = Chunked(7)
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        model(x)
