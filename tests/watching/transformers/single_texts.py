"""Statistics of padded batches, computed from the eager weights of each text without padding."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from architectures import IMAGE_SIZE, LENGTHS, PAD, SOURCE_LENGTHS, Architecture
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models

TOLERANCE = {"rtol": 0.0, "atol": 1e-5, "check_dtype": False}
EDGES = [0, 1, 3, float("inf")]
STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top": gh.TopK(3),
    "sink": gh.MassOn([0]),
    "two": gh.MassOn([1, 4]),
    "largest": gh.MaxWeight(),
    "at": gh.ArgMax(),
    "far": gh.MeanDistance(),
    "lse": gh.LogSumExp(),
    "score": gh.MaxScore(),
}
# Of a batch alone, as these do not follow from those of its steps.
LAST = 2
OF_ONE_CALL = {"lately": gh.Received(last=LAST), "near": gh.DistanceHistogram(EDGES)}


@dataclass(frozen=True)
class Texts:
    """A batch of texts, some of them padded.

    Attributes:
        tokens: Padding included.
        real: Which are no padding.
        masked: Whether the model is given a mask.
    """

    tokens: Tensor
    real: Tensor
    masked: bool = True

    @property
    def mask(self) -> Tensor | None:
        """1 where a token is real, as a tokenizer gives it."""
        return self.real.long() if self.masked else None

    @property
    def positions(self) -> Tensor:
        """The place of each token in its text without padding."""
        return (self.real.cumsum(-1) - 1).clamp(min=0)

    def alone(self, row: int) -> Tensor:
        """One text without its padding, `[1, tokens]`."""
        return self.tokens[row][self.real[row]][None]

    def start(self, row: int) -> int:
        """Where the first token of a text stands in the batch."""
        return int(self.real[row].int().argmax())

    def repeated(self, times: int) -> "Texts":
        """Each text several times, as for beams."""
        return Texts(
            self.tokens.repeat_interleave(times, 0),
            self.real.repeat_interleave(times, 0),
            self.masked,
        )

    def going_on(self, tokens: Tensor) -> "Texts":
        """The same texts with what was written after them: `tokens` holds both."""
        written = torch.ones(len(tokens), tokens.shape[1] - self.real.shape[1], dtype=torch.bool)
        return Texts(tokens, torch.cat([self.real, written], 1), self.masked)


def texts(lengths: Sequence[int], side: str | None, seed: int = 3) -> Texts:
    """Texts that are padded at a side or at both, or, of the same length, not masked at all."""
    width = max(lengths)
    tokens = models.tokens(len(lengths), width, seed)
    if side in (None, "ones"):
        return Texts(tokens, torch.ones_like(tokens, dtype=torch.bool), masked=side == "ones")
    missing = width - torch.tensor(lengths)[:, None]
    starts = {"left": missing, "right": 0 * missing, "both": (missing + 1) // 2}[side]
    places = torch.arange(width)
    real = (places >= starts) & (places < starts + width - missing)
    return Texts(tokens.masked_fill(~real, PAD), real)


@dataclass(frozen=True)
class Batch:
    """What a model is given: a text each, an encoder's source beside it, or pictures or sound."""

    architecture: Architecture
    text: Texts
    source: Texts | None = None
    signal: Tensor | None = None

    def __len__(self) -> int:
        return len(self.text.tokens)

    def given(self) -> dict[str, Any]:
        """The arguments of the whole batch, padding included."""
        if self.architecture.kind == "image":
            return {"pixel_values": self.signal}
        before = "decoder_" if self.architecture.has_decoder else ""
        given = self.prompt() | {f"{before}input_ids": self.text.tokens}
        if self.text.masked:
            given[f"{before}attention_mask"] = self.text.mask
        if self.architecture.positions:
            given["position_ids"] = self.text.positions
        return given

    def prompt(self) -> dict[str, Any]:
        """What `generate` takes."""
        if self.signal is not None:
            return {"input_features": self.signal}
        read = self.source or self.text
        return {"input_ids": read.tokens} | ({"attention_mask": read.mask} if read.masked else {})

    def alone(self, rows: Sequence[int]) -> dict[str, Any]:
        """The arguments of some texts of the same length, without their padding."""
        own = torch.cat([self.text.alone(row) for row in rows])
        if self.architecture.kind == "image":
            return {"pixel_values": self.signal[rows]}
        if self.architecture.kind == "sound":
            return {"input_features": self.signal[rows], "decoder_input_ids": own}
        if self.source is not None:
            source = torch.cat([self.source.alone(row) for row in rows])
            return {"input_ids": source, "decoder_input_ids": own}
        return {"input_ids": own}

    def alike(self) -> list[list[int]]:
        """The rows of the batch, those together that have the same padding."""
        found: dict[bytes, list[int]] = {}
        for row in range(len(self)):
            real = [self.text.real[row], *([self.source.real[row]] if self.source else [])]
            found.setdefault(torch.cat(real).numpy().tobytes(), []).append(row)
        return list(found.values())

    def repeated(self, times: int) -> "Batch":
        """Each text several times, as for beams."""
        source = self.source and self.source.repeated(times)
        signal = None if self.signal is None else self.signal.repeat_interleave(times, 0)
        return Batch(self.architecture, self.text.repeated(times), source, signal)

    def going_on(self, tokens: Tensor) -> "Batch":
        """The same with what was written: all tokens that a decoder has read so far."""
        written = Texts(tokens, torch.ones_like(tokens, dtype=torch.bool), masked=False)
        text = written if self.architecture.has_decoder else self.text.going_on(tokens)
        return Batch(self.architecture, text, self.source, self.signal)

    def real(self, output: str, weights: Tensor, row: int) -> tuple[Tensor, Tensor]:
        """Which queries and keys of an attention are real, by the output that has its weights."""
        whole = [torch.ones(length, dtype=torch.bool) for length in weights.shape[-2:]]
        text = self.text.real[row]
        if self.architecture.kind == "image":
            return whole[0], whole[1]
        read = whole[1] if self.source is None else self.source.real[row]
        if output == "cross_attentions":
            return text, read
        return (read, read) if output == "encoder_attentions" else (text, text)


def batch_of(
    architecture: Architecture,
    side: str | None,
    lengths: Sequence[int] = LENGTHS,
    source: Sequence[int] = SOURCE_LENGTHS,
) -> Batch:
    """Three texts, padded at a side, and what their encoder reads, padded at the same."""
    dtype, generator = architecture.dtype, torch.Generator().manual_seed(5)
    text = texts(lengths, side)
    if architecture.kind == "image":
        return Batch(
            architecture,
            text,
            signal=torch.rand(3, 3, IMAGE_SIZE, IMAGE_SIZE, dtype=dtype, generator=generator),
        )
    if architecture.kind == "sound":
        return Batch(
            architecture, text, signal=torch.randn(3, 3, 22, dtype=dtype, generator=generator)
        )
    if architecture.kind == "encoder-decoder":
        return Batch(architecture, text, texts(source, side, seed=5))
    return Batch(architecture, text)


@dataclass(frozen=True)
class Dense:
    """The weights of one attention of a padded batch; those of and on padding are 0.

    Attributes:
        weights: `[batch, heads, queries, keys]`.
        lse: The logsumexp of the scores, `[batch, heads, queries]`; -inf of padding.
        real: Which queries are no padding, `[batch, queries]`.
    """

    weights: Tensor
    lse: Tensor
    real: Tensor

    def part(self, start: int, end: int, keys: int) -> "Dense":
        """The same of some queries, which know of the first keys alone."""
        own = slice(start, end)
        assert not self.weights[..., own, keys:].any()
        return Dense(self.weights[..., own, :keys], self.lse[..., own], self.real[:, own])


def dense_of(batch: Batch) -> dict[str, Dense]:
    """What eager attention says of each text without padding, put where the text stands."""
    architecture = batch.architecture
    model = architecture.model("eager")
    found: dict[str, dict[int, _Row]] = {}
    for rows in batch.alike():
        starts = {"decoder": batch.text.start(rows[0])}
        if batch.source is not None:
            starts["encoder"] = batch.source.start(rows[0])
        with torch.no_grad(), _positions(architecture, model, starts), _scores() as scores:
            output = model(**batch.alone(rows), output_attentions=True)
        for kind, names in architecture.layers(model).items():
            for name, weights in zip(names, output[kind], strict=True):
                lse = _lse(weights, scores, model, name)
                for row, *own in zip(rows, weights, lse, strict=True):
                    one = _Row(*own, *batch.real(kind, weights, row))
                    found.setdefault(name, {})[row] = one
    return {name: _together([rows[row] for row in sorted(rows)]) for name, rows in found.items()}


class _Row(NamedTuple):
    """The weights of one text without its padding, and which of the batch's places are its own."""

    weights: Tensor
    lse: Tensor
    queries: Tensor
    keys: Tensor


def _together(rows: Sequence[_Row]) -> Dense:
    """The weights of the texts of a batch, each among its padding."""
    queries, keys, heads = rows[0].queries.numel(), rows[0].keys.numel(), len(rows[0].weights)
    weights = rows[0].weights.new_zeros(len(rows), heads, queries, keys)
    lse = weights.new_full(weights.shape[:-1], -torch.inf)
    for row, one in enumerate(rows):
        pairs = (one.queries[:, None] & one.keys).expand(heads, -1, -1)
        weights[row][pairs] = one.weights.flatten()
        lse[row][one.queries.expand(heads, -1)] = one.lse.flatten()
    return Dense(weights, lse, torch.stack([one.queries for one in rows]))


@contextmanager
def _positions(
    architecture: Architecture, model: nn.Module, starts: dict[str, int]
) -> Iterator[None]:
    """While texts have the absolute positions at which they stand in their padded batch."""
    tables = {
        model.get_submodule(path): starts.get(text, 0) for text, path in architecture.tables.items()
    }
    before = {table: table.weight.data for table in tables}
    try:
        for table, start in tables.items():
            table.weight.data = before[table].roll(-start, 0)
        yield
    finally:
        for table, weight in before.items():
            table.weight.data = weight


@contextmanager
def _scores() -> Iterator[list[tuple[Tensor, Tensor]]]:
    """While softmaxes run: what each was given, and what it gave."""
    seen: list[tuple[Tensor, Tensor]] = []
    softmax = F.softmax

    def noted(given: Tensor, *args: Any, **named: Any) -> Tensor:
        made = softmax(given, *args, **named)
        seen.append((given, made))
        return made

    with patch.object(F, "softmax", noted):
        yield seen


def _lse(
    weights: Tensor, scores: list[tuple[Tensor, Tensor]], model: nn.Module, name: str
) -> Tensor:
    """The logsumexp of the scores of which these weights were made, of layers in their order."""
    keys = weights.shape[-1]
    for place, (given, made) in enumerate(scores):
        if made.shape[:-1] == weights.shape[:-1] and torch.equal(made[..., :keys], weights):
            del scores[place]
            lse = given.logsumexp(-1)
            if made.shape[-1] == keys:
                return lse
            # A sink is the last of the scores, all of which were moved by the same number.
            return lse + model.get_submodule(name).sinks[:, None] - given[..., -1]
    raise AssertionError("no softmax gave these weights")


def choices(architecture: Architecture, model: nn.Module) -> dict[str, tuple[Any, list[str]]]:
    """What `layers=` takes, and the attentions that it names."""
    patterns = {
        kind: name.partition("#")[0].format("*") for kind, name in architecture.attentions.items()
    }
    names = architecture.layers(model)
    first, last = next(iter(names)), [*names][-1]
    found: dict[str, tuple[Any, list[str]]] = {
        "pattern": (patterns[first], names[first]),
        "one": (names[last][1], [names[last][1]]),
        "some": ([names[last][0], names[first][1]], [names[last][0], names[first][1]]),
    }
    if "#" in names[last][1]:
        del found["one"], found["some"]
    if "cross_attentions" in names:
        found["crossing"] = patterns["cross_attentions"], names["cross_attentions"]
        crossed = [names["cross_attentions"][0], names["decoder_attentions"][1]]
        found["crossing first"] = crossed, crossed
    return found


def check(watched: Any, expected: Dense) -> None:
    """What was seen of an attention, in one call or in all of a text, is what these weights say."""
    W, real = expected.weights, expected.real
    of_heads = real[:, None].expand(W.shape[:-1])

    def same(name: str, told: Tensor) -> None:
        torch.testing.assert_close(
            getattr(watched, name)[of_heads],
            told[of_heads],
            **TOLERANCE,
            msg=lambda said: f"{name}: {said}",
        )

    same("entropy", -torch.special.xlogy(W, W).sum(-1))
    same("sink", W[..., 0])
    same("two", W[..., [key for key in (1, 4) if key < W.shape[-1]]].sum(-1))
    same("largest", W.amax(-1))
    same("lse", expected.lse)
    distance = _distances(*W.shape[-2:], watched.position)
    same("far", (W * distance).sum(-1))
    _check_keys(watched, W, of_heads)
    torch.testing.assert_close(watched.received, W.sum(-2), **TOLERANCE)
    scores = expected.lse + W.amax(-1).log()
    largest = scores.masked_fill(~of_heads, -torch.inf).amax(-1)
    # Scores may be of any size.
    torch.testing.assert_close(watched.score, largest, **TOLERANCE | {"rtol": 1e-5})
    kept = watched.weights.dense()
    # Of a call they begin with the first key that is left in the cache.
    gone = W.shape[-1] - kept.shape[-1]
    assert not W[of_heads][..., :gone].any()
    torch.testing.assert_close(kept[of_heads], W[..., gone:][of_heads], **TOLERANCE)


def check_one_call(watched: Any, expected: Dense) -> None:
    """What is told of one call alone is what these weights say, too."""
    W, real = expected.weights, expected.real
    last = real & (real.flip(-1).cumsum(-1).flip(-1) <= LAST)
    received = (W * last[:, None, :, None]).sum(-2)
    torch.testing.assert_close(watched.lately, received, **TOLERANCE)
    distance = _distances(*W.shape[-2:], watched.position)
    bins = [
        (W * ((distance >= low) & (distance < high))).sum((-2, -1)) for low, high in pairwise(EDGES)
    ]
    mean = torch.stack(bins, -1) / real.sum(-1)[:, None, None]
    torch.testing.assert_close(watched.near, mean, **TOLERANCE)


def _distances(queries: int, keys: int, position: int) -> Tensor:
    return (torch.arange(position, position + queries)[:, None] - torch.arange(keys)).abs()


def _check_keys(watched: Any, W: Tensor, of_heads: Tensor) -> None:
    """Two weights that are almost the same may change places, but not be other keys."""
    found, keys = (one[of_heads] for one in watched.top)
    W = W[of_heads]
    best = W.topk(min(3, W.shape[-1])).values
    torch.testing.assert_close(found[..., : best.shape[-1]], best, **TOLERANCE)
    at = watched.at[of_heads][..., None]
    for values, places in ((found, keys), (W.amax(-1, keepdim=True), at)):
        there = W.gather(-1, places.clamp(min=0))
        torch.testing.assert_close(torch.where(places >= 0, there, 0.0), values, **TOLERANCE)
        assert bool(((places >= 0) | (values == 0)).all())


def rolled_out(stack: Sequence[Dense]) -> Tensor:
    """All rows of the rollout of some layers, `[batch, tokens, tokens]`; 0 of padding."""
    own = torch.diag_embed(stack[0].real).to(stack[0].weights)
    reached = own
    for one in stack:
        reached = (one.weights.mean(-3) + own) / 2 @ reached
    return reached


def check_rollout(seen: gh.Seen, stack: Sequence[Dense], **asked: Any) -> None:
    """Rollout is that of these weights, from the front and from the end of each text."""
    expected, real = rolled_out(stack), stack[-1].real
    whole = gh.rollout(seen, range(real.shape[1]), **asked)
    torch.testing.assert_close(whole[real], expected[real], **TOLERANCE)
    last = torch.stack([text.nonzero()[-1] for text in real])
    own = expected.gather(1, last[..., None].expand(-1, -1, expected.shape[-1]))
    torch.testing.assert_close(gh.rollout(seen, **asked), own, **TOLERANCE)


def check_summary(seen: gh.Seen, expected: dict[str, Dense]) -> None:
    """Means are over the tokens of all texts, and the largest score is theirs."""
    summary = seen.summary()
    assert set(summary.names) == set(expected)
    for place, name in enumerate(summary.names):
        one = expected[name]
        W, real = one.weights.movedim(1, -1), one.real
        entropy = -torch.special.xlogy(W, W).sum(2)
        sink = W[:, :, 0]
        told = {"entropy": entropy, "sink": sink, "largest": W.amax(2)}
        told["lse"] = one.lse.movedim(1, -1)
        for statistic, values in told.items():
            mean = values[real].mean(0)
            found = torch.tensor(summary.values[statistic][place])
            torch.testing.assert_close(found, mean, **TOLERANCE)
        scores = (told["lse"] + told["largest"].log())[real].amax(0)
        found = torch.tensor(summary.values["score"][place])
        torch.testing.assert_close(found, scores, **TOLERANCE)


def check_frame(seen: gh.Seen, expected: dict[str, Dense]) -> None:
    """The table has a row for each head of each token, numbered as in the padded batch."""
    table = seen.to_frame("entropy")
    assert table.index.names == ["layer", "call", "batch", "head", "query"]
    table = table["entropy"]
    rows = {}
    for name, one in expected.items():
        entropy = -torch.special.xlogy(one.weights, one.weights).sum(-1)
        for text, query in one.real.nonzero().tolist():
            for head, value in enumerate(entropy[text, :, query].tolist()):
                rows[name, text, head, query] = value
    own = table.droplevel("call").to_dict()
    assert len(own) == len(table)
    assert own.keys() == rows.keys()
    told = torch.tensor([own[key] for key in rows])
    torch.testing.assert_close(told, torch.tensor(list(rows.values())), **TOLERANCE)
