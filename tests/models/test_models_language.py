"""The language model sees no later token, and needs to compute none twice.

A text that grows beyond a model's context is seen from half a context back on, row by row.
"""

import copy
import pickle

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.models.language_model import LanguageModelSteps
from layers.torch_names import loud

VOCABULARY, CONTEXT, LENGTH = 11, 23, 19

SETTINGS = [
    {"positions": "learned"},
    {"positions": "sinusoidal"},
    {"positions": "rotary"},
    {"positions": "alibi"},
    {"positions": "none"},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"positions": "learned", "order": "post", "feed_forward": "relu", "tied": False},
    {"positions": "alibi", "order": "post", "norm": "rms"},
    {"positions": "rotary", "num_kv_heads": 1},
    {"positions": "learned", "feed_forward": "none"},
    {"positions": "rotary", "order": "parallel", "rotary_dim": 4, "tied": False},
    {"positions": "rotary", "order": "res_post", "query_key_norm": "joined", "num_kv_heads": 1},
    {
        "positions": "rotary",
        "order": "sandwich",
        "local": {"layers": [0], "neighbours": 4},
        "softcap": 5.0,
        "score_scale": 0.3,
        "logit_softcap": 7.0,
        "embedding_scale": 4.0,
        "feed_forward": "geglu_tanh",
    },
    {
        "positions": "rotary",
        "norm": "rms",
        "query_key_norm": "head",
        "local": {"layers": [1], "neighbours": 4, "rotary_base": 500.0},
        "feed_forward": "geglu",
    },
]


every_setting = pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda s: " ".join(map(str, s.values()))
)


SMALL = {"vocab_size": 11, "context_length": 7, "d_model": 6, "num_heads": 2, "num_layers": 2}


def config(**settings):
    sizes = {"vocab_size": VOCABULARY, "context_length": CONTEXT, "d_model": 18, "num_heads": 3}
    return gh.LanguageModelConfig(**{**sizes, "num_layers": 2, **settings})


def model_of(**settings):
    """A model in which every parameter matters, in float32, as it is used."""
    return loud(gh.LanguageModel(config(**settings)), 0.3).float()


def texts(*shape):
    return torch.randint(VOCABULARY, shape)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every_setting
class TestEverySetting:
    def test_a_later_token_changes_no_earlier_logit(self, settings):
        model, tokens = model_of(**settings), texts(2, LENGTH)
        other = tokens.clone()
        other[:, 7] = (tokens[:, 7] + 1) % VOCABULARY
        was, now = model(tokens), model(other)
        assert_close(now[:, :7], was[:, :7])
        for later in range(7, LENGTH):
            assert not torch.allclose(now[:, later], was[:, later], rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("chunks", [[1] * LENGTH, [5, 1, 13]], ids=["tokens", "chunks"])
    def test_cached_equals_uncached(self, settings, chunks):
        model, tokens = model_of(**settings), texts(3, LENGTH)
        cache = model.new_cache()
        with torch.no_grad():
            parts = [model(part, cache=cache) for part in tokens.split(chunks, 1)]
            assert_close(torch.cat(parts, 1), model(tokens))
        assert cache.length == LENGTH

    @pytest.mark.parametrize("cached", [False, True])
    def test_a_padded_batch_equals_each_text_alone(self, settings, cached):
        model, padding = model_of(**settings), [0, 7, 18, 2]
        tokens, cache = texts(4, LENGTH), model.new_cache()
        parts = tokens.split([5, 1, 13] if cached else [LENGTH], 1)
        call = {"padding": torch.tensor(padding), "cache": cache if cached else None}
        with torch.no_grad():
            found = torch.cat([model(part, **call) for part in parts], 1)
            for row, pads in enumerate(padding):
                assert_close(found[row, pads:], model(tokens[row : row + 1, pads:])[0])

    def test_reordered_rows_go_on_where_they_were(self, settings):
        model, tokens, more = model_of(**settings), texts(3, 5), texts(4, 7)
        rows, cache = torch.tensor([2, 0, 0, 1]), model.new_cache()
        with torch.no_grad():
            model(tokens, cache=cache)
            cache.reorder(rows)
            found = model(more, cache=cache)
            assert_close(found, model(torch.cat([tokens[rows], more], 1))[:, 5:])

    def test_what_pads_may_be_anything(self, settings):
        model, tokens = model_of(**settings), texts(2, LENGTH)
        padding, other = torch.tensor([7, 3]), tokens.clone()
        other[0, :7], other[1, :3] = texts(7), texts(3)
        was, now = (model(x, padding=padding) for x in (tokens, other))
        assert_close(now[0, 7:], was[0, 7:])
        assert_close(now[1, 3:], was[1, 3:])

    def test_padding_learns_nothing_and_breaks_nothing(self, settings):
        model = model_of(**settings)
        tokens = torch.tensor([[10, 10, 10, 1, 2], [3, 4, 5, 6, 7]])
        found = model(tokens, padding=torch.tensor([3, 0]))
        found[0, 3:].sum().backward()
        by_token = model.embedding.tokens.weight.grad
        if not model.config.tied:
            assert not by_token[[3, 4, 5, 6, 7, 10]].any()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


class TestParameters:
    @pytest.mark.parametrize(
        ("settings", "count"),
        [
            # Tokens 11·6, positions 7·6; two blocks of q, k, v and output 4·(6·6 + 6), hidden
            # 24·6 + 24, output 6·24 + 6, two norms 2·12; the last norm 12.
            ({}, 66 + 42 + 2 * (168 + 168 + 150 + 24) + 12),
            ({"tied": False}, 66 + 42 + 2 * (168 + 168 + 150 + 24) + 12 + 66),
            ({"order": "post"}, 66 + 42 + 2 * (168 + 168 + 150 + 24)),
            # One key and value head of width 3: 36 + 2·18 + 36; three maps between 6 and 16.
            (
                {
                    "positions": "rotary",
                    "d_model": 8,
                    "num_kv_heads": 1,
                    "bias": False,
                    "norm": "rms",
                    "feed_forward": "swiglu",
                },
                88 + 2 * (64 + 2 * 32 + 64 + 3 * 8 * 21 + 2 * 8) + 8,
            ),
        ],
        ids=["tied", "untied", "post", "modern"],
    )
    def test_by_hand(self, settings, count):
        model = gh.LanguageModel(gh.LanguageModelConfig(**{**SMALL, **settings}))
        assert sum(p.numel() for p in model.parameters()) == count
        assert sum(x.numel() for x in model.state_dict().values()) == count

    def test_tied_weights_are_one_tensor(self):
        model = model_of()
        assert model.output is None
        places = [x.data_ptr() for x in model.state_dict().values()]
        assert len(set(places)) == len(places)
        hidden = torch.randn(2, 5, 18)
        assert_close(model.logits(hidden), hidden @ model.embedding.tokens.weight.T)

    def test_start_small(self):
        model = gh.LanguageModel(config(d_model=96, vocab_size=997, num_layers=8))
        block = model.blocks[3]
        for weight, std in (
            (model.embedding.tokens.weight, 0.02),
            (block.attention.projections.stacks[0].weight, 0.02),
            (block.feed_forward.hidden.weight, 0.02),
            # Sixteen sublayers add to the stream.
            (block.attention.output.weight, 0.02 / 4),
            (block.feed_forward.output.weight, 0.02 / 4),
        ):
            assert weight.std().item() == pytest.approx(std, rel=0.05)
        assert not any(p.any() for name, p in model.named_parameters() if name.endswith("put.bias"))

    def test_at_the_start_every_token_is_as_likely(self):
        model = gh.LanguageModel(config()).eval()
        probabilities = model(texts(2, LENGTH)).softmax(-1)
        assert probabilities.sub(1 / VOCABULARY).abs().max() < 0.05


class TestCitizen:
    def test_copies_and_pickles(self):
        model, tokens = model_of(positions="rotary"), texts(2, 7)
        assert torch.equal(copy.deepcopy(model)(tokens), model(tokens))
        assert torch.equal(pickle.loads(pickle.dumps(model))(tokens), model(tokens))

    def test_tokens_of_32_bits(self):
        model, tokens = model_of(), texts(2, 7)
        assert torch.equal(model(tokens.int()), model(tokens))

    def test_no_tokens_at_all(self):
        model = model_of()
        assert model(texts(2, 0)).shape == (2, 0, VOCABULARY)
        assert model(texts(0, 5)).shape == (0, 5, VOCABULARY)

    def test_dropout_acts_in_training_only(self):
        model, tokens = model_of(dropout=0.5), texts(2, 7)
        assert torch.equal(model(tokens), model(tokens))
        assert not torch.equal(model.train()(tokens), model(tokens))
        drops = [x.p for x in model.modules() if isinstance(x, nn.Dropout) and x.p]
        assert drops == [0.5] * (1 + 2 * 2)

    def test_a_list_of_paddings(self):
        model, tokens = model_of(), texts(2, 7)
        expected = model(tokens, padding=torch.tensor([3, 0]))
        assert torch.equal(model(tokens, padding=[3, 0]), expected)

    def test_hidden_and_logits_are_the_call(self):
        model, tokens = model_of(), texts(2, 7)
        hidden = model.hidden(tokens)
        assert hidden.shape == (2, 7, 18)
        assert torch.equal(model.logits(hidden), model(tokens))


class TestErrors:
    @pytest.mark.parametrize(
        ("tokens", "sentence"),
        [
            (torch.zeros(2, 24, dtype=torch.long), "have at most 23 tokens, got 24. Shorten"),
            (torch.tensor([[3, -1, 4]]), "be ids from 0 to 10, got -1. Use the tokenizer"),
            (torch.tensor([[3, 11, 4]]), "be ids from 0 to 10, got 11. Use the tokenizer"),
            (torch.tensor([3, 1, 4]), r"be \[batch, length\], got \[3\]\. Pass .* tokens\[None\]"),
            (torch.zeros(1, 2, 3).long(), r"be \[batch, length\], got \[1, 2, 3\]"),
        ],
    )
    def test_tokens_that_are_no_texts(self, tokens, sentence):
        with pytest.raises(ValueError, match=f"tokens must {sentence}"):
            model_of()(tokens)

    @pytest.mark.parametrize(
        ("tokens", "sentence"),
        [
            (torch.zeros(2, 3), "be whole numbers, got torch.float32. Pass token ids"),
            ([[3, 1, 4]], "be a tensor of token ids, got list"),
        ],
    )
    def test_tokens_of_another_type(self, tokens, sentence):
        with pytest.raises(TypeError, match=f"tokens must {sentence}"):
            model_of()(tokens)

    def test_a_cache_takes_from_the_context(self):
        model = model_of()
        cache = model.new_cache()
        model(texts(2, 20), cache=cache)
        with pytest.raises(ValueError, match="at most 3 tokens, got 4"):
            model(texts(2, 4), cache=cache)
        assert model(texts(2, 3), cache=cache).shape == (2, 3, VOCABULARY)

    def test_a_cache_of_another_batch(self):
        model = model_of()
        cache = model.new_cache()
        model(texts(2, 5), cache=cache)
        with pytest.raises(ValueError, match="this cache needs batches of 2 rows, got 3"):
            model(texts(3, 1), cache=cache)

    @pytest.mark.parametrize("padding", [[1], [1, 2, 3], [[1], [2]]])
    def test_padding_of_another_shape(self, padding):
        with pytest.raises(
            ValueError, match=r"padding must have a number for each text, \[2\], got"
        ):
            model_of()(texts(2, 5), padding=torch.tensor(padding))

    def test_padding_below_0(self):
        with pytest.raises(ValueError, match="padding must be numbers of at least 0, got -3"):
            model_of()(texts(2, 5), padding=torch.tensor([-3, 0]))

    def test_padding_of_another_type(self):
        with pytest.raises(TypeError, match="padding must be whole numbers, got .*float32"):
            model_of()(texts(2, 5), padding=torch.tensor([1.0, 2.0]))


STEPPING_CONTEXT, KEPT = 7, 3


@pytest.fixture(scope="module", params=["rotary", "learned"])
def model(request):
    torch.manual_seed(0)
    config = gh.LanguageModelConfig(
        vocab_size=11,
        context_length=STEPPING_CONTEXT,
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
        if length > STEPPING_CONTEXT:
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
    with pytest.raises(ValueError, match="this cache needs batches of 3 rows, got 2"):
        steps.next(torch.zeros(2, 1, dtype=torch.long))
