"""Word timestamps: those of transformers in eager mode, from the fused kernel."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.analytics.speech import time_warping
from watched_models import whisper

HEADS = [[0, 1], [1, 0], [1, 2]]
PROMPT, TOKENS, POSITIONS = 2, 13, 47


def speaker(attention: str) -> nn.Module:
    """A Whisper of random weights, whose sound has 47 positions."""
    model = whisper(attention, max_source_positions=POSITIONS, median_filter_width=5)
    settings = model.generation_config
    settings.alignment_heads, settings.is_multilingual = HEADS, False
    settings.no_timestamps_token_id, settings.max_length = 60, None
    settings.suppress_tokens = settings.begin_suppress_tokens = None
    return model


def written(model: nn.Module, sound: torch.Tensor, **others: Any) -> Any:
    length = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    return model.generate(sound, do_sample=False, **length, **others)


# Of transformers, for lengths that differ.
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")
@pytest.mark.parametrize("lengths", [None, (POSITIONS, POSITIONS), (31, POSITIONS)])
def test_times_are_those_of_transformers_in_eager_mode(lengths):
    sound, given = torch.randn(2, 3, 2 * POSITIONS, generator=torch.manual_seed(5)), {}
    if lengths is not None:
        frames = torch.arange(2 * POSITIONS)
        mask = torch.stack([frames < 2 * length for length in lengths]).long()
        given["attention_mask"] = mask
    theirs = written(speaker("eager"), sound, return_token_timestamps=True, **given)
    model = speaker("sdpa")
    with gh.watch(model, keep="weights", layers="*encoder_attn") as seen:
        tokens = written(model, sound, **given)
    times = gh.token_timestamps(seen, HEADS, prompt=PROMPT, frames=lengths, median_filter=5)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(tokens, theirs["sequences"])
    assert torch.equal(times[:, PROMPT:], theirs["token_timestamps"])
    assert not times[:, :PROMPT].any()
    assert len(times.unique()) > 3


def plain_warping(cost: np.ndarray) -> tuple[list[int], list[int]]:
    """Dynamic time warping as it is written in books, one pair at a time."""
    text, sound = cost.shape
    totals = {(0, 0): np.float32(0)}
    steps = {}
    infinite = np.float32(np.inf)
    for i, j in itertools.product(range(1, text + 1), range(1, sound + 1)):
        before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
        both, down, along = (totals.get(one, infinite) for one in before)
        step = 2
        if both < down and both < along:
            step = 0
        elif down < both and down < along:
            step = 1
        steps[i, j] = before[step]
        totals[i, j] = np.float32(cost[i - 1, j - 1] + totals.get(before[step], infinite))
    path, place = [], (text, sound)
    while place in steps:
        path.append((place[0] - 1, place[1] - 1))
        place = steps[place]
    while place != (0, 0):
        path.append((place[0] - 1, place[1] - 1))
        place = (place[0] - 1, 0) if place[1] == 0 else (0, place[1] - 1)
    rows, columns = zip(*path[::-1], strict=True)
    return list(rows), list(columns)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 11), (11, 5), (13, 13)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_path_is_that_of_the_plain_algorithm(shape, ties):
    random = np.random.default_rng(3)
    for _ in range(5):
        cost = random.normal(size=shape)
        cost = cost.round() if ties else cost
        rows, columns = time_warping(cost)
        assert (rows.tolist(), columns.tolist()) == plain_warping(cost)


class Reader(nn.Module):
    def forward(self, text, sound):
        return F.scaled_dot_product_attention(text, sound, sound)


def read(*looks: list[int]) -> gh.Seen:
    """A text of eleven tokens of which each head looks at some positions of seventeen."""
    sound = 20 * torch.eye(17)
    text = torch.stack([sound[one] if one else torch.zeros(11, 17) for one in looks])
    reader = Reader()
    with gh.watch(reader, keep="weights") as seen:
        reader(text[None], sound.expand(1, len(looks), 17, 17))
    return seen


def test_the_head_that_goes_through_the_sound_with_the_text_is_found():
    onward, back = list(range(3, 14)), list(range(13, 2, -1))
    nowhere, everywhere = [4] * 11, []
    found = gh.alignment_heads(read(nowhere, onward, everywhere, back))
    assert found[0].head == 1
    scores = {head.head: head.score for head in found}
    # Each token has a position of its own, which a mean token looks at once in eleven times.
    assert scores[1] == pytest.approx(10 / 11, abs=0.02)
    # Of what goes back, the path finds one token, and pays for it at the others' positions.
    for head in (0, 2, 3):
        assert scores[head] == pytest.approx(0, abs=1e-3)


def test_a_token_is_spoken_where_its_head_looks():
    seen = read([1, 2, 4, 5, 6, 9, 10, 11, 13, 14, 16])
    times = gh.token_timestamps(seen, [(0, 0)], median_filter=1, seconds=0.5)
    # The first token begins with the sound, and the last that was read is the last but one.
    expected = [0, 2, 4, 5, 6, 9, 10, 11, 13, 14, 16, 16]
    found = (times[0] / 0.5).round().long().tolist()
    assert found == expected


def test_what_cannot_be_told_is_refused():
    seen = read(list(range(11)))
    refused = {
        "layers in heads must be in 0..0, the observed layers with": ([(1, 0)], {}),
        "heads must be in 0..0 for layer 0, got 1": ([(0, 1)], {}),
        "median_filter must be an odd number, got 4": ([(0, 0)], {"median_filter": 4}),
        "a number for each of 1 texts": ([(0, 0)], {"frames": [3, 4]}),
    }
    for sentence, (heads, given) in refused.items():
        with pytest.raises(ValueError, match=sentence):
            gh.token_timestamps(seen, heads, **given)
    with pytest.raises(TypeError, match=r"heads must be a list of \(layer, head\) pairs"):
        gh.token_timestamps(seen, [0, 1])
    rule, x = gh.Attention(), torch.zeros(1, 2, 3, 5)
    with gh.watch(rule, keep="weights") as alone:
        rule(x, x, x)
    with pytest.raises(ValueError, match="alignment_heads needs the cross-attention from text"):
        gh.alignment_heads(alone)
    with pytest.raises(TypeError, match="got int"):
        gh.alignment_heads(3)
    with pytest.raises(ValueError, match="got 2 tokens and 1 times"):
        gh.word_timestamps([1, 2], [0.0], None)


class Bytes:
    """A tokenizer of bytes, whose number 0 is special."""

    all_special_ids = (0,)

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")


def test_tokens_become_words_and_bytes_characters():
    tokens = [*" né 你!".encode(), 0]
    times = [0.1 * place for place in range(len(tokens))]
    words = gh.word_timestamps(tokens, times, Bytes())
    assert [word.text for word in words] == ["né", "你!"]
    assert words[0].start == 0
    assert words[1].start == pytest.approx(0.4)
    characters = gh.word_timestamps(tokens, times, Bytes(), spaces=False)
    assert [word.text for word in characters] == ["n", "é", "你", "!"]
    assert characters[1].start == pytest.approx(0.2)
    assert characters[1].end == pytest.approx(0.4)
