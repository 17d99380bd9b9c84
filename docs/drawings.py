"""Draw what the pages on watching show: a small Llama on real texts, and models made to be seen.

The Llama and its texts are those of the folder in the variable GLASSHEAD_DATA.
"""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import glasshead as gh
from glasshead.models.pretrained import load_llama2c
from glasshead.tasks.tokenizers.pretrained import llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.watching.analytics.speech import time_warping
from tests.scripts import script
from tests.watching.ranks import Ranks

PICTURES = Path(__file__).parent / "pictures"
DATA = Path(os.environ.get("GLASSHEAD_DATA", ""))
STORY = "Lily and her mom went to the park. There she saw a dog. The dog was sad. Lily gave the"
CLEAN, CHANGED = "#2c6fbb", "#c1443c"
HEADS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#000000")
CHARACTERS = 300_000
# The layer and number of a head that looks far back.
LOOKS_BACK = (2, 6)
# The matrices of a block, and what transformers calls the parts of each.
PARTS = {
    "attention.projections.stacks.0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.output": ("self_attn.o_proj",),
    "feed_forward.hidden.stacks.0": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.output": ("mlp.down_proj",),
    "around_attention.norm": ("input_layernorm",),
    "around_feed_forward.norm": ("post_attention_layernorm",),
}


@cache
def _llama() -> tuple[gh.LanguageModel, Tokenizer]:
    """Return a Llama of 5 layers with 8 heads, and its tokenizer."""
    file = DATA / "stories260K" / "stories260K.bin"
    if not file.is_file():
        raise SystemExit("the pictures show a real model: set GLASSHEAD_DATA to its folder.")
    return load_llama2c(file).eval(), llama2c_tokenizer(file.with_name("tok512.bin"))


def _tokens() -> torch.Tensor:
    return torch.tensor([_llama()[1].encode(STORY)])


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def interventions() -> None:
    """Draw what each head of a model is for, by the loss without it, and one of them away."""
    model, tokenizer = _llama()
    tokens = _tokens()
    layers, heads = model.config.num_layers, model.config.num_heads

    def without(layer: int, head: int) -> gh.CausalEffect:
        away = {f"blocks.{layer}.attention": gh.ZeroAblation(heads=[head])}
        return gh.causal_effect(model, away, tokens, loss=_loss(tokens))

    effects = [[without(layer, head) for head in range(heads)] for layer in range(layers)]
    losses = torch.tensor([[float(one.loss_change) for one in row] for row in effects])
    # The head without which the next token is told in the least alike way.
    ends = torch.tensor([[float(one.kl_divergence[0, -1]) for one in row] for row in effects])
    layer, head = divmod(int(ends.argmax()), heads)
    figure = _figure(11, 3)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    limit = float(losses.abs().max())
    left.imshow(losses, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for (y, x), change in ((at, float(losses[at])) for at in product(range(layers), range(heads))):
        color = "white" if abs(change) > 0.6 * limit else "black"
        left.text(x, y, f"{change:+.2f}", ha="center", va="center", fontsize=8, color=color)
    left.set(xlabel="head", ylabel="layer", yticks=range(layers))
    left.set_title("change of the loss without a head, in nats", loc="left", fontsize=11)
    effect = effects[layer][head]
    clean, changed = (one[0, -1].softmax(-1) for one in (effect.clean, effect.changed))
    both = (clean + changed).topk(6).indices.flip(0)
    places = torch.arange(len(both))
    right.barh(places + 0.2, clean[both], 0.38, color=CLEAN, label="with all heads")
    named = f"without head {head} of layer {layer}"
    right.barh(places - 0.2, changed[both], 0.38, color=CHANGED, label=named)
    right.set_yticks(places, [tokenizer.decode([int(one)]).strip() for one in both])
    right.set_title(f"“… {STORY.rpartition('. ')[2]} …”", loc="left", fontsize=11)
    right.set_xlabel("probability of the next token")
    right.legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(PICTURES / "interventions.png", dpi=110)


def _loss(tokens: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss of each token after those before it."""

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:])

    return loss


def gradients() -> None:
    """Draw which tokens speak for the next one, by the weights alone and with their gradients."""
    model, tokenizer = _llama()
    tokens = _tokens()
    with gh.watch(model, keep="gradients") as seen:
        logits = model(tokens)
    told = int(logits[0, -1].argmax())
    logits[0, -1, told].backward()
    by_weights = gh.rollout(seen)[0, 0].detach()
    by_gradients = gh.gradient_rollout(seen)[0, 0].detach()
    words = [tokenizer.decode([int(one)]) for one in tokens[0]]
    figure = _figure(11, 3.2)
    panels = figure.subplots(2, 1, sharex=True)
    told_as = f"gradient-weighted rollout, of the logit of “{tokenizer.decode([told]).strip()}”"
    for axes, (title, relevance, color) in zip(
        panels,
        (("rollout of the weights", by_weights, "#8a8a8a"), (told_as, by_gradients, CLEAN)),
        strict=True,
    ):
        # The first and the last token are told in words: they would drown all others.
        axes.bar(range(1, len(words) - 1), relevance[1:-1], color=color)
        axes.set_title(title, loc="left", fontsize=11)
    panels[1].set_xticks(range(1, len(words) - 1), words[1:-1], rotation=60, ha="right", fontsize=8)
    figure.savefig(PICTURES / "gradients.png", dpi=110)


def corpus() -> None:
    """Draw how far each head looks in the mean over a corpus."""
    model, tokenizer = _llama()
    text = (DATA / "shakespeare" / "input.txt").read_text(encoding="utf-8")[:CHARACTERS]
    edges = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    statistics = [gh.DistanceHistogram(edges), gh.Entropy()]
    result = gh.observe_texts(model, [text], statistics, tokenizer=tokenizer)
    figure = _figure(11, 2.6)
    panels = figure.subplots(1, len(result), sharey=True)
    for number, (axes, layer) in enumerate(zip(panels, result, strict=True)):
        shares = result[layer].distance_histogram.cumsum(-1)
        for head, share in enumerate(shares.tolist()):
            axes.plot(edges[1:], share, color=HEADS[head], linewidth=1.3, label=f"head {head}")
        axes.set(xscale="log", xlabel="distance, in tokens", ylim=(0, 1.02))
        axes.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"], minor=False)
        axes.set_title(f"layer {number}", loc="left", fontsize=11)
    panels[0].set_ylabel("attention up to there")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right", frameon=False)
    figure.savefig(PICTURES / "corpus.png", dpi=110)
    print(f"{result.source['tokens']:,} tokens")


def compiled() -> None:
    """Draw what each head gives to the first token while compiled steps write a text."""
    from transformers import LlamaForCausalLM

    model, tokenizer = _llama()
    with tempfile.TemporaryDirectory() as folder:
        _save_for_transformers(model, Path(folder))
        llama = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    given = torch.tensor([tokenizer.encode("Lily and her mom went to the park.")])
    alone = _written(llama, given, by="aot_eager")
    statistics = [gh.MassOn([0]), gh.Entropy(), gh.MaxWeight()]
    with gh.watch(llama, statistics) as seen:
        watched = _written(llama, given, by="aot_eager")
    with gh.watch(llama, statistics) as before:
        _written(llama, given)
    # The last token that is written is read by none.
    steps = slice(given.shape[1], watched.shape[1] - 1)
    on_first, uncompiled = (
        torch.stack([layer.mass_on[0, :, steps] for layer in one.values()])
        for one in (seen, before)
    )
    layer, head = divmod(int(on_first.amax(-1).argmax()), on_first.shape[1])
    rows, words = on_first.flatten(0, 1), [tokenizer.decode([int(one)]) for one in watched[0]]
    figure = _figure(11, 4.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.9, 1))
    drawn = above.imshow(rows, cmap="Blues", vmin=0, aspect="auto")
    each = on_first.shape[1]
    for edge in range(each, len(rows), each):
        above.axhline(edge - 0.5, color="0.7", linewidth=1)
    above.set_yticks([y + each / 2 - 0.5 for y in range(0, len(rows), each)], range(len(on_first)))
    above.set(ylabel=f"layer, {each} heads each")
    above.tick_params(axis="x", bottom=False)
    above.set_title(f"weight on the first token, “{words[0]}”", loc="left", fontsize=11)
    figure.colorbar(drawn, ax=above, pad=0.01)
    places = range(rows.shape[1])
    far = float((on_first - uncompiled).abs().max())
    below.bar(places, on_first[layer, head], color="#9ecae1", label="compiled, watched")
    told = f"not compiled; no head is more than {far:.0e} away"
    below.plot(places, uncompiled[layer, head], "k.", markersize=4, label=told)
    below.set_xticks(places, [word.strip() for word in words[steps]], rotation=60, ha="right")
    below.tick_params(axis="x", labelsize=8)
    below.set_title(f"head {head} of layer {layer}", loc="left", fontsize=11)
    below.legend(frameon=False, fontsize=9, loc="upper left", ncols=2, reverse=True)
    figure.savefig(PICTURES / "compiled.png", dpi=110)
    print(f"the tokens are those of the unwatched compiled run: {torch.equal(watched, alone)}")
    fars = (seen.to_frame() - before.to_frame()).abs().max().to_dict()
    print("the largest differences from the run that is not compiled:", fars)


def _written(llama: Any, given: torch.Tensor, by: str | None = None) -> torch.Tensor:
    """Return a text of 40 more tokens in a static cache, its steps compiled by a backend or not."""
    from transformers import CompileConfig

    asked: dict[str, Any] = {"disable_compile": True}
    if by is not None:
        config = CompileConfig(backend=by)
        # `generate` compiles on a GPU only, unless it is tested.
        vars(config).update(mode=None, _compile_all_devices=True)
        asked = {"compile_config": config}
    length = {"max_new_tokens": 40, "min_new_tokens": 40}
    static = {"cache_implementation": "static", "pad_token_id": 0}
    return llama.generate(given, do_sample=False, **length, **static, **asked)


def by_hand() -> None:
    """Draw the steps of attention written by hand, with the numbers of a head of the Llama."""

    class CausalAttention(torch.nn.Module):
        def __init__(
            self, queries: torch.nn.Module, keys: torch.nn.Module, values: torch.nn.Module
        ) -> None:
            super().__init__()
            self.W_query, self.W_key, self.W_value = queries, keys, values

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            queries, keys, values = self.W_query(x), self.W_key(x), self.W_value(x)
            scores = queries @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
            return torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ values

    (model, tokenizer), (layer, head) = _llama(), LOOKS_BACK
    tokens = torch.tensor([tokenizer.encode("Lily gave the dog a ball. The dog was happy. Lily")])
    name, given = f"blocks.{layer}.attention", []
    whole: Any = model.get_submodule(name)
    reading = whole.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with gh.watch(model, keep="weights") as seen, torch.no_grad():
        model(tokens)
    reading.remove()
    own = CausalAttention(*_head(whole, head))
    with gh.watch(own, keep="trace") as watched, torch.no_grad():
        own(given[0])
    by, trace = str(watched[""].by_hand), watched[""].trace
    words = [tokenizer.decode([int(one)]).strip() for one in tokens[0]]
    steps = (trace.scores, trace.scaled, trace.masked, trace.weights, trace.context)
    limits = [float(one.abs().max()) for one in (trace.scores, trace.context)]
    scores, context = ({"cmap": "RdBu_r", "vmin": -most, "vmax": most} for most in limits)
    looks = (scores, scores, scores, {"cmap": "Blues", "vmin": 0, "vmax": 1}, context)
    places, width = range(len(words)), trace.context.shape[-1]
    figure = _figure(11, 3.6)
    panels = figure.subplots(1, 5, width_ratios=(*4 * (len(words),), width), sharey=True)
    for axes, done, step, look in zip(panels, by.split(", "), steps, looks, strict=True):
        drawn = axes.imshow(step[0].masked_fill(step[0] == -torch.inf, torch.nan), **look)
        axes.set_facecolor("#d9d9d9")
        axes.set_title(done, loc="left", fontsize=11)
        axes.set_xticks(*((range(width),) if axes is panels[4] else (places, words)))
        axes.tick_params(labelsize=7)
        axes.tick_params(axis="x", rotation=0 if axes is panels[4] else 90)
        if axes in panels[2:]:
            below = list(panels[:3]) if axes is panels[2] else axes
            figure.colorbar(drawn, ax=below, location="bottom", fraction=0.05, aspect=30)
    panels[0].set_yticks(places, words)
    asking = max(place for place in places if words[place] == "do")
    found = int(trace.weights[0, asking].argmax())
    most = float(trace.weights[0, asking, found])
    told = f"“{words[asking]}” gives “{words[found]}” {most:.2f}"
    arrow = {"arrowstyle": "-", "color": "0.4", "shrinkB": 4, "relpos": (0.1, 0)}
    panels[3].annotate(told, (found, asking), (5.2, 3), fontsize=8, arrowprops=arrow)
    figure.savefig(PICTURES / "by_hand.png", dpi=110)
    fused = seen[name].weights.dense()[:, head]
    far = float((trace.weights - fused).abs().max())
    print(f"by hand and in the model on its fused kernel, the weights are {far:.0e} apart")


def _head(whole: Any, head: int) -> list[torch.nn.Module]:
    """Return a head's projections to queries, keys and values, the first two with positions."""
    rows = whole.projections.stacks[0].weight.detach().split(whole.head_dim)
    keys = whole.num_heads + head * whole.num_kv_heads // whole.num_heads
    parts = [torch.nn.Linear(*one.mT.shape, bias=False) for one in rows[:3]]
    for part, number in zip(parts, (head, keys, keys + whole.num_kv_heads), strict=True):
        part.weight.data = rows[number]
    turned = [torch.nn.Sequential(part, whole.rotary) for part in parts[:2]]
    return [*turned, parts[2]]


def ranks() -> None:
    """Draw what two ranks see of their own heads, and what all heads together tell."""
    from transformers import LlamaForCausalLM

    model, tokenizer = _llama()
    with tempfile.TemporaryDirectory() as folder:
        _save_for_transformers(model, Path(folder))
        of_ranks = Ranks()
        found = of_ranks(_of_rank, Path(folder))
        of_ranks.close()
        whole = _watched(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64).eval())
    figure = _figure(11, 3.2)
    *parts, right = figure.subplots(1, 3, width_ratios=(1, 1, 2.6))
    most = float(max(one["entropies"].max() for one in found))
    for rank, (axes, one) in enumerate(zip(parts, found, strict=True)):
        entropies, heads = one["entropies"], one["heads"]
        axes.imshow(entropies, cmap="Blues", vmin=0, vmax=most, aspect="auto")
        for y, x in product(*map(range, entropies.shape)):
            color = "white" if entropies[y, x] > 0.6 * most else "black"
            text = f"{float(entropies[y, x]):.2f}"
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color=color)
        axes.set(xlabel="head", xticks=range(len(heads)), yticks=range(len(entropies)))
        axes.set_xticklabels(heads)
        axes.set_title(f"rank {rank}: entropy, nats", loc="left", fontsize=11)
    parts[0].set_ylabel("layer")
    parts[1].tick_params(labelleft=False)
    gathered = torch.stack([one["rollout"] for one in found])
    rollout = gh.rollout(whole)[0, 0]
    far = float((gathered - rollout).abs().max())
    words = [tokenizer.decode([int(one)]).strip() for one in _tokens()[0]]
    places = range(len(words))
    right.bar(places, gathered[0], color="#9ecae1", label="gathered from both ranks")
    told = f"one process, at most {far:.0e} away"
    right.plot(places, rollout, "k.", markersize=4, label=told)
    right.set_xticks(places, words, rotation=60, ha="right", fontsize=8)
    right.set(xlim=(-0.8, len(words) - 0.2), ylim=(0, 1.25 * float(rollout.max())))
    right.set_title("rollout over all heads, from the last token", loc="left", fontsize=11)
    right.legend(frameon=False, fontsize=9, loc="upper left", ncols=2, reverse=True)
    figure.savefig(PICTURES / "ranks.png", dpi=110)
    far = max(
        float((one["gathered"][name] - layer.entropy).abs().max())
        for one, (name, layer) in product(found, whole.items())
    )
    print(f"the entropies of two ranks and of one process are at most {far:.0e} apart")


def _of_rank(_: int, folder: Path) -> dict[str, Any]:
    """Return what a rank sees of its own heads, and of all of them together."""
    from transformers import DistributedConfig, LlamaForCausalLM

    spread = DistributedConfig(tp_plan="auto")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64, distributed_config=spread)
    seen = _watched(model.eval())
    whole = seen.gather()
    return {
        "heads": next(iter(seen.values()))[0].heads,
        "entropies": torch.stack([layer.entropy[0].mean(-1) for layer in seen.values()]),
        "gathered": {name: layer.entropy for name, layer in whole.items()},
        "rollout": gh.rollout(whole)[0, 0],
    }


def _watched(model: torch.nn.Module) -> gh.Seen:
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(_tokens())
    return seen


def _save_for_transformers(model: gh.LanguageModel, folder: Path) -> None:
    """Save the Llama as one of transformers, which knows how to spread its heads over ranks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config, ours = model.config, model.state_dict()
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.hidden,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            rms_norm_eps=config.norm_eps or 1e-5,
            tie_word_embeddings=True,
        )
    )
    lengths = {name: len(one) for name, one in theirs.state_dict().items()}
    embedding = ours["embedding.tokens.weight"]
    weights = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    weights["model.norm.weight"] = ours["norm.weight"]
    for layer, (own, parts) in product(range(config.num_layers), PARTS.items()):
        names = [f"model.layers.{layer}.{part}.weight" for part in parts]
        rows = ours[f"blocks.{layer}.{own}.weight"].split([lengths[name] for name in names])
        weights |= zip(names, rows, strict=True)
    theirs.load_state_dict(weights)
    theirs.double().save_pretrained(folder)


def speech() -> None:
    """Draw heads of cross-attention that align text with sound or do not, and their scores."""

    class Reader(torch.nn.Module):
        def forward(self, text: torch.Tensor, sound: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(text, sound, sound)

    torch.manual_seed(0)
    places = torch.arange(60)[None].sub(torch.linspace(4, 55, 17)[:, None])
    onward = torch.exp(-((places + 2 * torch.randn(17, 1)) ** 2) / 6)
    at_one = torch.exp(-((torch.arange(60) - 20.0) ** 2) / 6).expand(17, 60)
    looks = torch.stack([onward, at_one, torch.rand(17, 60)])
    text, reader = (looks + 1e-3).log() * 60**0.5, Reader()
    with gh.watch(reader, keep="weights") as seen:
        reader(text[None], torch.eye(60).expand(1, 3, 60, 60))
    weights, figure = seen[""].weights.dense()[0], _figure(11, 2.6)
    scores = {head.head: head.score for head in gh.alignment_heads(seen)}
    for head, axes in enumerate(figure.subplots(1, 3)):
        axes.imshow(weights[head].numpy(), cmap="Blues", aspect="auto")
        axes.set_title(f"head {head}: {round(scores[head], 2) + 0.0:.2f}", loc="left", fontsize=11)
        axes.set(xlabel="sound", ylabel="text")
        if not head:
            above = weights[head] - weights[head].mean(0)
            rows, columns = time_warping(-above.double().numpy())
            axes.plot(columns, rows, color="#d1495b", linewidth=1.2)
    figure.savefig(PICTURES / "speech.png", dpi=110)


def prompt() -> None:
    """Draw the maps of three words, by cross-attention of colours to the names of colours."""

    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor, encoder_hidden_states: torch.Tensor) -> torch.Tensor:
            text = encoder_hidden_states[:, None]
            return torch.nn.functional.scaled_dot_product_attention(x[:, None], text, text)

    class Painter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn2 = Attention()

        def forward(
            self, sample: torch.Tensor, encoder_hidden_states: torch.Tensor
        ) -> torch.Tensor:
            return self.attn2(sample.flatten(2).mT, encoder_hidden_states=encoder_hidden_states)

    y, x = torch.meshgrid(torch.arange(24.0), torch.arange(36.0), indexing="ij")
    red = ((y - 7) ** 2 + (x - 25) ** 2 < 17).float()
    green = (y > 16 + 3 * torch.sin(x / 6)).float()
    blue = (1 - red - green) * (0.5 + y / 40)
    scene, words, painter = torch.stack([red, green, blue]), ("red", "green", "blue"), Painter()
    with gh.prompt_maps(painter, {word: [place] for place, word in enumerate(words)}) as maps:
        painter(6 * scene[None], torch.eye(3)[None])
    figure = _figure(11, 2.1)
    for axes, word in zip(figure.subplots(1, 4), ("", *words), strict=True):
        drawn = maps[word].on(scene).overlay.pixels() if word else scene.permute(1, 2, 0).numpy()
        axes.imshow(drawn)
        axes.set_title(word or "picture", fontsize=11)
        axes.set_axis_off()
    figure.savefig(PICTURES / "prompt.png", dpi=110)


def why() -> None:
    """Draw what a prediction of the model with induction heads comes from."""
    example = script("examples/induction_heads.py")
    model, _ = example.learned()
    text = example.unseen(1, period=6)
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(text)
    letters = [example.LETTERS[token] for token in text[0]]
    traced = gh.trace_back(seen, 8, depth=3, tokens=letters)
    (PICTURES / "why.svg").write_text(traced.figure.svg(), encoding="utf-8")


def main() -> None:
    """Draw all of them."""
    for draw in (compiled, by_hand, interventions, gradients, ranks, corpus, speech, prompt, why):
        draw()
