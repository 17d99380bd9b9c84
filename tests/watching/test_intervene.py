"""An intervention is the same change made by hand, in value and gradient, and nothing else."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import glasshead as gh
from watching.by_hand_changes import MAKE, explicit
from watching.torch.explicit import nothing_is_open

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 7, 3, 5
WIDTH = HEADS * HEAD_DIM
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
BIAS = torch.linspace(-1, 1, HEADS * LENGTH * LENGTH).reshape(HEADS, LENGTH, LENGTH)
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}


class Layer(nn.Module):
    """Causal attention of a kind, and the same by hand."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.rule = kind, gh.Attention(mask=gh.causal())
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        nn.init.normal_(self.attn.in_proj_bias)

    def projected(self, x):
        return (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in F.linear(x, self.attn.in_proj_weight, self.attn.in_proj_bias).chunk(3, -1)
        )

    def forward(self, x):
        if self.kind in ("weights", "no weights"):
            asks = self.kind == "weights"
            return x + self.attn(x, x, x, attn_mask=~CAUSAL, need_weights=asks)[0]
        query, key, value = self.projected(x)
        if self.kind == "grouped":
            key, value = key[:, :1], value[:, :1]
        if self.kind == "ours":
            context = self.rule(query, key, value)
        else:
            given = {
                "flag": {"is_causal": True},
                "mask": {"attn_mask": CAUSAL},
                "bias": {"attn_mask": BIAS.to(x).masked_fill(~CAUSAL, -torch.inf)},
                "grouped": {"is_causal": True, "enable_gqa": True},
            }[self.kind]
            context = F.scaled_dot_product_attention(query, key, value, **given)
        return x + self.attn.out_proj(context.transpose(1, 2).flatten(2))

    def by_hand(self, x, change, source=None):
        query, key, value = self.projected(x)
        if self.kind == "grouped":
            key, value = (x[:, :1].expand(query.shape) for x in (key, value))
        bias = BIAS.to(x) if self.kind == "bias" else 0.0
        context, weights = explicit(query, key, value, CAUSAL, change, source, bias=bias)
        return x + self.attn.out_proj(context.transpose(1, 2).flatten(2)), weights, context


KINDS = ["flag", "mask", "bias", "grouped", "weights", "no weights", "ours"]
CHANGES = [change for change in MAKE if change != "nothing"]
CASES = [
    (kind, change)
    for kind in KINDS
    for change in CHANGES
    # Its queries are projected within.
    if (kind, change) != ("weights", "beta")
]


def made(kind, dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(Layer(kind), Layer(kind)).to(dtype).eval()


# The modules that attend in these models.
def name_of(kind, layer=0):
    return f"{layer}.attn" if "weights" in kind else f"{layer}"


def text(seed=5, dtype=torch.float32, **changes):
    shape = {"batch": BATCH, "length": LENGTH} | changes
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape["batch"], shape["length"], WIDTH, generator=generator, dtype=dtype)
    return x * 2


def nothing_stays():
    return nothing_is_open() and not _get_current_function_mode_stack()


def run_of(model, x):
    with torch.no_grad(), gh.watch(model, keep="context") as run:
        model(x)
    return run


class TestTheSameByHand:
    @pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
    @pytest.mark.parametrize(("kind", "change"), CASES)
    def test_in_value_and_in_gradient(self, kind, change, dtype):
        model, x = made(kind, dtype), text(dtype=dtype).requires_grad_()
        other = text(11, dtype)
        interventions = {name_of(kind): MAKE[change](run_of(model, other))}
        clean = model(x)
        with gh.intervene(model, interventions):
            changed = model(x)
        source = model[0].by_hand(other, "nothing")[2].detach()
        expected = model[1].by_hand(model[0].by_hand(x, change, source)[0], "nothing")[0]
        near = {"rtol": TOLERANCES[dtype] * 10, "atol": TOLERANCES[dtype]}
        torch.testing.assert_close(changed, expected, **near)
        assert (changed - clean).abs().max() > 1e-3
        weigh = torch.linspace(-1, 1, x.numel(), dtype=dtype).reshape(x.shape)
        inputs = [x, *model.parameters()]
        found = torch.autograd.grad((changed * weigh).sum(), inputs)
        by_hand = torch.autograd.grad((expected * weigh).sum(), inputs)
        for one, other_one in zip(found, by_hand, strict=True):
            torch.testing.assert_close(
                one, other_one, rtol=near["rtol"] * 10, atol=near["atol"] * 30
            )
        assert torch.equal(model(x), clean)
        assert nothing_stays()

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_is_the_unwatched_run(self, kind):
        model, x = made(kind), text()
        clean = model(x)
        with gh.intervene(model, {name_of(kind): [], name_of(kind, 1): ()}):
            assert torch.equal(model(x), clean)

    @pytest.mark.parametrize(("kind", "change"), CASES)
    def test_other_heads_and_queries_stay(self, kind, change):
        model, x = made(kind), text()
        run = run_of(model, text(11))
        clean = run_of(model, x)[name_of(kind)].context
        with gh.watch(model, keep="context") as seen, torch.no_grad():  # noqa: SIM117
            with gh.intervene(model, {name_of(kind): MAKE[change](run)}):
                model(x)
        context = seen[name_of(kind)].context
        torch.testing.assert_close(context[:, 1], clean[:, 1], rtol=0, atol=1e-6)
        others = [] if change == "beta of heads" else [0, 2, 4, 5]
        torch.testing.assert_close(context[:, :, others], clean[:, :, others], rtol=0, atol=1e-6)

    @pytest.mark.parametrize(
        ("kind", "change"), [case for case in CASES if case[1] not in ("mean", "patch")]
    )
    @pytest.mark.parametrize("watch_first", [True, False])
    def test_a_watch_sees_the_changed_weights(self, kind, change, watch_first):
        model, x = made(kind), text()
        _, weights, _ = model[0].by_hand(x, change)
        statistics = [gh.Entropy(), gh.Received(), gh.MassOn([0])]
        blocks = [
            lambda: gh.watch(model, statistics, keep="weights"),
            lambda: gh.intervene(model, {name_of(kind): MAKE[change](None)}),
        ]
        first, second = blocks if watch_first else reversed(blocks)
        with torch.no_grad(), first() as one, second() as two:
            model(x)
        seen = (one if watch_first else two)[name_of(kind)]
        near = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(seen.weights.dense(), weights, **near)
        torch.testing.assert_close(seen.received, weights.sum(-2), **near)
        torch.testing.assert_close(seen.mass_on, weights[..., 0], **near)
        entropy = -torch.special.xlogy(weights, weights).sum(-1)
        torch.testing.assert_close(seen.entropy, entropy, **near)


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_text_of_ours_that_grows_with_a_cache(change):
    torch.manual_seed(7)
    sizes = {"vocab_size": 61, "d_model": 36, "num_heads": 6, "num_layers": 2, "context_length": 23}
    config = gh.LanguageModelConfig(**sizes, num_kv_heads=2, positions="rotary")
    model, name = gh.LanguageModel(config).eval(), "blocks.0.attention"
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    tokens = torch.arange(2 * 9).reshape(2, 9) * 7 % 61
    with gh.watch(model, keep="context") as run:
        model((tokens + 20) % 61)
    with gh.intervene(model, {name: MAKE[change](run)}):
        whole, cache = model(tokens), model.new_cache()
        steps = [model(tokens[:, part], cache=cache) for part in (slice(4), [4], [5], slice(6, 9))]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-4)
    assert (model(tokens) - whole).abs().max() > 1e-2


@torch.no_grad()
def test_the_context_of_an_operator_of_a_whole_layer():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 11, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), text()
    padding = torch.arange(LENGTH) >= torch.tensor([LENGTH, 4])[:, None]
    with gh.watch(model, keep="context") as run:
        clean = model(x, src_key_padding_mask=padding)
    attention = model.layers[0].self_attn
    query, key, value = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in F.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    )
    context, _ = explicit(query, key, value, ~padding[:, None, None], "nothing")
    torch.testing.assert_close(run["layers.0.self_attn"].context, context)
    # What is patched with itself stays.
    with gh.intervene(model, {"layers.*.self_attn": gh.ActivationPatch(run)}):
        patched = model(x, src_key_padding_mask=padding)
    torch.testing.assert_close(patched, clean, rtol=1e-4, atol=1e-5)


class TestEmptyRows:
    """A query to which nothing is left has no context, and passes no gradient on."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_have_no_context(self, kind):
        model, x = made(kind), text().requires_grad_()
        with gh.watch(model, [gh.Entropy()], keep="context") as seen:  # noqa: SIM117
            with gh.intervene(model, {name_of(kind): gh.ForbidKeys([0, 1], heads=[2])}):
                changed = model(x)
        (gradient,) = torch.autograd.grad(changed.square().sum(), x)
        context = seen[name_of(kind)].context
        assert (context[:, 2, :2] == 0).all()
        assert (context[:, 2, 2:] != 0).all()
        assert (context[:, :2] != 0).all()
        assert (seen[name_of(kind)].entropy[:, 2, :2] == 0).all()
        assert changed.isfinite().all()
        assert gradient.isfinite().all()

    def test_what_is_hidden_may_be_anything(self):
        rule, x = gh.Attention(), torch.randn(1, HEADS, LENGTH, HEAD_DIM)
        value = x.clone()
        value[:, 1, 3] = torch.nan
        with gh.intervene(rule, {"": gh.ForbidKeys([3])}):
            context = rule(x, x, value)
        assert context.isfinite().all()


class TestBlocks:
    def test_within_each_other_all_apply_the_outer_one_first(self):
        model, x = made("mask"), text()
        changes = [gh.ScaleBeta(0.5), gh.ForbidKeys([1])]
        with torch.no_grad(), gh.intervene(model, {"0": changes, "1": gh.ZeroAblation()}):
            expected = model(x)
        with torch.no_grad(), gh.intervene(model, {"0": changes[0]}):
            with (
                gh.intervene(model, {"0": changes[1]}),
                gh.intervene(model, {"1": gh.ZeroAblation()}),
            ):
                assert torch.equal(model(x), expected)
            assert not torch.equal(model(x), expected)
        assert nothing_stays()

    def test_the_last_of_several_outputs_stays(self):
        rule, x = gh.Attention(), torch.randn(1, HEADS, LENGTH, HEAD_DIM)
        with gh.watch(rule, keep="context") as run:
            rule(x, x, -x)
        ones = [gh.ZeroAblation(), gh.ActivationPatch(run, heads=[1]), gh.ZeroAblation(queries=[2])]
        with gh.intervene(rule, {"": ones}):
            context = rule(x, x, x)
        expected = torch.zeros_like(x)
        expected[:, 1] = run[""].context[:, 1]
        expected[:, :, 2] = 0
        assert torch.equal(context, expected)

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_everything_is_as_it_was_after_an_error(self, error):
        model, x = made("weights"), text()
        before = model(x)

        def fails():
            model(x)
            raise error

        with pytest.raises(error), gh.intervene(model, {"0.attn": gh.ForbidKeys([0])}):
            fails()
        assert nothing_stays()
        assert torch.equal(model(x), before)

    def test_another_thread_is_left_alone(self):
        model, x, found = made("flag"), text(), []
        with torch.no_grad():
            whole = model(x)

        def elsewhere():
            with torch.no_grad():
                found.append(model(x))

        with torch.no_grad(), gh.intervene(model, {"0": gh.ForbidKeys([0])}):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert not torch.equal(model(x), whole)
        assert torch.equal(found[0], whole)

    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize("change", ["patch", "beta", "forbid"])
    def test_gradient_checkpointing_changes_the_same(self, change, reentrant):
        model, x = made("flag"), text().requires_grad_()
        run, gradients = run_of(model, text(11)), []
        for again in (True, False):
            with gh.intervene(model, {"0": MAKE[change](run)}):
                output = checkpoint(model, x, use_reentrant=reentrant) if again else model(x)
                output.square().sum().backward()
            gradients.append(x.grad)
            x.grad = None
        torch.testing.assert_close(*gradients)

    def test_patterns_name_several(self):
        model, x = made("mask"), text()
        with torch.no_grad(), gh.intervene(model, {"[01]": gh.ZeroAblation()}):
            changed = model(x)
        bias = model[0].attn.out_proj.bias + model[1].attn.out_proj.bias
        torch.testing.assert_close(changed, x + bias)

    def test_training_draws_the_same_random_numbers(self):
        model, x = nn.Sequential(Layer("weights"), nn.Dropout(0.5)).train(), text()
        changed = []
        for _ in range(2):
            torch.manual_seed(1)
            with gh.intervene(model, {"0.attn": gh.ForbidKeys([0], queries=[3])}):
                changed.append(model(x))
        torch.manual_seed(1)
        assert torch.equal(*changed)
        assert torch.equal(changed[0] == 0, model(x) == 0)


class TestMeans:
    def test_leave_padding_out(self):
        model, lengths = made("mask"), [7, 4]
        padding = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
        with torch.no_grad():
            with gh.watch(model, keep="context", attention_mask=padding) as run:
                model(text())
            with (
                gh.watch(model, keep="context") as seen,
                gh.intervene(model, {"0": gh.MeanAblation(run)}),
            ):
                changed = model(text())
        context = run["0"].context
        mean = torch.cat([context[0], context[1, :, :4]], -2).mean(-2)
        by_hand = mean.flatten()[None, None].expand(BATCH, LENGTH, -1)
        first = text() + model[0].attn.out_proj(by_hand)
        torch.testing.assert_close(changed, model[1].by_hand(first, "nothing")[0])
        # What a watch keeps is what attention gave.
        assert torch.equal(seen["0"].context, context)

    def test_are_of_all_calls(self):
        rule, x = gh.Attention(), torch.randn(1, HEADS, LENGTH, HEAD_DIM)
        with gh.watch(rule, keep="context") as run:
            rule(x, x, x)
            rule(x[:, :, :3], x, 2 * x)
        with gh.intervene(rule, {"": gh.MeanAblation(run)}):
            context = rule(x, x, x)
        every = torch.cat([run[""][0].context, run[""][1].context], -2)
        torch.testing.assert_close(context, every.mean(-2, keepdim=True).expand(context.shape))


class TestKeptContexts:
    def test_are_the_output_of_each_head_and_not_what_the_model_makes_of_it(self):
        class Overwriting(nn.Module):
            def forward(self, x):
                heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                return F.scaled_dot_product_attention(heads, heads, heads).mul_(0)

        x = text()
        model = Overwriting()
        with gh.watch(model, keep="context", heads=[1]) as run:
            model(x)
        heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        expected = F.scaled_dot_product_attention(heads, heads, heads)
        torch.testing.assert_close(run[""].context, expected)

    def test_take_a_budget(self):
        model = made("flag")
        sentence = "keep='context' may use at most budget=100 bytes"
        with pytest.warns(UserWarning, match=sentence):  # noqa: SIM117
            with gh.watch(model, keep="context", budget=100) as run:
                model(text())
        with pytest.raises(ValueError, match=sentence):
            _ = run["0"].context

    def test_are_not_those_of_dropped_weights_that_stay_within(self):
        layer = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True).train()
        sentence = (
            "output shows before it is projected, but the output of '' does not. Omit it with"
        )
        with pytest.raises(ValueError, match=sentence), gh.watch(layer, keep="context"):
            layer(text(), text(), text())


class TestErrors:
    @pytest.mark.parametrize(
        ("make", "error", "sentence"),
        [
            (
                lambda: [0],
                TypeError,
                r"needs interventions by the names of modules, .* got \[0\]\.",
            ),
            (
                lambda: {"0": [3]},
                TypeError,
                r"such as gh\.ZeroAblation\(heads=\[0\]\) for '0', .* 3\.",
            ),
            (
                lambda: {"2": gh.ZeroAblation()},
                ValueError,
                "got '2', which names none. Did you mean",
            ),
            (
                lambda: gh.ZeroAblation(heads=0),
                TypeError,
                r"ZeroAblation\(heads=…\) must be a list .* 0\.",
            ),
            (
                lambda: gh.ZeroAblation(heads=[]),
                TypeError,
                r"must be a list of numbers .* got \[\]\.",
            ),
            (
                lambda: gh.ForbidKeys([-1]),
                ValueError,
                r"ForbidKeys\(keys=…\) must be .* at least 0",
            ),
            (lambda: gh.ForceKeys(3), TypeError, r"ForceKeys\(keys=…\) must be a list of numbers"),
            (lambda: gh.ScaleBeta(float("nan")), ValueError, "ScaleBeta"),
            (
                lambda: gh.MeanAblation({}),
                TypeError,
                "needs what a watch has seen, got dict. Give",
            ),
            (
                lambda: gh.ActivationPatch(3),
                TypeError,
                "ActivationPatch needs what a watch has seen",
            ),
        ],
    )
    def test_of_arguments(self, make, error, sentence):
        with pytest.raises(error, match=sentence), gh.intervene(made("mask"), make()):
            pass

    def test_no_model(self):
        with pytest.raises(TypeError, match="intervene needs a model, got str"):  # noqa: SIM117
            with gh.intervene("", {}):
                pass

    @pytest.mark.parametrize(
        ("intervention", "sentence"),
        [
            (
                gh.ZeroAblation(heads=[3]),
                r"intervene needs heads .* '0' has 3, .* and not 3\. Name",
            ),
            (gh.ForbidKeys([0], heads=[1, 7]), "'0' has 3, counted from 0, and not 7. Name others"),
        ],
    )
    def test_a_head_that_is_not_there(self, intervention, sentence):
        model = made("mask")
        with pytest.raises(ValueError, match=sentence), gh.intervene(model, {"0": intervention}):
            model(text())

    @pytest.mark.parametrize("intervention", [gh.ForbidKeys([7]), gh.ZeroAblation(queries=[9, 7])])
    def test_positions_that_no_text_had(self, intervention):
        model = made("mask")
        sentence = "needs positions of the text, but '0' met 7, counted from 0, and none of"
        with pytest.raises(RuntimeError, match=sentence), gh.intervene(model, {"0": intervention}):
            model(text())

    def test_a_module_that_never_attended(self):
        model = made("weights")
        with pytest.raises(RuntimeError, match=r"met no attention at '0', only at '0\.attn'"):  # noqa: SIM117
            with gh.intervene(model, {"0": gh.ZeroAblation(), "0.attn": []}):
                model(text())

    def test_queries_that_are_projected_within(self):
        model = made("weights")
        with (
            pytest.raises(
                ValueError, match=r"queries=…\) needs .*'0.attn' projects them itself\. Omit q"
            ),
            gh.intervene(model, {"0.attn": gh.ScaleBeta(2.0, queries=[3])}),
        ):
            model(text())

    def test_a_score_that_is_no_product(self):
        rule, x = gh.Attention(score=gh.Cosine()), torch.randn(1, 3, 5, 7)
        with pytest.raises(ValueError, match=r"score is a product of .*, but '' has Cosine\. Set"):  # noqa: SIM117
            with gh.intervene(rule, {"": gh.ScaleBeta(2.0)}):
                rule(x, x, x)

    def test_an_axis_of_heads_that_is_not_there(self):
        rule, x = gh.Attention(), torch.randn(2, 5, HEAD_DIM)
        with pytest.raises(ValueError, match="an axis of heads, but '' was given none"):  # noqa: SIM117
            with gh.intervene(rule, {"": gh.ForbidKeys([0], heads=[0])}):
                rule(x, x, x)
        expected = rule(x, x[:, 1:], x[:, 1:])
        with gh.intervene(rule, {"": gh.ForbidKeys([0])}):
            torch.testing.assert_close(rule(x, x, x), expected)

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
    @pytest.mark.parametrize("intervention", [gh.ZeroAblation(), gh.ForbidKeys([0])])
    def test_packed_texts(self, intervention):
        class Packed(nn.Module):
            def forward(self, x):
                return F.scaled_dot_product_attention(x, x, x)

        x = torch.nested.nested_tensor([torch.randn(3, length, HEAD_DIM) for length in (5, 2)])
        model = nn.Sequential(Packed())
        sentence = r"'0' was given packed ones,.*\. Pad"
        with torch.no_grad(), pytest.raises(ValueError, match=sentence):  # noqa: SIM117
            with gh.intervene(model, {"0": intervention}):
                model(x)

    @pytest.mark.parametrize(
        ("other", "intervention", "sentence"),
        [
            (
                {"length": 5},
                gh.ActivationPatch,
                "'0' has query 6 where that run has 5. Run a text as",
            ),
            (
                {"batch": 3},
                gh.ActivationPatch,
                r"'0' has \[2\] where that run has \[3\]\. Run as many",
            ),
        ],
    )
    def test_a_run_of_another_shape(self, other, intervention, sentence):
        model = made("flag")
        run = run_of(model, text(**other))
        with (
            pytest.raises(ValueError, match=sentence),
            gh.intervene(model, {"0": intervention(run)}),
        ):
            model(text())

    def test_a_run_that_lacks_it(self):
        model = made("mask")
        with gh.watch(model, keep="context", layers="1") as run:
            model(text())
        with gh.watch(model, [gh.Entropy()]) as bare:
            model(text())
        sentences = {
            "'0' was not seen there. Name it in layers= of that watch": run,
            "the context of '0' was not kept in that run. Watch it with keep='context'": bare,
        }
        for sentence, other in sentences.items():
            with pytest.raises(ValueError, match=sentence):  # noqa: SIM117
                with gh.intervene(model, {"0": gh.MeanAblation(other)}):
                    model(text())
        with pytest.raises(ValueError, match="context of '0' was not kept. Watch with keep='cont"):
            bare["0"].context  # noqa: B018

    def test_a_run_of_a_module_that_runs_again(self):
        layer = Layer("mask")
        model = nn.Sequential(layer, layer)
        run = run_of(model, text())
        with (
            pytest.raises(
                ValueError, match=r"once in a forward pass, but '0' runs 2 times\. Use Zero"
            ),
            gh.intervene(model, {"0": gh.ActivationPatch(run)}),
        ):
            model(text())
