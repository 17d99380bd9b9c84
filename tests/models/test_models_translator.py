"""The translator equals PyTorch's, and padding of a text changes nothing of it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from layers.torch_names import in_torch, loud

VOCABULARY, SOURCE, TARGET, D_MODEL = 13, 11, 7, 18
LENGTHS = torch.tensor([11, 3, 7])

SETTINGS = [
    {},
    {"positions": "learned", "order": "post", "feed_forward": "gelu"},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"positions": "alibi", "num_kv_heads": 1, "num_decoder_layers": 1},
    {"positions": "none", "num_decoder_layers": 3},
    {"feed_forward": "none"},
]
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def model_of(**settings):
    sizes = {"vocab_size": VOCABULARY, "context_length": 17, "d_model": D_MODEL, "num_heads": 3}
    config = gh.TranslatorConfig(**{**sizes, "num_layers": 2, "d_hidden": 31, **settings})
    return loud(gh.Translator(config), 0.3).float()


def texts(*shape):
    return torch.randint(VOCABULARY, shape)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every_setting
class TestEverySetting:
    def test_what_pads_the_source_changes_nothing(self, settings):
        model, source, target = model_of(**settings), texts(3, SOURCE), texts(3, TARGET)
        found = model(source, LENGTHS, target)
        for row, length in enumerate(LENGTHS.tolist()):
            alone = model(source[row : row + 1, :length], LENGTHS[row : row + 1], target[row][None])
            assert_close(found[row], alone[0])
        other = torch.where(torch.arange(SOURCE) < LENGTHS[:, None], source, texts(3, SOURCE))
        assert_close(model(other, LENGTHS, target), found)

    def test_what_pads_the_target_changes_nothing_before_it(self, settings):
        model, source, target = model_of(**settings), texts(3, SOURCE), texts(3, TARGET)
        other = target.clone()
        other[:, 4:] = (target[:, 4:] + 1) % VOCABULARY
        was, now = model(source, LENGTHS, target), model(source, LENGTHS, other)
        assert_close(now[:, :4], was[:, :4])
        assert not torch.allclose(now[:, 4:], was[:, 4:], atol=1e-3)

    def test_every_real_word_of_the_source_counts(self, settings):
        model, source, target = model_of(**settings), texts(1, SOURCE), texts(1, TARGET)
        was = model(source, LENGTHS[:1], target)
        for place in range(SOURCE):
            other = source.clone()
            other[:, place] = (source[:, place] + 1) % VOCABULARY
            changed = (model(other, LENGTHS[:1], target) - was).abs().amax(-1)
            assert (changed > 1e-4).all()

    @pytest.mark.parametrize("chunks", [[1] * TARGET, [2, 1, 4]], ids=["tokens", "chunks"])
    def test_cached_equals_uncached(self, settings, chunks):
        model, source, target = model_of(**settings), texts(3, SOURCE), texts(3, TARGET)
        cache = model.new_cache()
        with torch.no_grad():
            memory = model.encode(source, LENGTHS)
            parts = target.split(chunks, 1)
            found = [model.decode(part, memory, LENGTHS, cache=cache) for part in parts]
            assert_close(torch.cat(found, 1), model(source, LENGTHS, target))
        assert cache.length == TARGET

    def test_reordered_rows_go_on_with_their_own_source(self, settings):
        model, source, target, more = (
            model_of(**settings),
            texts(3, SOURCE),
            texts(3, 2),
            texts(4, 5),
        )
        rows, cache = torch.tensor([2, 2, 1, 0]), model.new_cache()
        with torch.no_grad():
            memory = model.encode(source, LENGTHS)
            model.decode(target, memory, LENGTHS, cache=cache)
            cache.reorder(rows)
            found = model.decode(more, memory[rows], LENGTHS[rows], cache=cache)
            whole = torch.cat([target[rows], more], 1)
            assert_close(found, model(source[rows], LENGTHS[rows], whole)[:, 2:])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("order", ["pre", "post"])
def test_equals_pytorchs_transformer(order):
    """With its weights copied into `nn.Transformer`, in value and in every gradient."""
    model = model_of(order=order, num_decoder_layers=3).double()
    theirs = nn.Transformer(
        D_MODEL, 3, 2, 3, 31, dropout=0.0, norm_first=order == "pre", batch_first=True
    ).double()
    if order == "post":
        # A norm after the last norm, which PyTorch has and the paper has not.
        theirs.encoder.norm = theirs.decoder.norm = None
    names = {}
    for name, _ in model.named_parameters():
        part, _, rest = name.partition(".")
        if part in ("encoder", "decoder"):
            number, _, rest = rest.partition(".")
            names[name] = f"{part}.layers.{number}.{in_torch(rest, decoder=part == 'decoder')}"
        elif part in ("encoder_norm", "decoder_norm"):
            names[name] = f"{part.replace('_', '.')}.{rest}"
    mine = model.state_dict()
    theirs.load_state_dict({their: mine[name] for name, their in names.items()})

    source, target = texts(3, SOURCE), texts(3, TARGET)
    embedded = [
        model.embedding.tokens(tokens) * D_MODEL**0.5
        + gh.Sinusoidal(D_MODEL)(torch.arange(tokens.shape[1])).double()
        for tokens in (source, target)
    ]
    pads = torch.arange(SOURCE) >= LENGTHS[:, None]
    later = torch.ones(TARGET, TARGET).triu(1).bool()
    masks = {"src_key_padding_mask": pads, "memory_key_padding_mask": pads, "tgt_mask": later}
    expected = F.linear(theirs(*embedded, **masks), model.embedding.tokens.weight)
    found = model(source, LENGTHS, target)
    torch.testing.assert_close(found, expected)

    upstream, of = torch.randn_like(expected), dict(theirs.named_parameters())
    table = model.embedding.tokens.weight
    parameters = dict(model.named_parameters())
    torch.testing.assert_close(
        torch.autograd.grad(found, [table, *(parameters[n] for n in names)], upstream),
        torch.autograd.grad(expected, [table, *(of[n] for n in names.values())], upstream),
    )


def test_one_matrix_serves_source_target_and_output():
    names = {name for name, _ in model_of().named_parameters()}
    assert {name for name in names if not name.startswith(("encoder", "decoder"))} == {
        "embedding.tokens.weight"
    }


def test_the_decoder_may_have_another_depth():
    model = model_of(num_decoder_layers=3)
    assert (len(model.encoder), len(model.decoder)) == (2, 3)
    cache = model.new_cache()
    model.decode(texts(3, 2), model.encode(texts(3, SOURCE), LENGTHS), LENGTHS, cache=cache)
    assert len(cache.own) == len(cache.crossed) == 3


def test_a_source_of_no_words_gives_finite_answers_and_gradients():
    model, source, target = model_of(), texts(2, SOURCE), texts(2, TARGET)
    found = model(source, torch.tensor([0, 5]), target)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


class TestErrors:
    @pytest.mark.parametrize(
        ("source", "target", "sentence"),
        [
            (texts(2, 18), texts(2, 3), "source must have at most 17 tokens, got 18"),
            (texts(2, 3), texts(2, 18), "target must have at most 17 tokens, got 18"),
            (texts(2, 3) + VOCABULARY, texts(2, 3), "source must be ids from 0 to 12, got"),
            (texts(2, 3), texts(2, 3) - VOCABULARY, "target must be ids from 0 to 12, got -"),
            (texts(3), texts(2, 3), r"source must be \[batch, length\].*source\[None\]"),
            (texts(2, 3), texts(3), r"target must be \[batch, length\].*target\[None\]"),
        ],
    )
    def test_tokens_that_are_no_texts(self, source, target, sentence):
        with pytest.raises(ValueError, match=sentence):
            model_of()(source, torch.tensor([3, 1]), target)

    def test_tokens_of_another_type(self):
        with pytest.raises(TypeError, match="target must be whole numbers, got torch.float32"):
            model_of()(texts(2, 3), torch.tensor([3, 1]), texts(2, 3).float())

    def test_lengths_of_another_shape_or_type(self):
        model, source, target = model_of(), texts(2, 3), texts(2, 3)
        with pytest.raises(
            ValueError, match=r"lengths must have a number for each text, \[2\], got"
        ):
            model(source, torch.tensor([3, 1, 2]), target)
        with pytest.raises(TypeError, match="lengths must be whole numbers, got .*float32"):
            model(source, torch.tensor([3.0, 1.0]), target)
