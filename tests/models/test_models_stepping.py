"""A text that grows beyond a model's context is seen from half a context back on, row by row."""

import pytest
import torch

import glasshead as gh
from glasshead.models.language_model import LanguageModelSteps

CONTEXT, KEPT = 7, 3


@pytest.fixture(scope="module", params=["rotary", "learned"])
def model(request):
    torch.manual_seed(0)
    config = gh.LanguageModelConfig(
        vocab_size=11,
        context_length=CONTEXT,
        d_model=8,
        num_heads=2,
        num_layers=2,
        positions=request.param,
    )
    return gh.LanguageModel(config).eval()


def begun(text):
    """From where on the last token is seen: fed one by one, the pages turn where a context ends."""
    length = first = 0
    for _ in range(text.shape[1]):
        length += 1
        if length > CONTEXT:
            first += length - KEPT
            length = KEPT
    return first


@torch.inference_mode()
def read(model, text, padding=None):
    """The logits of the token after a text, read at once and without a cache."""
    first = begun(text)
    if padding is not None:
        padding = (padding - first).clamp(min=0)
    return model.logits(model.hidden(text[:, first:], padding=padding)[:, -1])


@pytest.mark.parametrize("padding", [None, torch.tensor([2, 0, 4])])
def test_each_page_is_the_end_of_the_text(model, padding):
    text, steps = torch.randint(11, (3, 23)), LanguageModelSteps(model, padding)
    steps.next(text[:, :5])
    for length in range(6, 24):
        logits = steps.next(text[:, length - 1 : length])
        torch.testing.assert_close(logits, read(model, text[:, :length], padding))


def test_rows_take_their_texts_with_them(model):
    text, steps = torch.randint(11, (3, 23)), LanguageModelSteps(model)
    steps.reorder(torch.tensor([0]))  # Nothing is there yet.
    steps.next(text[:, :5])
    for length, rows in ((6, [2, 0, 0]), (7, [1, 1, 2]), (8, [0, 2]), (9, [1, 0, 1])):
        steps.reorder(torch.tensor(rows))
        text = text[rows]
        logits = steps.next(text[:, length - 1 : length])
        torch.testing.assert_close(logits, read(model, text[:, :length]))


def test_other_rows_than_are_held_are_refused(model):
    steps = LanguageModelSteps(model)
    steps.next(torch.zeros(3, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="a cache of 3 rows takes as many, and got 2"):
        steps.next(torch.zeros(2, 1, dtype=torch.long))
