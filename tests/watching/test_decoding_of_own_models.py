"""Texts of decoders with caches of their own are seen as they are alone, or reading them raises."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.models.decoding import Beam, Greedy, Sampling, generate
from watching.decoding import STATISTICS, Alone, Reading, Row

pytest.importorskip("pandas")

WORDS, HEADS, HEAD_DIM = 61, 3, 5
WIDTH, ROWS, LENGTH = HEADS * HEAD_DIM, 2, 11
PIECES = (5, 1, 3, 1, 1)
Past = list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    """Attention that goes on with keys and values that it is given, by a kernel or explicitly."""

    def __init__(self, explicit: bool) -> None:
        super().__init__()
        self.qkv, self.explicit = nn.Linear(WIDTH, 3 * WIDTH), explicit

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, ...]:
        q, k, v = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        if past is not None:
            k, v = (torch.cat(both, -2) for both in zip(past, (k, v), strict=True))
        sees = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(
            k.shape[-2] - q.shape[-2]
        )
        if self.explicit:
            scores = (q @ k.mT / HEAD_DIM**0.5).masked_fill(~sees, -torch.inf)
            context = scores.softmax(-1) @ v
        else:
            context = F.scaled_dot_product_attention(q, k, v, sees)
        return context.transpose(1, 2).flatten(2), k, v


class Decoder(nn.Module):
    """A decoder whose cache is a list of tensors that the caller keeps."""

    def __init__(self, explicit: bool) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Attention(explicit) for _ in range(2))

    def forward(self, tokens: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        before = past[0][0].shape[-2] if past else 0
        x = self.embedding(tokens) + self.places.weight[before : before + tokens.shape[1]]
        kept = []
        for number, layer in enumerate(self.layers):
            context, *own = layer(x, past[number] if past else None)
            x = x + context
            kept.append(tuple(own))
        return x, kept


class OwnTensors:
    """A text of `Decoder`, with its cache."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.past = model, None

    def read(self, tokens: Tensor) -> None:
        _, self.past = self.model(tokens, self.past)

    def reorder(self, rows: Tensor) -> None:
        self.past = [(k[rows], v[rows]) for k, v in self.past]


class OwnCache:
    """A text of `gh.LanguageModel`, with its cache."""

    def __init__(self, model: gh.LanguageModel) -> None:
        self.model, self.cache = model, model.new_cache()

    def read(self, tokens: Tensor) -> None:
        self.model(tokens, cache=self.cache)

    def reorder(self, rows: Tensor) -> None:
        self.cache.reorder(rows)


def loud(model: nn.Module) -> nn.Module:
    """Weights that leave attention neither flat nor one-hot."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    return model.eval().double()


def language_model() -> nn.Module:
    config = gh.LanguageModelConfig(
        vocab_size=WORDS, d_model=WIDTH, num_heads=HEADS, num_layers=2, context_length=LENGTH
    )
    return gh.LanguageModel(config)


WRITERS = {
    "kernel": (lambda: Decoder(explicit=False), OwnTensors),
    "explicit": (lambda: Decoder(explicit=True), OwnTensors),
    "glasshead": (language_model, OwnCache),
}


def words(rows: int = ROWS, length: int = LENGTH, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(WORDS, (rows, length), generator=generator)


def alone(model: nn.Module, *given: Tensor, **asked: Tensor) -> list[Alone]:
    """What each attention says of each text in one pass."""
    with gh.watch(model, keep="weights") as seen:
        model(*given, **asked)
    length = given[0].shape[1]
    return [
        {
            name: Row(one.weights.dense()[row], *_places(one, length), one[-1].crossing, False)
            for name, one in seen.items()
        }
        for row in range(len(given[0]))
    ]


def _places(watched: Any, length: int) -> tuple[Tensor, Tensor]:
    return torch.arange(length), torch.arange(watched[-1].keys)


@pytest.fixture(params=WRITERS)
def writer(request):
    """A model, and the class of its texts."""
    build, text = WRITERS[request.param]
    with torch.no_grad():
        yield loud(build()), text


def test_pieces_make_the_whole(writer):
    model, text = writer
    tokens, own = words(), text(model)
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        for piece in tokens.split(PIECES, 1):
            own.read(piece)
    assert not Reading(seen, alone(model, tokens)).check().refused


def test_of_two_texts_in_turn_the_last_is_that_of_its_own_cache(writer):
    model, text = writer
    first, second = words(), words(seed=5)
    one, other = text(model), text(model)
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        one.read(first[:, :5])
        other.read(second[:, :5])
        for place in range(5, LENGTH - 1):
            other.read(second[:, place : place + 1])
            one.read(first[:, place : place + 1])
    expected = alone(model, first[:, :-1])
    assert not Reading(seen, expected).check(without=("frame", "summary")).refused


def test_rows_that_change_places_are_those_of_the_texts_that_came_out(writer):
    model, text = writer
    tokens, rows, own = words(3), torch.tensor([2, 0, 0]), text(model)
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        own.read(tokens[:, :5])
        own.reorder(rows)
        own.read(tokens[:, 5:8])
        own.reorder(rows)
        own.read(tokens[:, 8:])
    came = torch.cat([tokens[rows[rows], :5], tokens[rows, 5:8], tokens[:, 8:]], 1)
    expected = alone(model, came)
    Reading(seen, expected).check(without=("frame",))
    assert not Reading(seen.follow(), expected).check().refused


class Noted:
    """Decoding steps that note which text each row has read."""

    def __init__(self, steps: Any) -> None:
        self.steps, self.read = steps, torch.empty(0)

    def next(self, tokens: Tensor) -> Tensor:
        self.read = torch.cat([self.read, tokens], 1) if len(self.read) else tokens
        return self.steps.next(tokens)

    def reorder(self, rows: Tensor) -> None:
        self.read = self.read[rows]
        self.steps.reorder(rows)


@pytest.mark.parametrize("strategy", [Greedy(), Sampling(top_k=7), Beam(3)], ids=repr)
@pytest.mark.parametrize("ends", [False, True])
def test_rows_of_glassheads_own_decoding_are_their_texts(strategy, ends):
    with torch.no_grad():
        model, prompt = loud(language_model()), words(3, 5)
        free = generate(model.steps(), prompt, strategy, max_tokens=5).tokens
        end, steps = free[1][1] if ends else None, Noted(model.steps())
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            generate(steps, prompt, strategy, max_tokens=5, end=end)
        expected = alone(model, steps.read)
        Reading(seen, expected).check(without=("frame", "summary"))
        assert not Reading(seen.follow(), expected).check().refused


def test_keys_that_are_cut_off_leave_the_text():
    with torch.no_grad():
        model, tokens = loud(Decoder(explicit=False)), words()
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            _, past = model(words(length=9, seed=5))
            _, past = model(tokens[:, :7])
            model(tokens[:, 5:], [(k[..., :5, :], v[..., :5, :]) for k, v in past])
        expected = alone(model, tokens)
        assert not Reading(seen, expected).check(without=("frame", "summary")).refused


def test_a_decoder_without_cache_reads_the_whole_text_again():
    with torch.no_grad():
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 29, dropout=0.0, batch_first=True)
        model = loud(nn.TransformerDecoder(layer, 2))
        text, memory = torch.randn(ROWS, 7, WIDTH).double(), torch.randn(ROWS, 5, WIDTH).double()
        later = torch.ones(7, 7, dtype=torch.bool).triu(1)
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            for end in range(3, 8):
                model(text[:, :end], memory, tgt_mask=later[:end, :end])
        expected = alone(model, text, memory, tgt_mask=later)
        assert not Reading(seen, expected).check(without=("frame", "summary")).refused
