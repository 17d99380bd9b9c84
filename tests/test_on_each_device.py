"""What follows the device of a model finds there what it finds on the CPU.

Each test compares a GPU with the CPU where there is one, and runs on the CPU alone elsewhere, so
that it is known to run.
"""

import os

import pytest
import torch
from torch.nn import functional as F

import forked
import glasshead as gh
from glasshead.models.translator import TranslatorSteps
from glasshead.tasks.tokenizers import words
from glasshead.watching.alarms import Probe

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
VOCAB, LENGTH = 61, 251
FIRST, LAST = "blocks.0.attention", "blocks.1.attention"
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0]), gh.MaxScore()]
TEXTS = ["the cat sat on the mat", "the dog sat on the cat and on the mat", "a cat"]


@pytest.fixture(params=DEVICES)
def same(request):
    """Asserts that `compute(device)` runs, and returns the same on a GPU as on the CPU."""

    def same(compute, tolerance=1e-3):
        found = compute(request.param)
        if request.param != "cpu":
            torch.testing.assert_close(
                found, compute("cpu"), rtol=tolerance, atol=tolerance, check_device=False
            )

    return same


def language_model(device, **options):
    torch.manual_seed(3)
    sizes = {"vocab_size": VOCAB, "d_model": 64, "num_heads": 4, "num_layers": 2}
    config = gh.LanguageModelConfig(**sizes, **options)
    return gh.LanguageModel(config).eval().to(device)


def tokens(device, rows=2, length=LENGTH):
    made = torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(5))
    return made.to(device)


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def watched(device, keep=None):
    model = language_model(device)
    with torch.no_grad(), gh.watch(model, STATISTICS, keep=keep) as seen:
        model(tokens(device))
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_watching(same, dtype):
    def compute(device):
        model, text = language_model(device).to(dtype), tokens(device)
        with torch.no_grad():
            plain = model(text)
            with gh.watch(model, STATISTICS, keep="weights") as seen:
                assert torch.equal(model(text), plain)
        layers = [seen[name] for name in (FIRST, LAST)]
        assert {one.entropy.device.type for one in layers} == {device}
        return [(one.entropy, one.received, one.mass_on, one.weights[..., -1, :]) for one in layers]

    same(compute, 1e-3 if dtype == torch.float32 else 0.1)


def test_a_watch_is_saved_and_shown(same, tmp_path):
    def compute(device):
        seen, file = watched(device), tmp_path / f"{device}.safetensors"
        seen.save(file)
        frame = torch.tensor(seen.to_frame("entropy").to_numpy())
        return gh.load(file)[LAST].entropy, frame, torch.tensor(seen.summary().values["entropy"])

    same(compute)


def test_padding_and_attention_by_hand(same):
    class ByHand(torch.nn.Module):
        def forward(self, x, seen):
            scores = (x @ x.mT / 4).masked_fill(~seen[:, None, None], -torch.inf)
            return scores.softmax(-1) @ x

    model = ByHand()

    def compute(device):
        x, real = noise(2, 3, 17, 16).to(device), torch.arange(17) < torch.tensor([[17], [11]])
        with gh.watch(model, STATISTICS, keep="weights", attention_mask=real.to(device)) as seen:
            model(x, real.to(device))
        return seen[""].entropy, seen[""].received, seen[""].weights.dense()

    same(compute)


def test_a_compiled_model(same):
    def compute(device):
        torch.compiler.reset()
        model = torch.compile(language_model(device), backend="eager")
        with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
            logits = model(tokens(device))
        return logits, seen[LAST].entropy, seen[LAST].received

    same(compute)


def test_gradients_and_what_follows_from_them(same):
    def compute(device):
        model = language_model(device)
        with gh.watch(model, keep="gradients") as seen:
            logits = model(tokens(device))
        logits[:, -1, 7].sum().backward()
        layer = seen[LAST]
        rows = (layer.weights * layer.gradients)[..., -1, :]
        return rows, gh.rollout(seen), gh.gradient_rollout(seen)

    same(compute)


def test_what_is_told_of_heads(same):
    def compute(device):
        seen, text = watched(device, "weights"), tokens(device)
        scores = gh.eviction_scores(seen, "snapkv", window=7)
        found = gh.patterns(seen, vertical=2, slash=2, window=5)
        roles = gh.head_roles(seen, text)
        with torch.no_grad(), gh.head_writes(model := language_model(device)) as writes:
            model(text)
        (call,) = writes[LAST]
        return scores[LAST], found[LAST].shares, roles.scores, call.norm, call.share

    same(compute)


def test_parts(same):
    def compute(device):
        seen = watched(device, "parts")
        parts = gh.score_parts(seen, LAST, head=2, query=-1, key=1)
        logit = gh.logit_parts(seen, token=3)
        head = next(one for one in logit.components if one.head == 1)
        return parts.pairs, parts.of_key, logit.parts, logit.sources(head)

    same(compute)


CHANGES = {
    "zero": gh.ZeroAblation(heads=[2]),
    "β": gh.ScaleBeta(0.5, heads=[1, 3], queries=[2, 11]),
    "keys": gh.ForbidKeys([0], heads=[0, 3]),
    "all other keys": gh.ForceKeys([0, 5], queries=[9]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_interventions(same, name):
    def compute(device):
        model, text = language_model(device), tokens(device)
        change = gh.intervene(model, {LAST: CHANGES[name]})
        with torch.no_grad(), gh.watch(model, STATISTICS) as seen, change:
            logits = model(text)
        return logits, seen[LAST].entropy

    same(compute)


def test_patching_from_another_run(same):
    def compute(device):
        model, text = language_model(device), tokens(device)
        with torch.no_grad(), gh.watch(model, keep="context") as run:
            model(text.flip(0))
        changes = {
            FIRST: gh.ActivationPatch(run, heads=[0, 3], queries=[4]),
            LAST: gh.MeanAblation(run, heads=[1]),
        }
        effect = gh.causal_effect(model, changes, text)
        with torch.no_grad(), gh.ablate(model, {LAST: [0, 2]}):
            ablated = model(text)
        return effect.logit_change, effect.kl_divergence, ablated

    same(compute)


def test_steps_and_their_explanation(same):
    def compute(device):
        model = language_model(device)
        with torch.no_grad(), gh.watch(model, keep="trace") as seen:
            model(tokens(device, 1, 5))
        trace = seen[LAST].trace
        told = gh.explain(trace, tokens=list("abcde"), query="d", index=(0, 1))
        return trace.scores, trace.weights, trace.context, told["weights"].data["weights"]

    same(compute)


def test_probes_of_training(same):
    def compute(device):
        # Devices draw other random numbers.
        model = language_model(device, dropout=0.0).train()
        probe = Probe(model)
        probe.begin()
        model(tokens(device)).logsumexp(-1).mean().backward()
        return [(one.head, one.entropy, one.max_score) for one in probe.end(1)]

    same(compute)


def test_a_corpus(same):
    tokenizer = words(TEXTS, vocab_size=17)

    def compute(device):
        model = language_model(device, context_length=7)
        sums = gh.CorpusStatistics(STATISTICS, positions=7)
        with torch.no_grad(), gh.watch(model, sums.statistics) as seen:
            model(tokens(device, 3, 7))
        sums.update(seen)
        own = sums.compute()
        read = gh.observe_texts(model, TEXTS, STATISTICS, tokenizer=tokenizer)
        roles = gh.find_roles(model, TEXTS, tokenizer=tokenizer)
        return [dict(one[LAST]) for one in (own, read)], roles.scores

    same(compute)


STRATEGIES = {
    "greedy": gh.Greedy(),
    "penalized": gh.Greedy(repetition_penalty=1.3),
    "sampled": gh.Sampling(temperature=0.7, top_k=5, seed=3),
    "beam": gh.Beam(3),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_generation_with_a_cache(same, name):
    """Watched or not, it is the same text."""

    def compute(device):
        model, prompt = language_model(device), tokens(device, 1, 17)
        written = gh.generate(model.steps(), prompt, STRATEGIES[name], max_tokens=23)
        with gh.watch(model, [gh.Entropy()]) as seen:
            again = gh.generate(model.steps(), prompt, STRATEGIES[name], max_tokens=23)
        assert again.tokens == written.tokens
        # The last token is chosen, and not read.
        assert name == "beam" or seen[FIRST].entropy.shape[-1] == 17 + 22
        return written.tokens, written.scores

    same(compute)


@pytest.mark.parametrize(
    "policy", [gh.H2O(16), gh.SnapKV(16, 5), gh.TOVA(16), gh.Sinks(3, 13)], ids=str
)
def test_caches_that_let_keys_go(same, policy):
    def compute(device):
        model, prompt = language_model(device, positions="rotary"), tokens(device, 2, 41)
        cache = model.new_cache(policy)
        with torch.no_grad():
            logits = [model(part, cache=cache) for part in prompt.split([31] + [1] * 10, 1)]
        assert cache.count == 16
        steps = model.steps(policy=policy)
        return logits, gh.generate(steps, prompt, gh.Greedy(), max_tokens=7).tokens

    same(compute)


def test_translators_and_classifiers(same):
    sizes = {"vocab_size": VOCAB, "d_model": 64, "num_heads": 4, "num_layers": 2}

    def compute(device):
        torch.manual_seed(3)
        translator = gh.Translator(gh.TranslatorConfig(**sizes)).eval().to(device)
        classifier = gh.Classifier(gh.ClassifierConfig(**sizes, num_answers=3)).eval().to(device)
        source, lengths = tokens(device, 2, 13), torch.tensor([13, 7], device=device)
        steps = TranslatorSteps(translator, source, lengths)
        written = gh.generate(steps, tokens(device, 2, 1), gh.Beam(3), max_tokens=9)
        with torch.no_grad():
            return written.tokens, written.scores, classifier(source, lengths)

    same(compute)


def test_maps_on_pictures(same):
    transformers = pytest.importorskip("transformers")

    def compute(device):
        torch.manual_seed(3)
        sizes = {"image_size": 20, "patch_size": 5, "hidden_size": 24, "intermediate_size": 32}
        config = transformers.ViTConfig(**sizes, num_hidden_layers=2, num_attention_heads=3)
        model = transformers.ViTModel(config).eval().to(device)
        pixels = noise(1, 3, 20, 20).to(device)
        with torch.no_grad(), gh.watch(model, keep="weights") as seen:
            model(pixels)
        layer = [*seen.values()][-1]
        looks = layer.image(0)
        drawn = torch.tensor(looks.on(pixels[0].sigmoid()).overlay.pixels())
        return looks.weights, layer.on_image(gh.rollout(seen, rows=[0])[0, 0]).weights, drawn

    same(compute)


def test_maps_of_a_prompt(same):
    class Attention(torch.nn.Module):
        def forward(self, x, encoder_hidden_states):
            text = encoder_hidden_states[:, None]
            return F.scaled_dot_product_attention(x[:, None], text, text)

    class Painter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attn2 = Attention()

        def forward(self, sample, encoder_hidden_states):
            return self.attn2(sample.flatten(2).mT, encoder_hidden_states=encoder_hidden_states)

    def compute(device):
        painter, scene, names = Painter(), noise(1, 3, 4, 5), torch.eye(3)[None]
        with gh.prompt_maps(painter, {"red": [0], "green": [1, 2]}) as maps:
            painter(scene.to(device), names.to(device))
        return maps["red"].weights, maps["green"].weights

    same(compute)


def test_times_of_words(same):
    transformers = pytest.importorskip("transformers")

    def compute(device):
        torch.manual_seed(3)
        sizes = dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32)
        sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 3)
        sizes |= dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = transformers.WhisperConfig(
            vocab_size=VOCAB, num_mel_bins=8, d_model=24, max_source_positions=11, **sizes,
            max_target_positions=13, decoder_start_token_id=1, **special,
        )  # fmt: skip
        model = transformers.WhisperModel(config).eval().to(device)
        text = tokens(device, 1, 7)
        with torch.no_grad(), gh.watch(model, keep="weights", layers="*encoder_attn") as seen:
            model(noise(1, 8, 22).to(device), decoder_input_ids=text)
        times = gh.token_timestamps(seen, [(0, 1), (1, 2)], prompt=2)
        return times, [one.score for one in gh.alignment_heads(seen, prompt=2)]

    same(compute)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("device", DEVICES)
def test_texts_read_by_ranks(device, tmp_path):
    """By the command, in a process group of NCCL on a GPU and of Gloo on the CPU."""
    (tmp_path / "text.txt").write_text("all work and no play makes a dull day\n" * 50)
    # A process that uses a GPU is a new one.
    start = forked.Process if device == "cpu" else forked.NewProcess
    hidden = os.environ | {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    shown = hidden | {"CUDA_VISIBLE_DEVICES": "0"} if device == "cuda" else hidden
    rank = shown | forked.launched(0, 1, forked.free_port())
    train = ["train", "write", "text.txt", "--preset", "tiny", "--run", "run", "--watch"]
    train += ["--set", "steps=3", "--set", "warmup=1", "--accelerator", device]
    observe = ["observe", "run", "--text", "text.txt", "--save"]
    for command, variables in (
        (train, shown),
        ([*observe, "ranks.safetensors"], rank),
        ([*observe, "one.safetensors"], hidden),
    ):
        done = start("-m", "glasshead", *command, cwd=tmp_path, env=variables).ended()
        assert done.returncode == 0, done.stderr
    ours, theirs = (gh.load(tmp_path / f"{name}.safetensors") for name in ("ranks", "one"))
    assert list(ours) == list(theirs)
    for layer in theirs:
        torch.testing.assert_close(dict(ours[layer]), dict(theirs[layer]), rtol=1e-3, atol=1e-3)
