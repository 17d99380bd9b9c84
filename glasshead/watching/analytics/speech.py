"""Word timestamps of speech: the monotonic path through the cross-attention of a decoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.validation import positive, whole_number
from glasshead.watching.layer_record import Watched, check_whole
from glasshead.watching.seen import Seen


class AlignmentHead(NamedTuple):
    """The degree to which a head of cross-attention follows the sound as the text goes on.

    Attributes:
        layer: The number of its layer, among those with cross-attention.
        head: The number of the head.
        score: From 0, or a little below, to 1.
    """

    layer: int
    head: int
    score: float


class SpokenWord(NamedTuple):
    """A word, and when it is spoken, in seconds."""

    text: str
    start: float
    end: float


@torch.no_grad()
def token_timestamps(
    seen: Seen,
    heads: Sequence[Sequence[Any]],
    *,
    prompt: int = 0,
    frames: int | Sequence[int] | None = None,
    median_filter: int = 7,
    seconds: float = 0.02,
) -> Float[Tensor, "batch tokens"]:
    """Compute when each token of a transcript is spoken, in seconds.

    The weights of the alignment heads, text × sound, are normalized over the text, (w - mean)/std,
    smoothed along the sound by a median filter, and averaged over heads; the path of largest sum
    that never goes back, found by dynamic time warping, crosses each token at its time. Only the
    rows of these heads are computed, whatever kernel the model ran on.

    These are the numbers of `generate(return_token_timestamps=True)` of transformers' Whisper, for
    which it sets the model to its eager mode. The tokens of the prompt have time 0, and the last
    token, which was never read, the time of the one before.

    Args:
        seen: The result of a watch with `keep="weights"` around `generate`, with beams that of
            `seen.follow`; the last text, which of long sound is its last segment.
        heads: (layer, head) of each alignment head, as in `model.generation_config.alignment_heads`
            or of `gh.alignment_heads`.
        prompt: How many tokens the decoder was given before it wrote.
        frames: How many positions of the encoder are sound, and not padding, for each text or for
            all; None: all. Of Whisper, half of the frames of its features.
        median_filter: Width of the filter in positions, odd; Whisper's `median_filter_width`.
        seconds: How long a position is.

    Errors: a TypeError or ValueError if an argument is invalid or the weights were not kept.

    Source: Radford et al. 2023 (Robust speech recognition via large-scale weak supervision), its
    code of word timestamps; Sakoe & Chiba 1978 (Dynamic programming algorithm optimization for
    spoken word recognition).
    """
    layers = list(_crossing(seen, "token_timestamps").values())
    weights = torch.stack(
        [
            _weights(layers, whole_number(layer, "heads"), whole_number(head, "heads"))
            for layer, head, *_ in _checked_heads(heads)
        ],
        1,
    )
    prompt, width = whole_number(prompt, "prompt"), _odd(median_filter)
    batch, tokens = weights.shape[0], weights.shape[2]
    lengths = _lengths(frames, batch, weights.shape[-1])
    times = torch.zeros(batch, tokens + 1)
    if prompt >= tokens:
        return times
    for row, (own, length) in enumerate(zip(weights[:, :, prompt:], lengths, strict=True)):
        matrix = _smoothed(own[..., :length], width).mean(0)
        text, sound = time_warping(-matrix.cpu().double().numpy())
        starts = sound[np.diff(text, prepend=-1) > 0]
        spoken = torch.from_numpy(starts * positive(seconds, "seconds"))
        times[row, prompt:] = torch.cat([spoken, spoken[-1:]])
    return times


@torch.no_grad()
def alignment_heads(
    seen: Seen, *, prompt: int = 0, frames: int | Sequence[int] | None = None
) -> list[AlignmentHead]:
    """Rank the heads of cross-attention by how far they align the text with the sound, best first.

    score = 1/n Σ_(i,j) (w_ij - mean_i w_ij) over the pairs of token i and position j on the path of
    largest sum that never goes back. A head that goes through the sound with the text has almost 1,
    one that looks everywhere, always at the same position or backwards about 0. A fine-tuned model,
    whose heads nobody has listed, is thus given its own.

    Args:
        seen: The result of a watch with `keep="weights"`; the last text, of some ten tokens at
            least. Scores are averaged over the batch.
        prompt, frames: As of `token_timestamps`.

    Errors: as of `token_timestamps`.

    >>> import torch
    >>> import glasshead as gh
    >>> class Reader(torch.nn.Module):
    ...     def forward(self, text, sound):
    ...         return torch.nn.functional.scaled_dot_product_attention(text, sound, sound)
    >>> steps = 20 * torch.eye(13)
    >>> text = torch.stack([steps[:11:2], torch.zeros(6, 13)])[None]  # the first head aligns
    >>> reader = Reader()
    >>> with gh.watch(reader, keep="weights") as seen:
    ...     context = reader(text, steps.expand(1, 2, 13, 13))
    >>> [(layer, head, round(score, 2)) for layer, head, score in gh.alignment_heads(seen)]
    [(0, 0, 0.83), (0, 1, 0.0)]
    """
    found = []
    for number, layer in enumerate(_crossing(seen, "alignment_heads").values()):
        count = layer.weights.shape[-3] if len(layer.weights.shape) > 3 else 1
        for head in range(count):
            weights = _weights([layer], 0, head)[:, whole_number(prompt, "prompt") :]
            lengths = _lengths(frames, len(weights), weights.shape[-1])
            scores = [_score(own[:, :length]) for own, length in zip(weights, lengths, strict=True)]
            found.append(AlignmentHead(number, head, float(np.mean(scores))))
    return sorted(found, key=lambda head: -head.score)


def word_timestamps(
    tokens: Sequence[int] | Int[Tensor, " tokens"],
    times: Sequence[float] | Float[Tensor, " tokens"],
    tokenizer: Any,
    *,
    spaces: bool = True,
) -> list[SpokenWord]:
    """Join tokens to words, each from its first token's time to the next word's.

    Args:
        tokens: The tokens of one text, without the prompt's tokens.
        times: Their times, of `token_timestamps`.
        tokenizer: Its tokenizer, with `decode`; special tokens are omitted.
        spaces: Whether words are divided by spaces; if not, as in Chinese, each character is a
            word.

    Errors: a ValueError if there are not as many times as tokens.

    >>> class Letters:
    ...     all_special_ids = [0]
    ...     def decode(self, tokens):
    ...         return "".join(" ab."[token - 1] for token in tokens)
    >>> word_timestamps([1, 2, 3, 1, 3, 4, 0], [0.0, 0.2, 0.5, 0.9, 1.0, 1.3, 1.4], Letters())
    [SpokenWord(text='ab', start=0.0, end=0.9), SpokenWord(text='b.', start=0.9, end=1.4)]
    """
    tokens = [int(token) for token in tokens]
    starts = [float(time) for time in times]
    if len(tokens) != len(starts):
        raise ValueError(
            f"word_timestamps needs a time for each token, got {len(tokens)} tokens and "
            f"{len(starts)} times. Omit the prompt from both."
        )
    special = {*getattr(tokenizer, "all_special_ids", ())}
    words: list[SpokenWord] = []
    waiting: list[int] = []
    begins = True
    for place, token in enumerate(tokens):
        if token in special:
            begins = True
            continue
        waiting.append(token)
        text = tokenizer.decode(waiting)
        if "\ufffd" in text:
            # The first bytes of a character, whose others follow.
            continue
        start = starts[place - len(waiting) + 1]
        end = starts[min(place + 1, len(starts) - 1)]
        if begins or not spaces or text[:1].isspace() or not words:
            words.append(SpokenWord(text, start, end))
        else:
            words[-1] = SpokenWord(words[-1].text + text, words[-1].start, end)
        waiting, begins = [], False
    return [word._replace(text=word.text.strip()) for word in words if word.text.strip()]


def time_warping(
    cost: Float[np.ndarray, "text sound"],
) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, " steps"]]:
    """Find the path of least cost through a matrix that never goes back, by its rows and columns.

    D_ij = c_ij + min(D_i-1,j-1, D_i-1,j, D_i,j-1), in float32, one antidiagonal at a time; of equal
    ones the step along the sound is taken.

    >>> rows, columns = time_warping(np.array([[0.0, 0.0, 9.0], [9.0, 9.0, 0.0]]))
    >>> rows.tolist(), columns.tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    text, sound = cost.shape
    totals = np.full((text + 1, sound + 1), np.inf, np.float32)
    totals[0, 0] = 0.0
    steps = np.full((text + 1, sound + 1), 2, np.int8)
    steps[1:, 0] = 1
    for diagonal in range(text + sound - 1):
        i = np.arange(max(0, diagonal - sound + 1), min(text, diagonal + 1))
        j = diagonal - i
        both, down, along = totals[i, j], totals[i, j + 1], totals[i + 1, j]
        step = np.where((both < down) & (both < along), 0, 2)
        step = np.where((down < both) & (down < along), 1, step)
        totals[i + 1, j + 1] = cost[i, j] + np.choose(step, (both, down, along))
        steps[i + 1, j + 1] = step
    path, i, j = [], text, sound
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = steps[i, j]
        i, j = i - (step != 2), j - (step != 1)
    rows, columns = np.array(path[::-1]).T
    return rows, columns


def _score(weights: Float[Tensor, "text sound"]) -> float:
    """Return the mean weight on the best path, above the mean of its position."""
    above = (weights - weights.mean(0)).cpu().double().numpy()
    text, sound = time_warping(-above)
    return float(above[text, sound].sum() / len(weights))


def _smoothed(
    weights: Float[Tensor, "heads text sound"], width: int
) -> Float[Tensor, "heads text sound"]:
    """Normalize over the text and smooth along the sound, as Whisper does."""
    std = weights.std(-2, keepdim=True, unbiased=False)
    # A position that all tokens look at alike tells nothing of any.
    weights = torch.where(std > 0, (weights - weights.mean(-2, keepdim=True)) / std, 0.0)
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    padded = F.pad(weights, (half, half, 0, 0), mode="reflect")
    return padded.unfold(-1, width, 1).sort()[0][..., half]


def _crossing(seen: Seen, name: str) -> dict[str, Watched]:
    """Return the cross-attention of a decoder, by layer.

    Errors: a TypeError or ValueError if there is none.
    """
    if not isinstance(seen, Seen):
        raise TypeError(
            f"{name} needs the result of a watch, got {type(seen).__name__}. Pass seen from 'with "
            "gh.watch(…) as seen'."
        )
    found = {each: one for each, one in seen.observed.items() if one[-1].crossing}
    if not found:
        raise ValueError(
            f"{name} needs the cross-attention from text to sound, but the watch observed none. "
            "Run the decoder inside the block, and include its layers in layers=."
        )
    for each, one in found.items():
        check_whole(each, one, name)
    return found


def _weights(layers: Sequence[Watched], layer: int, head: int) -> Float[Tensor, "batch text sound"]:
    """Return the weights of one head of each text."""
    if layer >= len(layers):
        raise ValueError(
            f"layers in heads must be in 0..{len(layers) - 1}, the observed layers with "
            f"cross-attention, got {layer}. Watch all layers."
        )
    W = layers[layer].weights
    if len(W.shape) != 4:
        raise ValueError(f"heads need attention [batch, heads, text, sound], got {list(W.shape)}.")
    if head >= W.shape[1]:
        raise ValueError(f"heads must be in 0..{W.shape[1] - 1} for layer {layer}, got {head}.")
    return torch.stack([W.head(row, head).dense() for row in range(W.shape[0])])


def _checked_heads(heads: Any) -> list[Sequence[Any]]:
    listed = heads.tolist() if isinstance(heads, Tensor) else heads
    if not isinstance(listed, list | tuple) or not listed or isinstance(listed[0], int):
        raise TypeError(
            f"heads must be a list of (layer, head) pairs, such as [(2, 4)], got {heads!r}."
        )
    return list(listed)


def _odd(width: int) -> int:
    width = whole_number(width, "median_filter", least=1)
    if width % 2 == 0:
        raise ValueError(f"median_filter must be an odd number, got {width}.")
    return width


def _lengths(frames: Any, batch: int, most: int) -> list[int]:
    """Return how many positions of each text are sound."""
    if frames is None:
        return [most] * batch
    listed = frames.tolist() if isinstance(frames, Tensor) else frames
    given = list(listed) if isinstance(listed, list | tuple) else [listed] * batch
    if len(given) != batch:
        raise ValueError(
            f"frames must be a number for each of {batch} texts, or one for all, got {len(given)}."
        )
    return [min(most, whole_number(one, "frames", least=1)) for one in given]
