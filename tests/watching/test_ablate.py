"""A removed head adds nothing: as if its columns of the output projection were 0."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import glasshead as gh
import watched_models as models
from glasshead.models.decoding import Greedy, generate
from glasshead.models.language_model import LanguageModelSteps
from watching.small import HEAD_DIM, HEADS, WIDTH, Model, text
from watching.torch.explicit import nothing_is_open

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
SIZES = {"vocab_size": 61, "context_length": 23, "d_model": 36, "num_heads": 6, "num_layers": 2}
TOKENS = torch.arange(2 * 11).reshape(2, 11) * 7 % 61


def language_model(**changes):
    torch.manual_seed(7)
    model = gh.LanguageModel(gh.LanguageModelConfig(**SIZES | {"dropout": 0.0} | changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return model.eval()


def by_hand(model, projection, heads, count, across=False):
    """A copy whose output projection knows nothing of some heads."""
    model = copy.deepcopy(model)
    weight = model.get_submodule(projection).weight.data
    width = weight.shape[0 if across else 1] // count
    for head in heads:
        columns = slice(head * width, (head + 1) * width)
        weight[(columns, slice(None)) if across else (slice(None), columns)] = 0
    return model


def nothing_stays():
    return nothing_is_open() and not _get_current_function_mode_stack()


@torch.no_grad()
def check(model, name, projection, heads, count, *inputs, across=False, of=lambda output: output):
    """Ablated is as by hand, which is not as before; and afterwards it is as before."""
    before = of(model(*inputs))
    with gh.ablate(model, {name: heads}):
        ablated = of(model(*inputs))
    expected = of(by_hand(model, projection, heads, count, across)(*inputs))
    torch.testing.assert_close(ablated, expected, **TOLERANCE)
    assert (ablated - before).abs().max() > 1e-2
    assert torch.equal(of(model(*inputs)), before)
    assert nothing_stays()


class TestEveryKindOfModel:
    @pytest.mark.parametrize("heads", [[0], [4, 1], range(6)], ids=str)
    @pytest.mark.parametrize("changes", [{}, {"num_kv_heads": 2, "positions": "rotary"}], ids=str)
    def test_ours(self, changes, heads):
        model = language_model(**changes)
        check(model, "blocks.1.attention", "blocks.1.attention.output", heads, 6, TOKENS)

    def test_the_cross_attention_of_ours(self):
        torch.manual_seed(5)
        config = gh.TranslatorConfig(**SIZES | {"num_layers": 1})
        model = gh.Translator(config).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.0, 0.3)
        name = "decoder.0.cross_attention"
        check(model, name, f"{name}.output", [2], 6, TOKENS, torch.tensor([11, 7]), TOKENS[:, :5])

    @pytest.mark.parametrize("mode", ["eager", "sdpa"])
    def test_of_transformers(self, mode):
        pytest.importorskip("transformers")
        name = "model.layers.1.self_attn"
        model, heads = models.llama(mode), [5, 2]
        check(model, name, f"{name}.o_proj", heads, 6, TOKENS, of=lambda output: output.logits)

    def test_of_transformers_whose_matrices_lie_across(self):
        pytest.importorskip("transformers")
        name, model = "transformer.h.0.attn", models.gpt2("sdpa")
        check(model, name, f"{name}.c_proj", [3], 5, TOKENS, across=True, of=lambda out: out.logits)

    @pytest.mark.parametrize("need_weights", [True, False])
    @pytest.mark.parametrize("training", [True, False])
    def test_multi_head_attention_of_pytorch(self, need_weights, training):
        class Asking(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = nn.MultiheadAttention(15, 3, batch_first=True)

            def forward(self, x):
                return self.attn(x, x, x, need_weights=need_weights)[0]

        model = Asking().train(training)
        check(model, "attn", "attn.out_proj", [2], 3, torch.randn(2, 7, 15) * 3)

    @pytest.mark.parametrize("training", [True, False])
    def test_an_encoder_of_pytorch_leaves_its_fast_path(self, training):
        layer = nn.TransformerEncoderLayer(14, 2, 19, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).train(training)
        name = "layers.1.self_attn"
        check(model, name, f"{name}.out_proj", [1], 2, torch.randn(3, 5, 14) * 3)

    @pytest.mark.parametrize("function", [F.scaled_dot_product_attention, imported])
    def test_code_that_calls_the_function_by_any_name(self, function):
        class Alone(nn.Module):
            def forward(self, x):
                heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                return function(heads, heads, heads).transpose(1, 2).flatten(2)

        model = nn.Sequential(Alone(), nn.Linear(WIDTH, WIDTH))
        check(model, "0", "1", [1], HEADS, text())

    def test_a_rule_alone(self):
        rule, x = gh.Attention(), torch.randn(2, 3, 5, 7)
        with gh.ablate(rule, {"": [1]}):
            context = rule(x, x, x)
        assert torch.equal(context[:, 1], torch.zeros(2, 5, 7))
        assert torch.equal(context[:, [0, 2]], rule(x, x, x)[:, [0, 2]])


def test_several_layers_and_no_heads():
    model, x = Model(3), text()
    with torch.no_grad(), gh.ablate(model, {"layers.0": [0, 1, 2], "layers.2": [], "layers.1": []}):
        ablated = model(x)
    x = x + model.layers[1](x)
    assert torch.equal(ablated, x + model.layers[2](x))


def test_what_is_not_finite_goes_with_its_head():
    value = torch.randn(1, 3, 5, 7)
    value[:, 1] = torch.nan
    rule = gh.Attention()
    with gh.ablate(rule, {"": [1]}):
        assert rule(value[:, :1].expand(value.shape), value, value).isfinite().all()


def written(model):
    """What a model writes with a cache, greedily."""
    if isinstance(model, gh.LanguageModel):
        return generate(LanguageModelSteps(model), TOKENS[:, :5], Greedy(), max_tokens=9).tokens
    return model.generate(TOKENS[:, :5], max_new_tokens=9, do_sample=False)[:, 5:].tolist()


@pytest.mark.parametrize("mode", ["ours", "eager", "sdpa"])
def test_generating_with_a_cache(mode):
    if mode == "ours":
        model, name, projection = language_model(), "blocks.0.attention", "output"
    else:
        pytest.importorskip("transformers")
        model, name, projection = models.llama(mode), "model.layers.0.self_attn", "o_proj"
    with gh.ablate(model, {name: [1, 5]}):
        ablated = written(model)
    assert ablated == written(by_hand(model, f"{name}.{projection}", [1, 5], 6))
    assert ablated != written(model)


def gradients(model, run):
    model.zero_grad()
    run(model).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("again", [False, True], ids=["once", "checkpointed"])
def test_gradients_are_those_by_hand(again):
    def run(model):
        return checkpoint(model, TOKENS, use_reentrant=False) if again else model(TOKENS)

    model, name = language_model(), "blocks.1.attention"
    expected = gradients(by_hand(model, f"{name}.output", [3], 6), run)
    with gh.ablate(model, {name: [3]}):
        found = gradients(model, run)
    # The head's own columns alone, of which nothing comes, have no gradient here.
    expected[f"{name}.output.weight"][:, 18:24] = 0
    for parameter, gradient in found.items():
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-3, atol=1e-5)
    assert found["blocks.0.attention.output.weight"].abs().max() > 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_in_another_thread_loses_its_heads_too(reentrant):
    model, gradients = gh.MultiHeadAttention(12, 3), []
    for elsewhere in (False, True):
        x = torch.linspace(-1, 1, 60).reshape(1, 5, 12).requires_grad_()
        with gh.ablate(model, {"": [0]}):
            # The model itself is called, as what runs again is found by it.
            loss = checkpoint(model, x, use_reentrant=reentrant).square().sum()
            if elsewhere:
                # As of a GPU, whose backward passes have threads of PyTorch's own.
                thread = threading.Thread(target=loss.backward)
                thread.start()
                thread.join()
            else:
                loss.backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


class TestWithAWatch:
    @pytest.mark.parametrize("watch_first", [True, False])
    @pytest.mark.parametrize("mode", ["ours", "eager", "sdpa", "torch", "plain"])
    def test_the_weights_of_a_removed_head_are_seen(self, mode, watch_first):
        x = TOKENS
        if mode == "ours":
            model, name = language_model(), "blocks.0.attention"
        elif mode in ("eager", "sdpa"):
            pytest.importorskip("transformers")
            model, name = models.llama(mode), "model.layers.0.self_attn"
        elif mode == "torch":
            layer = nn.TransformerEncoderLayer(15, 3, batch_first=True)
            model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
            name, x = "layers.0.self_attn", text()
        else:
            model, name, x = Model(), "layers.0", text()
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as plain:
            model(x)
        blocks = [
            lambda: gh.watch(model, [gh.Entropy()], keep="weights"),
            lambda: gh.ablate(model, {name: [1]}),
        ]
        first, second = blocks if watch_first else reversed(blocks)
        with torch.no_grad(), first() as one, second() as other:
            model(x)
        seen = one if watch_first else other
        torch.testing.assert_close(seen[name].entropy, plain[name].entropy, **TOLERANCE)
        last = list(seen)[-1]
        assert (seen[last].entropy - plain[last].entropy).abs().max() > 1e-4
        assert nothing_stays()

    def test_a_watch_that_ends_first_leaves_the_ablation(self):
        model, x = Model(), text()
        with torch.no_grad(), gh.ablate(model, {"layers.1": [0, 1, 2]}):
            with gh.watch(model, [gh.Entropy()]):
                model(x)
            assert torch.equal(model(x), x + model.layers[0](x))


def test_blocks_within_each_other_remove_the_heads_of_all():
    model, x = Model(), text()
    with torch.no_grad(), gh.ablate(model, {"layers.0": [0, 2], "layers.1": [1]}):
        expected = model(x)
    with torch.no_grad(), gh.ablate(model, {"layers.0": [0]}):
        with gh.ablate(model, {"layers.0": [2], "layers.1": [1]}):
            assert torch.equal(model(x), expected)
        assert not torch.equal(model(x), expected)
    assert nothing_stays()


def test_another_thread_keeps_its_heads():
    model, x, found = Model(), text(), []
    with torch.no_grad():
        whole = model(x)

    def elsewhere():
        with torch.no_grad():
            found.append(model(x))

    with torch.no_grad(), gh.ablate(model, {"layers.0": [0]}):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert not torch.equal(model(x), whole)
    assert torch.equal(found[0], whole)


def test_another_model_keeps_its_heads():
    model, other, x = Model(), Model(), text()
    with torch.no_grad(), gh.ablate(model, {"layers.0": [0]}):
        model(x)
        within = other(x)
    with torch.no_grad():
        assert torch.equal(within, other(x))


@pytest.mark.parametrize("heads", [[0], [HEADS]], ids=["in the block", "in the attention"])
def test_everything_is_as_it_was_after_an_error(heads):
    model, x = Model(), text()
    before = model(x)

    def fails():
        model(x)
        raise ValueError("mine: heads must be in")

    with pytest.raises(ValueError, match="heads must be in"):  # noqa: SIM117
        with gh.ablate(model, {"layers.0": heads}):
            fails()
    assert nothing_stays()
    assert torch.equal(model(x), before)


class TestErrors:
    @pytest.mark.parametrize(
        ("heads", "error", "sentence"),
        [
            ([0], TypeError, r"needs heads by the names of their modules, .*, got \[0\]\."),
            ({3: [0]}, TypeError, r"needs heads by the names of their modules, .* got {3: \[0\]}"),
            ({"layers.0": 0}, TypeError, r"needs a list of heads .* for 'layers.0', got 0\."),
            (
                {"layers.0": [-1]},
                ValueError,
                "heads must be a whole number of at least 0, got -1",
            ),
            ({"layers.0": ["1"]}, TypeError, "heads must be a whole number .*, got str '1'"),
            ({"layer.0": [0]}, ValueError, r"got 'layer.0', which names none\. Did .* 'layers.0'"),
        ],
        ids=str,
    )
    def test_heads_that_are_none(self, heads, error, sentence):
        with pytest.raises(error, match=sentence), gh.ablate(Model(), heads):
            pass

    def test_no_model(self):
        with pytest.raises(TypeError, match="ablate needs a model, got str"), gh.ablate("", {}):
            pass

    def test_a_head_that_is_not_there(self):
        model = Model()
        with (
            pytest.raises(
                ValueError, match=f"heads must be in 0..{HEADS - 1} for 'layers.1', got 4"
            ),
            gh.ablate(model, {"layers.1": [0, 4]}),
        ):
            model(text())

    def test_attention_without_an_axis_of_heads(self):
        rule, x = gh.Attention(), torch.randn(2, 5, HEAD_DIM)
        with pytest.raises(ValueError, match="a heads axis, but '' has none"):  # noqa: SIM117
            with gh.ablate(rule, {"": [0]}):
                rule(x, x, x)

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
    def test_packed_texts(self):
        class Packed(nn.Module):
            def forward(self, x):
                return F.scaled_dot_product_attention(x, x, x)

        texts = [torch.randn(3, length, HEAD_DIM) for length in (5, 2)]
        x = torch.nested.nested_tensor(texts)
        model = nn.Sequential(Packed())
        with torch.no_grad(), pytest.raises(ValueError, match="a heads axis, but '0' has none"):  # noqa: SIM117
            with gh.ablate(model, {"0": [1]}):
                model(x)

    def test_a_module_that_attends_under_another_name(self):
        model = language_model()
        with pytest.raises(RuntimeError, match=r"at 'blocks\.1', only at 'blocks\.0\.attention', "):  # noqa: SIM117
            with gh.ablate(model, {"blocks.1": [0]}):
                model(TOKENS)

    def test_a_model_that_never_ran(self):
        model = Model()
        with pytest.raises(RuntimeError, match=r"met no attention of Model\. Run the model inside"):  # noqa: SIM117
            with gh.ablate(model, {"layers.0": [0]}):
                pass

    def test_attention_by_code_of_its_own(self):
        class Own(nn.Module):
            def forward(self, x):
                return (x @ x.mT).softmax(-1) @ x

        model = nn.Sequential(Own())
        with pytest.raises(RuntimeError, match="explicit attention, as of '0', only if a watch"):  # noqa: SIM117
            with gh.ablate(model, {"0": [0]}):
                model(text())
