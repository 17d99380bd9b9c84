"""Padding does not count: a padded batch is told of as its texts alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models
from watching.small import LENGTH, Model, text

LENGTHS = (LENGTH, 4)
REAL = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]
SUMS = {"received": gh.Received(), "last": gh.Received(last=2), "most": gh.MaxScore()}
STATISTICS = SUMS | {"far": gh.DistanceHistogram([0, 1, 3]), "entropy": gh.Entropy()}
NEAR = {"rtol": 1e-5, "atol": 1e-5}
UNKNOWN = "watch saw keys of 'layers.0' that no query sees, as of padding"


def alone(model, statistics, *texts, **asked):
    """What is seen of each text without its padding."""
    found = []
    for one in texts:
        with torch.no_grad(), gh.watch(model, statistics, **asked) as seen:
            model(one)
        found.append(seen)
    return found


def check(seen, apart, real=REAL):
    """Every text of a padded batch is told of as those that were read apart."""
    for name, watched in seen.items():
        for row, (tokens, one) in enumerate(zip(real, apart, strict=True)):
            own = one[name]
            torch.testing.assert_close(watched.received[row][:, tokens], own.received[0], **NEAR)
            torch.testing.assert_close(watched.last[row][:, tokens], own.last[0], **NEAR)
            torch.testing.assert_close(watched.most[row], own.most[0], **NEAR)
            torch.testing.assert_close(watched.far[row], own.far[0], **NEAR)
            torch.testing.assert_close(watched.entropy[row][:, tokens], own.entropy[0], **NEAR)
            assert not watched.received[row][:, ~tokens].any()
        frame = seen.to_frame("entropy").loc[name]
        expected = torch.cat([one[name].entropy.flatten() for one in apart])
        torch.testing.assert_close(torch.tensor(frame["entropy"].tolist()), expected, **NEAR)
    summary = torch.tensor(seen.summary().values["entropy"])
    entropy = [[one[name].entropy[0] for one in apart] for name in seen]
    torch.testing.assert_close(
        summary,
        torch.stack([torch.cat(own, -1).mean(-1) for own in entropy]).double(),
        check_dtype=False,
        **NEAR,
    )


def test_the_mask_that_is_given_tells():
    model, batch = Model(mask=REAL[:, None, None]), text()
    with torch.no_grad(), gh.watch(model, STATISTICS, attention_mask=REAL) as seen:
        model(batch)
    for layer in model.layers:
        layer.mask = None
    check(
        seen, alone(model, STATISTICS, *(x[None, :n] for x, n in zip(batch, LENGTHS, strict=True)))
    )


@pytest.mark.parametrize("number", [torch.long, torch.int32, torch.uint8])
def test_a_mask_of_numbers_says_the_same(number):
    model, batch = Model(mask=REAL[:, None, None]), text()
    received = []
    for mask in (REAL, REAL.to(number)):
        with torch.no_grad(), gh.watch(model, [gh.Received()], attention_mask=mask) as seen:
            model(batch)
        received.append(seen["layers.1"].received)
    assert torch.equal(*received)


def test_a_batch_that_looks_padded_is_told_of_where_nothing_tells():
    model = Model(mask=REAL[:, None, None])
    with (
        pytest.warns(UserWarning, match=UNKNOWN),
        torch.no_grad(),
        gh.watch(model, [gh.Received()]) as seen,
    ):
        model(text())
    assert seen["layers.0"].real is None
    assert float(seen["layers.0"].received[1].sum()) == pytest.approx(3 * LENGTH, rel=1e-5)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, LENGTH), "attention_mask must be a tensor of whole numbers or booleans"),
        ([[1]], "attention_mask must be a tensor of whole numbers or booleans, got list"),
        (torch.tensor([[2]]), "attention_mask must be 1 or 0 for each token"),
        (torch.ones(7, dtype=torch.long), r"must be 1 or 0 for each token, .* got \[7\]"),
    ],
)
def test_what_is_no_mask_is_refused(mask, message):
    with pytest.raises((TypeError, ValueError), match=message):
        gh.watch(Model(), [gh.Entropy()], attention_mask=mask).__enter__()


def test_a_mask_of_other_tokens_is_refused():
    model = Model()
    with (
        pytest.raises(
            RuntimeError,
            match=(
                r"must have the shape \[batch, tokens\] of the model's input, got \[2, 5\], which "
                r"fits no observed"
            ),
        ),
        torch.no_grad(),
        gh.watch(model, [gh.Entropy()], attention_mask=REAL[:, :5]),
    ):
        model(text())


def test_a_mask_of_a_prompt_tells_of_its_beams_and_of_what_is_written_after_it():
    model, batch = Model(), text(batch=4)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], attention_mask=REAL.flip(1)) as seen:
        model(batch, cached=True)
        model(text(2, batch=4), cached=True)
    real = seen["layers.0"].real
    expected = F.pad(REAL.flip(1).repeat_interleave(2, 0), (0, 2), value=True)
    assert torch.equal(real, expected)


class PyTorchs(nn.Module):
    """PyTorch's own encoder, which is told of padding by True."""

    def __init__(self, norm_first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 2, 29, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, padding=None):
        return self.encoder(x, src_key_padding_mask=padding)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_of_pytorchs_own_layers(norm_first, gradients):
    model, batch = PyTorchs(norm_first).eval(), torch.randn(2, LENGTH, 12)
    with torch.set_grad_enabled(gradients), gh.watch(model, STATISTICS) as seen:
        model(batch, ~REAL)
    texts = (x[None, :n] for x, n in zip(batch, LENGTHS, strict=True))
    check(seen, alone(model, STATISTICS, *texts))


def test_of_a_decoder_of_pytorch_only_its_own_padding_counts():
    torch.manual_seed(5)
    model = nn.Transformer(12, 2, 1, 1, 29, batch_first=True).eval()
    source, target = torch.randn(2, LENGTH, 12), torch.randn(2, LENGTH, 12)
    given = {"src_key_padding_mask": ~REAL, "memory_key_padding_mask": ~REAL}
    own = torch.arange(LENGTH) < torch.tensor([3, LENGTH])[:, None]
    for padding in (None, own):
        with gh.watch(model, [gh.Received()]) as seen:
            hides = None if padding is None else ~padding
            model(source, target, **given, tgt_key_padding_mask=hides)
        assert torch.equal(seen["encoder.layers.0.self_attn"].real, REAL)
        for name in ("self_attn", "multihead_attn"):
            real = seen[f"decoder.layers.0.{name}"].real
            assert real is None if padding is None else torch.equal(real, padding)


def test_of_our_own_models():
    config = gh.EncoderConfig(vocab_size=61, d_model=12, num_heads=3, num_layers=2)
    model, tokens = gh.Encoder(config).eval(), models.tokens(2, LENGTH)
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        model(tokens, torch.tensor(LENGTHS))
    texts = (x[None, :n] for x, n in zip(tokens, LENGTHS, strict=True))
    check(seen, alone(model, STATISTICS, *texts))


def test_of_a_language_model_of_ours_that_is_padded_at_the_left():
    config = gh.LanguageModelConfig(vocab_size=61, d_model=12, num_heads=3, num_layers=2)
    model, tokens = gh.LanguageModel(config).eval(), models.tokens(2, LENGTH)
    padding = torch.tensor([0, LENGTH - LENGTHS[1]])
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        model(tokens, padding=padding)
    texts = (x[None, n:] for x, n in zip(tokens, padding, strict=True))
    check(seen, alone(model, STATISTICS, *texts), REAL.flip(1))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("build", [models.llama, models.bert])
def test_what_sums_up_layers_leaves_padding_out(build, side):
    pytest.importorskip("transformers")
    given, model = models.inputs(build, side), build("sdpa")
    real = given["attention_mask"] > 0
    if build is models.bert:
        given["position_ids"] = (real.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(**given)
    roles = []
    for row, tokens in enumerate(real):
        with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as one:
            model(given["input_ids"][row : row + 1, tokens])
        whole = gh.rollout(one, [-1, -2])[0]
        torch.testing.assert_close(gh.rollout(seen, [-1, -2])[row][:, tokens], whole, **NEAR)
        ours, theirs = gh.patterns(seen, window=3), gh.patterns(one, window=3)
        for name in one:
            torch.testing.assert_close(ours[name].shares[row], theirs[name].shares[0], **NEAR)
            scores = gh.eviction_scores(seen, "tova")[name][row][:, tokens]
            torch.testing.assert_close(scores, gh.eviction_scores(one, "tova")[name][0], **NEAR)
        roles.append(gh.head_roles(one, given["input_ids"][row, tokens]))
    together = gh.head_roles(seen, given["input_ids"])
    weights = (real.sum(-1) - 1).double()
    first = torch.stack([one.scores["first"] for one in roles], -1)
    expected = (first * weights).sum(-1) / weights.sum()
    torch.testing.assert_close(together.scores["first"], expected, check_dtype=False, **NEAR)
    with pytest.raises(ValueError, match="one text has only 3 tokens without padding"):
        gh.rollout(seen, [-4])


def test_a_corpus_knows_the_padding_that_the_watch_knows():
    pytest.importorskip("transformers")
    given, model = models.inputs(models.bert, "right"), models.bert("sdpa")
    asked = [gh.Entropy(), gh.Received(), gh.MaxScore()]
    told, known = gh.CorpusStatistics(asked), gh.CorpusStatistics(asked)
    mask = given["attention_mask"]
    with torch.no_grad(), gh.watch(model, told.statistics_of(mask)) as seen:
        model(**given)
    told.update(seen, mask)
    with torch.no_grad(), gh.watch(model, known.statistics) as seen:
        model(**given)
    known.update(seen)
    one, other = told.compute(), known.compute()
    for name in one:
        for statistic, value in one[name].items():
            torch.testing.assert_close(other[name][statistic], value, rtol=1e-9, atol=1e-9)


def test_it_is_saved_and_read(tmp_path):
    model = Model(mask=REAL[:, None, None])
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], attention_mask=REAL) as seen:
        model(text())
    seen.save(tmp_path / "seen.safetensors")
    loaded = gh.Seen.load(tmp_path / "seen.safetensors")
    assert torch.equal(loaded["layers.0"].real, REAL)
    assert loaded.summary().values == seen.summary().values
    assert loaded.to_frame().equals(seen.to_frame())
