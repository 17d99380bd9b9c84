"""What a decoding feeds of each sequence that it returns, and what each says alone in one pass."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import glasshead as gh
import watched_models as models
from glasshead.watching import UnseenError
from watching.families import FAMILIES, FRAMES, PAD, Family

# A prompt that a window of 5 keys holds, and one that it does not.
LENGTHS, NEW, BEAMS = (7, 3), 5, 3
DECODINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "num_return_sequences": 2},
    "beams": {"num_beams": BEAMS, "num_return_sequences": BEAMS},
    "sampled beams": {"num_beams": BEAMS, "num_return_sequences": 2, "do_sample": True},
    "assisted": {},
    "lookup": {"prompt_lookup_num_tokens": 2},
}
BEAM_SEARCHES = ("beams", "sampled beams")
SPECULATIVE = ("assisted", "lookup")


class Case(NamedTuple):
    """One way to write."""

    family: str
    decoding: str
    side: str
    ending: str
    cache: str
    mode: str

    @property
    def of(self) -> Family:
        """Its family."""
        return FAMILIES[self.family]

    @property
    def possible(self) -> bool:
        """Whether transformers has it, and a padded text is the same as without its padding."""
        of = self.of
        if self.side not in of.sides or self.mode not in of.modes or self.cache in of.cannot:
            return False
        # It takes one text at a time, and can crop no static cache.
        return self.decoding not in SPECULATIVE or (self.side, self.cache == "static") == (
            "none",
            False,
        )


@dataclass(frozen=True)
class Prompts:
    """What `generate` is given, and which of its places are real."""

    given: dict[str, Tensor]
    read: Tensor
    source: Tensor | None

    @property
    def width(self) -> int:
        """How many tokens of a text were there before, padding included."""
        return self.read.shape[1]

    def alone(self, row: int, tokens: Tensor, positions: Tensor | None) -> dict[str, Any]:
        """The arguments of some texts that go on with a prompt, without their padding."""
        if self.source is None and "input_ids" in self.given:
            # Without a mask, positions that begin again are those of several texts.
            given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
            return given | (
                {} if positions is None else {"position_ids": positions.expand_as(tokens)}
            )
        (name, read), *_ = self.given.items()
        own = read[row] if self.source is None else read[row][self.source[row]]
        several = own.expand(len(tokens), *own.shape)
        return {name: several, "decoder_input_ids": tokens}


def prompts_of(case: Case) -> Prompts:
    """Two prompts, or one for what takes one at a time."""
    lengths = LENGTHS[:1] if case.decoding in SPECULATIVE else LENGTHS
    batch, width = len(lengths), max(lengths)
    start = torch.ones(batch, 1, dtype=torch.bool)
    if case.of.kind == "listener":
        shape = (batch, 3, FRAMES) if case.family == "Whisper" else (batch, FRAMES, 3)
        sound = torch.randn(shape, dtype=case.of.dtype_of(case.mode))
        return Prompts({"input_features": sound}, start, None)
    missing = (case.side != "none") * (width - torch.tensor(lengths)[:, None])
    places = torch.arange(width)
    real = places >= missing if case.side == "left" else places < width - missing
    tokens = models.tokens(batch, width).masked_fill(~real, PAD)
    if case.decoding == "lookup":
        # What follows a word that came before is looked up there.
        tokens[:, 3:] = tokens[:, :4].clone()
    given = {"input_ids": tokens, "attention_mask": real.long()}
    translates = case.of.kind == "translator"
    return Prompts(given, start if translates else real, real if translates else None)


class Reader:
    """A logits processor that changes nothing and keeps what the rows have read last."""

    def __call__(self, tokens: Tensor, scores: Tensor) -> Tensor:
        self.texts = tokens.clone()
        return scores


@dataclass
class Written:
    """What `generate` returned.

    Attributes:
        sequences: The texts that came out.
        beams: The rows in which they were written.
        read: What the rows had read at the last step.
        positions: Those that the model was given, `[prompts, tokens]`; None: of its own.
    """

    sequences: Tensor
    beams: Tensor | None
    read: Tensor
    positions: Tensor | None


def write(case: Case, model: nn.Module, prompts: Prompts, **asked: Any) -> Written:
    """Let a model write."""
    torch.manual_seed(11)
    reader = Reader()
    asked |= DECODINGS[case.decoding] | _cache(case)
    if case.decoding == "assisted":
        asked["assistant_model"] = _assistant(model)
    if case.decoding != "lookup":
        # Models of random weights repeat themselves, and a text of one word hides mistakes.
        asked["no_repeat_ngram_size"] = 1
    placed: list[Tensor | None] = []
    noting = model.register_forward_pre_hook(
        lambda _, __, given: placed.append(given.get("position_ids")), with_kwargs=True
    )
    try:
        output = model.generate(
            **prompts.given,
            **{"do_sample": False} | asked,
            max_new_tokens=NEW,
            return_dict_in_generate=True,
            output_scores=True,
            logits_processor=[reader],
        )
    finally:
        noting.remove()
    assert not any(one.isnan().any() for one in output.scores)
    positions = None
    if case.decoding not in SPECULATIVE and all(one is not None for one in placed):
        # All texts of a prompt stand at the same.
        several = torch.cat(placed, -1)
        positions = several[:: len(several) // len(prompts.read)]
    beams = getattr(output, "beam_indices", None)
    return Written(output.sequences, beams, reader.texts, positions)


def _cache(case: Case) -> dict[str, Any]:
    from transformers import DynamicCache, EncoderDecoderCache

    if case.cache == "static":
        return {"cache_implementation": "static"}
    if case.cache == "dynamic":
        return {}
    # Of a user, who does not say that the model has windows.
    own = DynamicCache()
    whole = own if case.of.kind == "decoder" else EncoderDecoderCache(own, DynamicCache())
    return {"past_key_values": whole}


def _assistant(model: nn.Module) -> nn.Module:
    """A model that is right now and then."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for parameter in other.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.05 * noise * parameter.std())
    other.generation_config.num_assistant_tokens = 2
    other.generation_config.num_assistant_tokens_schedule = "constant"
    other.generation_config.assistant_confidence_threshold = 0.0
    return other


class Ended(NamedTuple):
    """Ends of texts: the arguments of `generate`, and the tokens."""

    asked: dict[str, Any]
    tokens: list[int]


@contextmanager
def ending(case: Case, model: nn.Module, prompts: Prompts) -> Iterator[Ended]:
    """What makes one of the texts end early: the second word that it writes."""
    if case.ending == "none":
        yield Ended({"pad_token_id": PAD}, [])
        return
    with models.skipped_where_transformers_fails(ValueError, RuntimeError, IndexError):
        free = write(case, model, prompts, pad_token_id=PAD).sequences
    end = int(free[-1, prompts.width + 1])
    if case.ending == "argument":
        # Models without a word for padding take that of the end.
        yield Ended({"eos_token_id": end, "pad_token_id": end}, [end])
        return
    config = model.generation_config
    before = config.eos_token_id, config.pad_token_id
    config.eos_token_id, config.pad_token_id = ends = [end, models.VOCABULARY - 1], PAD
    try:
        yield Ended({}, ends[0])
    finally:
        config.eos_token_id, config.pad_token_id = before


@dataclass(frozen=True)
class Row:
    """What one attention says of one text alone.

    Attributes:
        weights: `[heads, queries, keys]`.
        queries: The places of its queries in the batch.
        keys: The places of its keys.
        crossing: Whether the keys are of another text.
        encoder: Whether the queries are of what an encoder reads.
    """

    weights: Tensor
    queries: Tensor
    keys: Tensor
    crossing: bool
    encoder: bool


Alone = dict[str, Row]


def returned(
    case: Case, model: nn.Module, prompts: Prompts, written: Written, ends: Sequence[int]
) -> list[Alone]:
    """What each sequence that came out says alone.

    Args:
        case: How it was written.
        model: By whom.
        prompts: From what.
        written: What came out.
        ends: The tokens that end a text.
    """
    new = written.sequences[:, prompts.width :]
    # Whoever writes alone stops at the end, and feeds the last word to nobody.
    most = new.shape[1] - 1
    ended = torch.isin(new, torch.tensor(ends, dtype=torch.long))
    read = [int(one.nonzero()[0]) if one.any() else most for one in ended]
    return _alone(case, model, prompts, written, written.sequences, read)


def in_rows(case: Case, model: nn.Module, prompts: Prompts, written: Written) -> list[Alone]:
    """What the text of each row of the last step says alone."""
    new = written.read.shape[1] - prompts.width
    return _alone(case, model, prompts, written, written.read, [new] * len(written.read))


@torch.no_grad()
def _alone(
    case: Case,
    model: nn.Module,
    prompts: Prompts,
    written: Written,
    texts: Tensor,
    new: Sequence[int],
) -> list[Alone]:
    """What each attention says of texts that are read in one pass, without cache and padding.

    Texts of the same prompt and length are read together.

    Args:
        case: How they were written.
        model: By whom.
        prompts: From what.
        written: Where their tokens stand.
        texts: All tokens, padding included.
        new: How many tokens of each were read after its prompt.
    """
    each = len(texts) // len(prompts.read)
    alike: dict[tuple[int, int], list[int]] = {}
    for number, length in enumerate(new):
        alike.setdefault((number // each, length), []).append(number)
    found: dict[int, Alone] = {}
    for (row, length), numbers in alike.items():
        begun = torch.arange(prompts.width, prompts.width + length)
        places = torch.cat([prompts.read[row].nonzero()[:, 0], begun])
        own = None if written.positions is None else written.positions[row][places]
        given = prompts.alone(row, texts[numbers][:, places], own)
        with gh.watch(model, keep="weights") as seen:
            model(**given, use_cache=False)
        for number in numbers:
            found[number] = {}
        for name, watched in seen.items():
            source = torch.arange(watched[-1].keys)
            if prompts.source is not None:
                source = prompts.source[row].nonzero()[:, 0]
            crossing, encoder = watched[-1].crossing, ".encoder." in f".{name}"
            queries = source if encoder else places
            keys = source if encoder or crossing else places
            for number, weights in zip(numbers, watched.weights.dense(), strict=True):
                found[number][name] = Row(weights, queries, keys, crossing, encoder)
    return [found[number] for number in range(len(texts))]


TOLERANCE = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top": gh.TopK(3),
    "mass": gh.MassOn([0, 4]),
    "largest": gh.MaxWeight(),
}


def entropy_of(weights: Tensor) -> Tensor:
    """By the formula."""
    return -torch.special.xlogy(weights, weights).sum(-1)


class Reading:
    """Reads what was seen, notes what is refused, and compares the rest.

    Args:
        seen: What was seen.
        rows: For each text of the batch what each attention says of it alone.
    """

    def __init__(self, seen: Any, rows: Sequence[Alone]) -> None:
        self.seen, self.rows = seen, rows
        self.refused: dict[str, str] = {}

    def check(self, without: Sequence[str] = ()) -> "Reading":
        """Compare everything, except what includes other texts."""
        assert set(self.seen) == set(self.rows[0])
        for name, what in product(self.rows[0], (*STATISTICS, "weights")):
            self._compare(f"{what} of {name}", lambda name=name, what=what: self._of(name, what))
        for kind in self._stacks():
            self._compare(f"rollout of {kind}", lambda kind=kind: self._rollout(kind))
        for what, table in (("frame", self._frame), ("summary", self._summary)):
            if what not in without:
                self._compare(what, table)
        return self

    def _compare(self, what: str, compared: Callable[[], None]) -> None:
        try:
            compared()
        except (ValueError, UnseenError) as error:
            said = str(error)
            assert said.endswith("."), said
            assert "\n" not in said, said
            self.refused[what] = said
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error

    def _own(self, name: str, found: Tensor, *, of_keys: bool = False) -> list[tuple[Tensor, Row]]:
        """Each text's part of a value; an encoder reads once what several texts are written of."""
        rows = [one[name] for one in self.rows]
        if rows[0].encoder and len(found) < len(rows):
            rows = rows[:: len(rows) // len(found)]
        assert len(found) == len(rows), f"{len(found)} texts of {len(rows)}"
        if found.ndim > 2:
            places = [row.keys if of_keys else row.queries for row in rows]
            tokens = max(int(one.max()) for one in places) + 1
            assert found.shape[2] >= tokens, f"{found.shape[2]} tokens of {tokens}"
        return list(zip(found, rows, strict=True))

    def _of(self, name: str, what: str) -> None:
        watched = self.seen[name]
        if what == "top":
            values, keys = watched.top
            for (value, row), key in zip(self._own(name, values), keys, strict=True):
                _check_top(value[:, row.queries], key[:, row.queries], row)
            return
        value = watched.weights.dense() if what == "weights" else getattr(watched, what)
        for found, row in self._own(name, value, of_keys=what == "received"):
            W, queries = row.weights, row.queries
            if what == "weights":
                _same(found[:, queries][..., row.keys], W)
                others = torch.ones(found.shape[-1], dtype=torch.bool)
                others[row.keys] = False
                assert not found[:, queries][..., others].any()
            elif what == "received":
                expected = torch.zeros_like(found, dtype=W.dtype)
                expected[:, row.keys] = W.sum(-2)
                _same(found, expected)
            elif what == "mass":
                _same(found[:, queries], W[..., torch.isin(row.keys, torch.tensor([0, 4]))].sum(-1))
            else:
                _same(found[:, queries], entropy_of(W) if what == "entropy" else W.amax(-1))

    def _stacks(self) -> dict[str, list[str]]:
        """The layers of each stack, by a pattern of their names."""
        found: dict[str, list[str]] = {}
        for name, row in self.rows[0].items():
            if not row.crossing:
                pattern = ".".join("*" if part.isdigit() else part for part in name.split("."))
                found.setdefault(pattern, []).append(name)
        return found

    def _rollout(self, pattern: str) -> None:
        names = self._stacks()[pattern]
        length = self.seen[names[0]].weights.shape[-1]
        found = gh.rollout(self.seen, range(length), layers=pattern)
        for number, (value, row) in enumerate(self._own(names[0], found)):
            rows = self.rows[:: len(self.rows) // len(found)]
            reached = own = torch.eye(len(row.queries), dtype=row.weights.dtype)
            for name in names:
                reached = (rows[number][name].weights.mean(0) + own) / 2 @ reached
            _same(value[row.queries][:, row.keys], reached)

    def _frame(self) -> None:
        table = self.seen.to_frame("entropy")["entropy"]
        for name in self.rows[0]:
            told = table.loc[name].droplevel("call").to_dict()
            assert len(told) == len(table.loc[name])
            texts = 1 + max(batch for batch, *_ in told)
            expected = {
                (batch, head, query): value
                for batch, (_, row) in enumerate(self._own(name, torch.empty(texts)))
                for head, values in enumerate(entropy_of(row.weights).tolist())
                for query, value in zip(row.queries.tolist(), values, strict=True)
            }
            assert told.keys() == expected.keys(), f"{name} has rows of other queries"
            _same(torch.tensor([told[key] for key in expected]), torch.tensor([*expected.values()]))

    def _summary(self) -> None:
        summary = self.seen.summary()
        for place, name in enumerate(summary.names):
            every = torch.cat([entropy_of(one[name].weights) for one in self.rows], -1)
            told = torch.tensor(summary.values["entropy"][place])
            _same(told, every.mean(-1))


def _same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, **TOLERANCE)


def _check_top(values: Tensor, keys: Tensor, row: Row) -> None:
    """Two weights that are almost the same may change places, but not be other keys."""
    W = row.weights
    best = W.topk(min(3, W.shape[-1])).values
    _same(values[..., : best.shape[-1]], best)
    whole = W.new_zeros(*W.shape[:-1], int(max(keys.max(), row.keys.max())) + 1)
    whole[..., row.keys] = W
    there = whole.gather(-1, keys.clamp(min=0))
    _same(torch.where(keys >= 0, there, 0.0), values)
    assert bool(((keys >= 0) | (values == 0)).all())
