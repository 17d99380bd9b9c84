"""Parts of scores and logits of models of transformers, with small random weights."""

import copy

import pytest
import torch

import glasshead as gh
from glasshead.watching import UnseenError

pytest.importorskip("transformers")

from architectures import ARCHITECTURES
from families import FAMILIES, FRAMES

import watched_models as models

DECODERS = [
    (name, mode) for name, one in FAMILIES.items() if one.kind == "decoder" for mode in one.modes
]
TRANSLATORS = [name for name, one in FAMILIES.items() if one.kind != "decoder"]
READERS = [
    name
    for name, one in ARCHITECTURES.items()
    if one.kind in ("encoder", "image") and name != "albert"
]
# What casts to float32 in its norms, or rotates in it, sums to no more than that in float64.
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-6}
# These do not: together with the translators and encoders below, more than 20 families.
EXACT = ["Phi", "StableLm", "Nemotron", "GPTNeoX", "Falcon", "GPTBigCode", "Starcoder2", "GPT2"]
EXACT += ["OPT", "BioGpt", "Bloom", "Mpt"]
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-10}


def seen_of(model, **given):
    with models.skipped_where_transformers_fails(RuntimeError), torch.no_grad():
        unwatched = model(**given)
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        output = model(**given)
    assert torch.equal(output[0], unwatched[0])
    return seen, output


def check_scores(seen, limit):
    for name in seen:
        parts = gh.score_parts(seen, name, head=0, query=4, key=2, batch=1)
        assert abs(parts.pairs.sum() - parts.score) <= limit * parts.pairs.abs().sum()
        every = gh.score_parts(seen, name, head=0, query=4, batch=1)
        torch.testing.assert_close(every.score[2], parts.score)
        torch.testing.assert_close(every.of_key[2], parts.of_key, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "mode"), DECODERS)
def test_parts_of_decoders_sum_to_scores_and_logits(name, mode):
    model = FAMILIES[name].build(mode)
    torch.manual_seed(3)
    tokens = torch.randint(2, models.VOCABULARY, (2, 7))
    seen, output = seen_of(model, input_ids=tokens)
    limit = LIMITS[output.logits.dtype]
    check_scores(seen, limit)
    parts = gh.logit_parts(seen, token=5, against=11, query=3, batch=1)
    theirs = output.logits[1, 3, 5] - output.logits[1, 3, 11]
    if name != "Gemma2":
        # The parts of Gemma 2 are of its logits before the cap.
        assert abs(parts.sum() - theirs) <= limit * parts.parts.abs().sum()
    assert {one.name for one in parts.components if one.head is not None} == {*seen}


@pytest.mark.parametrize("name", EXACT)
def test_parts_in_float64_sum_to_rounding(name):
    model = copy.deepcopy(FAMILIES[name].build(FAMILIES[name].modes[0])).double()
    torch.manual_seed(3)
    seen, output = seen_of(model, input_ids=torch.randint(2, models.VOCABULARY, (2, 7)))
    assert output.logits.dtype == torch.float64
    check_scores(seen, 1e-10)
    parts = gh.logit_parts(seen, token=5, query=3, batch=1)
    assert abs(parts.sum() - output.logits[1, 3, 5]) <= 1e-10 * parts.parts.abs().sum()


@pytest.mark.parametrize("mode", ["sdpa", "eager"])
@pytest.mark.parametrize("name", READERS)
def test_parts_of_encoders(name, mode):
    architecture = ARCHITECTURES[name]
    if mode not in architecture.modes:
        pytest.skip(f"{name} has no {mode} attention")
    torch.manual_seed(3)
    given = {"input_ids": torch.randint(2, models.VOCABULARY, (2, 7))}
    if architecture.kind == "image":
        given = {"pixel_values": torch.randn(2, 3, 12, 12, dtype=architecture.dtype)}
    seen, _ = seen_of(architecture.model(mode), **given)
    # ModernBERT rotates in float32.
    limits = LIMITS if name == "modernbert" else ROUNDING
    check_scores(seen, limits[architecture.dtype])
    with pytest.raises(UnseenError, match="needs a model that returns logits"):
        gh.logit_parts(seen)


def test_layers_that_share_weights_are_split_by_their_runs():
    seen, _ = seen_of(
        ARCHITECTURES["albert"].model("sdpa"),
        input_ids=torch.randint(2, models.VOCABULARY, (2, 7)),
    )
    (name,) = seen
    with pytest.raises(ValueError, match="runs 3 times in a forward pass"):
        gh.score_parts(seen, name, head=0, query=4)
    parts = gh.score_parts(seen, f"{name}#2", head=0, query=4)
    assert len({one.place for one in parts.components if one.head is not None}) == 2
    torch.testing.assert_close(parts.of_query.sum(-1), parts.score)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_parts_of_translators_reach_across(name):
    family = FAMILIES[name]
    model, dtype = family.build(family.modes[0]), family.dtype_of(family.modes[0])
    torch.manual_seed(3)
    source = torch.randint(2, models.VOCABULARY, (2, 7))
    given = {"input_ids": source, "decoder_input_ids": source[:, :5]}
    if family.kind == "listener":
        shape = (2, 3, FRAMES) if name == "Whisper" else (2, FRAMES, 3)
        given["input_features"] = torch.randn(shape, dtype=dtype)
        del given["input_ids"]
    seen, output = seen_of(model, **given)
    check_scores(seen, ROUNDING[dtype])
    crossing = next(name for name, one in seen.items() if one[0].crossing)
    parts = gh.score_parts(seen, crossing, head=0, query=4)
    sides = [parts.of_key, parts.of_query]
    readers, writers = (
        {one.name for one, part in zip(parts.components, side.mT, strict=True) if part.any()}
        for side in sides
    )
    heads = {one.name for one in parts.components if one.head is not None}
    assert readers & heads
    assert not readers & writers & heads
    logit = gh.logit_parts(seen, token=5, query=3, batch=1)
    theirs = output.logits[1, 3, 5]
    assert abs(logit.sum() - theirs) <= ROUNDING[dtype] * logit.parts.abs().sum()


def test_one_text_alone_has_the_same_heads():
    seen, _ = seen_of(models.llama("sdpa"), input_ids=torch.tensor([[3, 1, 4, 1, 5]]))
    parts = gh.score_parts(seen, "model.layers.1.self_attn", head=5, query=4, key=2)
    assert [str(one) for one in parts.components] == [
        "model.embed_tokens",
        *(f"model.layers.0.self_attn head {head}" for head in range(6)),
        "model.layers.0.mlp",
    ]
