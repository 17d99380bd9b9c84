"""The classifier: what pads a text changes nothing of its answer, and no text is too short."""

import pytest
import torch

import glasshead as gh
from layers.torch_names import loud

VOCABULARY, LENGTH, D_MODEL = 13, 11, 18
LENGTHS = torch.tensor([11, 3, 0, 7])
POOLINGS = ["mean", "max", "both"]

SETTINGS = [
    {"pooling": "mean", "positions": "sinusoidal", "order": "post"},
    {"pooling": "max", "positions": "rotary", "norm": "rms"},
    {"pooling": "both", "positions": "learned", "feed_forward": "swiglu"},
    {"pooling": "both", "positions": "alibi", "num_kv_heads": 1, "bias": False},
    {"pooling": "both", "positions": "none"},
    {"pooling": "max", "embedding_norm": True, "qkv_bias": False, "norm_eps": 1e-3},
]
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def model_of(**settings):
    sizes = {"vocab_size": VOCABULARY, "context_length": 17, "d_model": D_MODEL, "num_heads": 3}
    config = gh.ClassifierConfig(**{**sizes, "num_layers": 2, "num_answers": 5, **settings})
    return loud(gh.Classifier(config), 0.3).float()


def texts(*shape):
    return torch.randint(VOCABULARY, shape)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every_setting
class TestEverySetting:
    def test_what_pads_changes_nothing(self, settings):
        model, tokens = model_of(**settings), texts(4, LENGTH)
        found = model(tokens, LENGTHS)
        assert found.shape == (4, 5)
        for row, length in enumerate(LENGTHS.tolist()):
            alone = model(tokens[row : row + 1, :length], LENGTHS[row : row + 1])
            assert_close(found[row], alone[0])
        other = torch.where(torch.arange(LENGTH) < LENGTHS[:, None], tokens, texts(4, LENGTH))
        assert_close(model(other, LENGTHS), found)

    def test_every_real_word_counts(self, settings):
        model, tokens = model_of(**settings), texts(1, LENGTH)
        was = model(tokens, LENGTHS[:1])
        for place in range(LENGTH):
            other = tokens.clone()
            other[:, place] = (tokens[:, place] + 1) % VOCABULARY
            assert (model(other, LENGTHS[:1]) - was).abs().max() > 1e-4

    @pytest.mark.parametrize("length", [0, LENGTH])
    def test_empty_texts_give_finite_answers_and_gradients(self, settings, length):
        model = model_of(**settings)
        found = model(texts(2, length), torch.tensor([0, 0]))
        found.sum().backward()
        # Nothing is pooled, so that the bias alone is left.
        assert torch.equal(found, model.answer.bias.expand(2, 5))
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pools_what_the_last_norm_gives(pooling):
    model, tokens, seen = model_of(pooling=pooling), texts(4, LENGTH), {}
    model.norm.register_forward_hook(lambda *call: seen.update(words=call[-1]))
    model.answer.register_forward_pre_hook(lambda _, given: seen.update(pooled=given[0]))
    model(tokens, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        words = seen["words"][row, :length]
        pools = {
            "mean": words.mean(0) if length else torch.zeros(D_MODEL),
            "max": words.amax(0) if length else torch.zeros(D_MODEL),
        }
        names = ("mean", "max") if pooling == "both" else (pooling,)
        assert_close(seen["pooled"][row], torch.cat([pools[name] for name in names]))


def dropping(share, **settings):
    model = model_of(dropout=0.0, word_dropout=share, **settings)
    # Each text has words of its own, so that its answer tells which of them were read.
    tokens = torch.stack([torch.arange(1, 12), torch.arange(1, 12).flip(0)])
    return model, tokens.repeat(31, 1), torch.tensor([11, 7]).repeat(31)


@pytest.mark.parametrize("settings", SETTINGS[:3], ids=str)
def test_words_are_left_out_as_if_they_had_not_been_there(settings):
    model, tokens, lengths = dropping(0.25, **settings)
    seen = {}
    model.embedding.register_forward_pre_hook(lambda _, given: seen.update(tokens=given[0]))
    found, left = model.train()(tokens, lengths), seen["tokens"]
    model.eval()
    # What it is if so many of the words that were given are read.
    answers = [model(left, torch.full_like(lengths, n)) for n in range(left.shape[1] + 1)]
    close = (torch.stack(answers, 1) - found[:, None]).abs().amax(-1) < 1e-4
    kept = 0
    for row, (words, length) in enumerate(zip(tokens.tolist(), lengths.tolist(), strict=True)):
        (count,) = close[row].nonzero().flatten().tolist()
        # They are words of the text, in its order.
        places = [words[:length].index(word) for word in left[row, :count].tolist()]
        assert places == sorted({*places})
        kept += count
    assert 0.65 < kept / lengths.sum() < 0.85


def test_no_word_is_left_out_where_nothing_is_trained():
    model, tokens, lengths = dropping(0.5)
    plain, _, _ = dropping(0.0)
    assert_close(model(tokens, lengths), plain(tokens, lengths))
    assert_close(plain.train()(tokens, lengths), plain.eval()(tokens, lengths))
    apart = (model.train()(tokens, lengths) - plain(tokens, lengths)).abs().amax(1)
    assert (apart > 1e-3).float().mean() > 0.9


def test_texts_of_which_nothing_is_left_give_finite_answers_and_gradients():
    model, tokens, lengths = dropping(0.99)
    found = model.train()(tokens[:, :3], torch.full_like(lengths, 1))
    found.sum().backward()
    assert torch.isclose(found, model.answer.bias).all(1).sum() > 50
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


class TestErrors:
    @pytest.mark.parametrize(
        ("tokens", "sentence"),
        [
            (texts(2, 18), "tokens must have at most 17 tokens, got 18"),
            (texts(2, 3) + VOCABULARY, "tokens must be ids from 0 to 12, got"),
            (texts(3), r"tokens must be \[batch, length\].*tokens\[None\]"),
        ],
    )
    def test_tokens_that_are_no_texts(self, tokens, sentence):
        with pytest.raises(ValueError, match=sentence):
            model_of()(tokens, torch.tensor([3, 1]))

    def test_lengths_of_another_shape_or_type(self):
        model, tokens = model_of(), texts(2, 3)
        with pytest.raises(
            ValueError, match=r"lengths must have a number for each text, \[2\], got"
        ):
            model(tokens, torch.tensor([3]))
        with pytest.raises(TypeError, match="lengths must be whole numbers, got .*float32"):
            model(tokens, torch.tensor([3.0, 1.0]))

    def test_lengths_may_be_a_list(self):
        model, tokens = model_of(), texts(2, 3)
        assert torch.equal(model(tokens, [3, 1]), model(tokens, torch.tensor([3, 1])))
