"""Watch a real model write a story: what each of its heads looks at, and how far back.

    python examples/watch_a_story.py stories260K.bin [FILE.png]

stories260K is a small Llama that was trained on children's stories; llama2.c keeps it as one file,
https://huggingface.co/karpathy/tinyllamas. It becomes a model of transformers here and writes on
PyTorch's fused kernels, as it would unwatched. Told is what its heads do, in tables and a picture.
"""

import struct
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from torch import Tensor

import glasshead as gh
from glasshead.whole_file import whole_file

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

FILE = Path("build") / "watch_a_story.png"
BEGIN, LENGTH = 1, 200
STATISTICS = [gh.Entropy(), gh.MeanDistance(), gh.MassOn([0])]
TITLES = ("entropy, nats", "distance, tokens back", "mass on the first token")


def story_model(file: Path) -> "LlamaForCausalLM":
    """The model of a file of llama2.c: seven numbers, then every weight as float32.

    Errors: a ValueError where the file is something else.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    data = file.read_bytes()
    width, hidden, layers, heads, kv_heads, vocabulary, length = struct.unpack("7i", data[:28])
    of_keys = width // heads * kv_heads
    matrices = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (of_keys, width),
        "self_attn.v_proj": (of_keys, width),
        "self_attn.o_proj": (width, width),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
        "mlp.up_proj": (hidden, width),
    }
    flat, at = torch.frombuffer(bytearray(data[28:]), dtype=torch.float32), 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        at += (size := prod(shape))
        return flat[at - size : at].view(shape)

    weights = {"model.embed_tokens.weight": take(vocabulary, width)}
    for name, shape in matrices.items():
        every = take(layers, *shape)
        if name.endswith(("q_proj", "k_proj")):
            every = _halves(every, width // heads)
        weights |= {f"model.layers.{i}.{name}.weight": one for i, one in enumerate(every)}
    weights["model.norm.weight"] = take(width)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights)
    return model.eval()


def _halves(matrices: Tensor, head_dim: int) -> Tensor:
    """Rows that rotate as neighbours made rows that rotate as halves of a head.

    >>> _halves(torch.arange(8).view(1, 8, 1), head_dim=4).flatten().tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    layers, rows, width = matrices.shape
    pairs = matrices.view(layers, rows // head_dim, head_dim // 2, 2, width)
    return pairs.transpose(2, 3).reshape(layers, rows, width)


def watched(model: "LlamaForCausalLM", length: int = LENGTH) -> gh.Seen:
    """What was seen while the model wrote a story."""
    with gh.watch(model, STATISTICS) as seen:
        model.generate(  # type: ignore[reportCallIssue]
            torch.tensor([[BEGIN]]), max_new_tokens=length, do_sample=False, pad_token_id=0
        )
    return seen


def picture(seen: gh.Seen) -> Figure:
    """Layers × heads, a map for each statistic."""
    summary = seen.summary()
    figure = Figure(figsize=(11, 3.1), layout="constrained")
    for axes, (values, title) in zip(
        figure.subplots(1, len(TITLES)),
        zip(summary.values.values(), TITLES, strict=True),
        strict=True,
    ):
        axes.imshow(values, cmap="Blues", vmin=0, aspect="auto")
        most = max(map(max, values))
        for layer, row in enumerate(values):
            for head, value in enumerate(row):
                color = "white" if value > 0.6 * most else "#333333"
                shown = f"{value:.2f}" if most < 10 else f"{value:.1f}"
                axes.text(head, layer, shown, ha="center", va="center", color=color, fontsize=7.5)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(xlabel="head", xticks=range(len(values[0])), yticks=range(len(values)))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    figure.axes[0].set_ylabel("layer")
    return figure


def previous_token_head(seen: gh.Seen) -> str:
    """The head whose distance is nearest to 1, in words."""
    values = seen.summary().values
    distances, entropies = values["mean_distance"], values["entropy"]
    _, layer, head = min(
        (abs(value - 1), layer, head)
        for layer, row in enumerate(distances)
        for head, value in enumerate(row)
    )
    distance, entropy = distances[layer][head], entropies[layer][head]
    return (
        f"Layer {layer}, head {head} looks {distance:.2f} tokens back, with an entropy of "
        f"{entropy:.2f} nats."
    )


def main(arguments: Sequence[str]) -> int:
    """Write, watch, tell and draw; the exit code is 2 where a file is not what it should be.

    >>> main([])
    2
    """
    if not 1 <= len(arguments) <= 2:
        print("name the file stories260K.bin, and perhaps one for the picture.", file=sys.stderr)
        return 2
    source, *others = map(Path, arguments)
    file = others[0] if others else FILE
    try:
        seen = watched(story_model(source))
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as beside:
            picture(seen).savefig(beside, format="png", dpi=120)
    except (OSError, ValueError, struct.error) as error:
        print(f"{source} is no model of llama2.c that can be read: {error}", file=sys.stderr)
        return 2
    print(seen.summary())
    print(previous_token_head(seen))
    print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
