"""What a row of a batch is fed after its text has ended counts for nothing."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.watching.ends import check_ends

transformers = pytest.importorskip("transformers")

NEAR = {"rtol": 1e-5, "atol": 1e-5}
VOCABULARY, PAD, NEW, SPREAD = 61, 0, 7, 0.8
STATISTICS = {
    "received": gh.Received(),
    "entropy": gh.Entropy(),
    "mass": gh.MassOn([0, 2]),
    "max": gh.MaxScore(),
}
LAYERS = ["model.layers.0.self_attn", "model.layers.1.self_attn"]


def llama(**changes):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=29,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=SPREAD,
        eos_token_id=None,
        pad_token_id=PAD,
        **changes,
    )
    return transformers.LlamaForCausalLM(config).eval()


def prompts(rows=3, width=5, missing=(0, 2, 1)):
    """Token ids of prompts and which are real, padded at the left."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(5, VOCABULARY, (rows, width), generator=generator)
    mask = torch.arange(width) >= torch.tensor(missing[:rows])[:, None]
    return tokens.masked_fill(~mask, PAD), mask.long()


def written(model, tokens, mask, **asked):
    kind = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": PAD, **asked}
    return model.generate(tokens, attention_mask=mask, **kind)


def early(model, tokens, mask, place=1, row=1):
    """The token that a row writes at a place, and not before."""
    free = written(model, tokens, mask)[row, tokens.shape[1] :].tolist()
    assert free[place] not in free[:place]
    return free[place]


def texts_of(sequences, mask, ends):
    """The places and tokens of each text: those that something was written after."""
    width = mask.shape[1]
    for row, sequence in enumerate(sequences):
        places = [*mask[row].nonzero().flatten().tolist()]
        for place in range(width, len(sequence) - 1):
            if int(sequence[place]) in ends:
                break
            places.append(place)
        yield row, torch.tensor(places), sequence[places]


def check(seen, model, sequences, mask, ends):
    """Check that each text has what it has alone in one pass."""
    stacked = gh.rollout(seen, range(seen[LAYERS[0]].weights.shape[-2]))
    frame, scores = seen.to_frame("entropy"), gh.eviction_scores(seen, "h2o")
    short = 0
    for row, places, tokens in texts_of(sequences, mask, ends):
        short += len(places) < len(next(iter(seen.values())).real[row]) - int((1 - mask[row]).sum())
        with torch.no_grad(), gh.watch(model, STATISTICS, keep="weights") as alone:
            model(tokens[None])
        for name in LAYERS:
            ours, theirs = seen[name], alone[name]
            assert ours.real[row].nonzero().flatten().tolist() == places.tolist()
            torch.testing.assert_close(
                ours.weights[row][:, places][..., places], theirs.weights[0], **NEAR
            )
            for statistic in ("received", "entropy", "mass"):
                mine, one = getattr(ours, statistic)[row], getattr(theirs, statistic)[0]
                if statistic != "mass" or not (1 - mask[row]).any():
                    torch.testing.assert_close(mine[..., places], one, **NEAR)
            torch.testing.assert_close(ours.max[row], theirs.max[0], **NEAR)
            torch.testing.assert_close(
                scores[name][row][..., places], gh.eviction_scores(alone, "h2o")[name][0], **NEAR
            )
            last = frame.loc[name].loc[-len(ours.texts[-1]) + len(ours) :]
            rows = last.xs(row, level="batch").xs(0, level="head")
            assert sorted(rows.index.get_level_values("query")) == places.tolist()
        torch.testing.assert_close(
            stacked[row][places][:, places], gh.rollout(alone, range(len(places)))[0], **NEAR
        )
    return short


@pytest.mark.parametrize("padding", ["other", "end"])
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("told", ["argument", "config", "several"])
def test_a_row_that_ends_early_has_what_it_has_alone(told, cache, padding):
    # In float32 the model itself gives other queries to a row of a batch than to the row alone.
    model, (tokens, mask) = llama().double(), prompts()
    end = early(model, tokens, mask)
    pad = PAD if padding == "other" else end
    tokens = tokens.masked_fill(mask == 0, pad)
    asked = {"cache_implementation": cache, "pad_token_id": pad, "disable_compile": True}
    if told == "argument":
        asked["eos_token_id"] = end
    else:
        model.generation_config.eos_token_id = end if told == "config" else [end, 1, 2]
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        sequences = written(model, tokens, mask, **asked)
    assert check(seen, model, sequences, mask, [end]) >= 1


def test_tokens_of_the_end_within_a_prompt_end_nothing():
    model, (tokens, mask) = llama(), prompts()
    end = early(model, tokens, mask)
    tokens[:, 3] = end
    end_free = written(model, tokens, mask)
    for chunk in (None, 2):
        asked = {} if chunk is None else {"prefill_chunk_size": chunk}
        with gh.watch(model, STATISTICS, keep="weights") as seen:
            sequences = written(model, tokens, mask, eos_token_id=end, **asked)
        assert end_free.shape[0] == len(sequences)
        check(seen, model, sequences, mask, [end])


def test_several_sequences_of_a_prompt_end_each_by_itself():
    model, (tokens, mask) = llama(), prompts(2)
    asked = {"do_sample": True, "num_return_sequences": 3, "top_k": 0}
    torch.manual_seed(5)
    free = written(model, tokens, mask, **asked)
    end = int(free[1, tokens.shape[1] + 1])
    torch.manual_seed(5)
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        sequences = written(model, tokens, mask, eos_token_id=end, **asked)
    assert check(seen, model, sequences, mask.repeat_interleave(3, 0), [end]) >= 1


def test_a_prompt_of_embeddings_is_a_prompt():
    model, (tokens, mask) = llama(), prompts(missing=(0, 0, 0))
    end = early(model, tokens, mask, place=0)
    with torch.no_grad(), gh.watch(model, STATISTICS, keep="weights") as seen:
        new = model.generate(
            inputs_embeds=model.get_input_embeddings()(tokens),
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=NEW,
            pad_token_id=PAD,
            eos_token_id=end,
        )
    assert check(seen, model, torch.cat([tokens, new], 1), mask, [end]) >= 1


def test_without_a_cache_the_last_pass_leaves_out_what_follows_an_end():
    model, (tokens, mask) = llama(), prompts(missing=(0, 0, 0))
    end = early(model, tokens, mask)
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        sequences = written(model, tokens, mask, eos_token_id=end, use_cache=False)
    assert check(seen, model, sequences, mask, [end]) >= 1


def test_the_rows_of_an_encoder_decoder_end_too():
    torch.manual_seed(3)
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=29,
        decoder_ffn_dim=29,
        init_std=0.6,
        pad_token_id=PAD,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    model = transformers.BartForConditionalGeneration(config).eval()
    tokens, mask = prompts(missing=(0, 0, 0))
    asked = {"num_beams": 1, "forced_eos_token_id": None, "forced_bos_token_id": None}
    free = written(model, tokens, mask, eos_token_id=None, **asked)
    end = int(free[1, 2])
    with gh.watch(model, [gh.Received()]) as seen:
        sequences = written(model, tokens, mask, eos_token_id=end, **asked)
    length = sequences.shape[1]
    own, cross = "model.decoder.layers.0.self_attn", "model.decoder.layers.0.encoder_attn"
    for row in range(3):
        new = sequences[row, 1:].tolist()
        count = 1 + new.index(end) if end in new else length - 1
        for name in (own, cross):
            real = seen[name].real
            real = torch.ones(3, length - 1, dtype=torch.bool) if real is None else real
            assert real[row].tolist() == [place < count for place in range(length - 1)]
        with torch.no_grad(), gh.watch(model, [gh.Received()]) as alone:
            model(tokens[row : row + 1], decoder_input_ids=sequences[row : row + 1, :count])
        torch.testing.assert_close(
            seen[own].received[row, :, :count], alone[own].received[0], **NEAR
        )
        torch.testing.assert_close(seen[cross].received[row], alone[cross].received[0], **NEAR)


def loop(model, tokens, mask, fed, **asked):
    """A loop of one's own, that feeds the rows given tokens."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), gh.watch(model, STATISTICS, keep="weights", **asked) as seen:
        model(tokens, attention_mask=mask, past_key_values=cache)
        for place in range(fed.shape[1]):
            mask = nn.functional.pad(mask, (0, 1), value=1)
            model(fed[:, place : place + 1], attention_mask=mask, past_key_values=cache)
    return seen


FED = torch.tensor([[7, 9, 11, 13, 15], [7, 3, 9, 9, 3], [4, 8, 8, 8, 8]])


@pytest.mark.parametrize(
    ("ended", "counts"),
    [
        (3, [5, 1, 5]),
        ([3, 4], [5, 1, 0]),
        ([], [5, 5, 5]),
        (torch.tensor([10, 7, 9]), [5, 2, 4]),
        (torch.tensor([99]), [5, 5, 5]),
    ],
)
def test_a_loop_of_ones_own_says_what_ends_a_text(ended, counts):
    model, (tokens, mask) = llama(), prompts()
    seen = loop(model, tokens, mask, FED, ended=ended)
    sequences = torch.cat([tokens, FED], 1)
    for name in LAYERS:
        real = seen[name].real
        assert real[:, 5:].sum(1).tolist() == counts
        assert real[:, :5].equal(mask.bool())
    for row, count in enumerate(counts):
        places = [*mask[row].nonzero().flatten().tolist(), *range(5, 5 + count)]
        with torch.no_grad(), gh.watch(model, [gh.Received()]) as alone:
            model(sequences[row, places][None])
        received = seen[LAYERS[1]].received[row][:, places]
        torch.testing.assert_close(received, alone[LAYERS[1]].received[0], **NEAR)


def test_a_loop_that_feeds_padding_after_the_end_needs_to_say_nothing():
    model, (tokens, mask) = llama(), prompts()
    model.generation_config.eos_token_id = [3, 4]
    fed = torch.tensor([[7, 3, 9, 3, PAD], [7, 3, PAD, PAD, PAD], [4, PAD, PAD, 8, 8]])
    seen = loop(model, tokens, mask, fed)
    # A text may go on after its end, and then the token that ended it is a query like others.
    expected = [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 1, 1]]
    assert seen[LAYERS[0]].real[:, 5:].long().tolist() == expected


def test_texts_in_turn_end_apart():
    model, (tokens, _) = llama(), prompts(missing=(0, 0, 0))
    caches = [transformers.DynamicCache(config=model.config) for _ in range(2)]
    counted = []
    with torch.no_grad(), gh.watch(model, [gh.Received()], ended=3) as seen:
        for cache in caches:
            model(tokens, past_key_values=cache)
        for place in range(3):
            for number, cache in enumerate(caches):
                model(FED[[number]].expand(3, -1)[:, place : place + 1], past_key_values=cache)
                real = seen[LAYERS[0]][-1].real
                counted.append(True if real is None else bool(real.any()))
    assert counted == [True, True, True, False, True, False]


class Own(nn.Module):
    """A model whose argument has a name of its own."""

    def __init__(self):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(11, 6), gh.MultiHeadAttention(6, 2)
        self.past = torch.empty(2, 0, 6)

    def forward(self, words):
        x = self.embedding(words)
        self.past = torch.cat([self.past, x], 1)
        return self.attention(x, self.past, mask=gh.causal())


def test_tokens_are_known_by_any_name():
    model = Own()
    with torch.no_grad(), gh.watch(model, [gh.Received()], ended=3) as seen:
        for words in ([[1, 2], [3, 4]], [[5], [3]], [[6], [6]]):
            model(torch.tensor(words))
    assert [call.real is None for call in seen["attention"]] == [True, False, False]
    assert seen["attention"][-1].real.tolist() == [[True], [False]]


def test_texts_in_turn_without_a_cache_end_apart():
    model, pasts = Own(), [torch.empty(2, 0, 6)] * 2
    steps = ([[1, 2], [3, 4]], [[8, 5], [7, 9]]), ([[3], [3]], [[7], [1]]), ([[6], [6]], [[3], [5]])
    counted = []
    with torch.no_grad(), gh.watch(model, [gh.Received()], ended=3) as seen:
        for step in steps:
            for number, words in enumerate(step):
                model.past = pasts[number]
                model(torch.tensor(words))
                pasts[number] = model.past
                real = seen["attention"][-1].real
                counted.append([True, True] if real is None else real[:, -1].tolist())
    assert counted == [[True] * 2, [True] * 2, [False] * 2, [True] * 2, [False] * 2, [False, True]]


@pytest.mark.parametrize(
    ("ended", "error", "sentence"),
    [
        ("</s>", TypeError, "ended"),
        (0.5, TypeError, "ended"),
        ([1, -1], ValueError, "ended"),
        (torch.ones(2, 3).long(), ValueError, r"with the length of each row, got \[2, 3\] of"),
        (torch.ones(2), ValueError, "integer tensor .*, got .* of torch.float32"),
    ],
)
def test_what_ends_no_text(ended, error, sentence):
    with pytest.raises(error, match=sentence):
        check_ends(ended)
