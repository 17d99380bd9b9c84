"""A watch asks foreign objects, and does without their answers: the model runs as it does alone."""

import pytest
import single_texts as single
import torch
from architectures import ARCHITECTURES
from hostile import HostileError, hostile

import glasshead as gh
import watched_models as models

pytest.importorskip("transformers")

# Without a mask only the module says whether its attention is causal.
NOT_TOLD = {"whisper", "vit"}
STATISTICS = [gh.Entropy(), gh.MeanDistance(), gh.Received()]


def run(architecture, model, batch):
    with torch.no_grad():
        if architecture.writes:
            return model.generate(**batch.prompt(), max_new_tokens=3, do_sample=False)
        return model(**batch.given())[0]


def facts(seen):
    """What is known of each call, and its statistics."""
    told = {
        name: [(one.position, one.first_key, one.keys, one.crossing) for one in calls]
        for name, calls in seen.items()
    }
    values = {
        name: [one[each] for one in calls for each in STATISTICS] for name, calls in seen.items()
    }
    return told, values


@pytest.mark.filterwarnings("ignore:watch saw keys")
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_model_whose_objects_raise_runs_as_alone_and_is_seen_as_before_or_refused(family):
    architecture = ARCHITECTURES[family]
    model, batch = architecture.model(architecture.modes[0]), single.batch_of(architecture, "left")
    alone = run(architecture, model, batch)
    with gh.watch(model, STATISTICS) as honest:
        run(architecture, model, batch)
    outputs = []

    def watched():
        with hostile(model), gh.watch(model, STATISTICS) as seen:
            outputs.append(run(architecture, model, batch))
        return seen

    if family in NOT_TOLD:
        with pytest.raises(RuntimeError, match="gave another output"):
            watched()
    else:
        told, values = facts(watched())
        expected, known = facts(honest)
        assert told == expected
        torch.testing.assert_close(values, known, rtol=0.0, atol=1e-5)
    assert torch.equal(outputs[0], alone)


def test_hostile_objects_raise_what_glasshead_asks_and_nothing_else():
    model = models.llama()
    with hostile(model):
        assert model.config.num_hidden_layers == len(model.model.layers)
        ask = "def ask(one, name): return getattr(one, name)"
        exec(ask, glasshead := {"__name__": "glasshead.watching"})
        for one, name in (
            (model.config, "num_hidden_layers"),
            (model.model.layers[0].self_attn, "layer_idx"),
        ):
            with pytest.raises(HostileError):
                glasshead["ask"](one, name)


def sharing(family, attention):
    """A Gemma of four layers, of which the last two read the keys of the first two."""
    import transformers

    if not hasattr(transformers, f"{family}ForCausalLM"):
        pytest.skip(f"transformers {models.TRANSFORMERS} has no {family}")
    sizes = models.sizes_of_a_decoder(
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=4,
        vocab_size_per_layer_input=models.VOCABULARY,
        hidden_size_per_layer_input=7,
    )
    if family == "Gemma3n":
        sizes |= {"activation_sparsity_pattern": [0.0] * 4, "laurel_rank": 5, "altup_num_inputs": 2}
    else:
        sizes |= {"global_head_dim": 10}
    config = getattr(transformers, f"{family}TextConfig")(**sizes)
    return models.built(getattr(transformers, f"{family}ForCausalLM"), config, attention)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["Gemma3n", "Gemma4"])
def test_layers_that_read_the_keys_of_others_have_places_in_the_text(family, attention):
    model, prompt = sharing(family, attention), models.tokens(2, 7)
    with torch.no_grad():
        alone = model.generate(prompt, max_new_tokens=5, do_sample=False)
        with gh.watch(model, STATISTICS) as written:
            assert torch.equal(model.generate(prompt, max_new_tokens=5, do_sample=False), alone)
        with gh.watch(model, STATISTICS) as read:
            model(alone[:, :-1])
    assert list(written) == [f"model.layers.{layer}.self_attn" for layer in range(4)]
    for name, calls in written.items():
        # Gemma 4 runs the layers that share keys on the last token of a prompt alone.
        first = calls[0].position
        assert first in (0, 6)
        assert [one.position for one in calls] == [first, 7, 8, 9, 10]
        assert [one.keys for one in calls] == [7, 8, 9, 10, 11]
        for one in (gh.Entropy(), gh.MeanDistance()):
            torch.testing.assert_close(
                calls[one], read[name][one][..., first:], rtol=0.0, atol=1e-5
            )


@pytest.mark.parametrize("family", ["Gemma3n", "Gemma4"])
def test_layers_that_were_left_out_leave_the_model_alone(family):
    model, text = sharing(family, "eager"), models.tokens(2, 7)
    with torch.no_grad(), gh.watch(model, STATISTICS, layers="model.layers.[01]") as seen:
        watched = model(text).logits
    assert torch.equal(watched, model(text).logits)
    assert list(seen) == [f"model.layers.{layer}.self_attn" for layer in range(2)]
