"""What attention maps of a large picture cost: through the lazy weights, and in eager mode.

python benchmarks/attention_maps.py                    all of it, some two minutes
python benchmarks/attention_maps.py memory ours 4608   what a child process does; it prints bytes
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from pairs import judged, paired, report, show
from resident import against_eager, resident

import glasshead as gh

RESULTS = Path("build/benchmarks/attention_maps.json")
TOKENS, PATCH, ROWS = 4608, 16, 48
LAYERS, HEADS, WIDTH = 4, 6, 384
QUERY = 1234
KINDS = ("plain", "ours", "eager")


def model(kind: str) -> torch.nn.Module:
    """A small vision transformer with random weights, its tokens its patches."""
    from transformers import SiglipVisionConfig, SiglipVisionModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    config = SiglipVisionConfig(
        image_size=ROWS * PATCH,
        patch_size=PATCH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        vision_use_head=False,
    )
    torch.manual_seed(0)
    made = SiglipVisionModel(config)
    made.set_attn_implementation("eager" if kind == "eager" else "sdpa")
    return made.eval()


def run(kind: str, made: torch.nn.Module, pixels: torch.Tensor) -> Callable[[], object]:
    """A pass over a picture, and of each layer the maps of one patch and of the mean one."""
    rows, columns = (side // PATCH for side in pixels.shape[-2:])
    query = QUERY % (rows * columns)

    def plain() -> object:
        with torch.no_grad():
            return made(pixels, interpolate_pos_encoding=True)

    def ours() -> object:
        with torch.no_grad(), gh.watch(made, keep="weights") as seen:
            made(pixels, interpolate_pos_encoding=True)
        maps = [layer.image(one).weights for layer in seen.values() for one in (query, None)]
        return torch.stack(maps), gh.rollout(seen, rows=[query])[0, 0].reshape(rows, columns)

    def eager() -> object:
        with torch.no_grad():
            found = made(pixels, interpolate_pos_encoding=True, output_attentions=True)
            maps, reached = [], torch.eye(rows * columns)[query]
            for weights in found.attentions:
                mean = weights[0].mean(0)
                maps += [one.reshape(rows, columns) for one in (mean[query], mean.mean(0))]
            for weights in reversed(found.attentions):
                reached = 0.5 * reached + 0.5 * reached @ weights[0].mean(0)
        return torch.stack(maps), reached.reshape(rows, columns)

    return {"plain": plain, "ours": ours, "eager": eager}[kind]


def picture(tokens: int) -> torch.Tensor:
    """A random picture of so many patches."""
    return torch.randn(1, 3, ROWS * PATCH, tokens // ROWS * PATCH)


def _peak(kind: str, tokens: int) -> int:
    """The most bytes that a process held."""
    made = model(kind)
    for each in {"ours", kind}:
        run(each, made, picture(16 * ROWS))()  # what is compiled or loaded once
    run(kind, made, picture(tokens))()
    return resident("VmHWM")


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="*", help="memory KIND TOKENS")
    child = parser.parse_args().child
    if child:
        print(_peak(child[1], int(child[2])))
        return
    pixels = picture(TOKENS)
    ours, eager = (run(kind, model(kind), pixels) for kind in ("ours", "eager"))
    torch.testing.assert_close(ours(), eager(), rtol=1e-4, atol=1e-7)
    times = paired(ours, eager, pairs=5)
    title = (
        f"A vision transformer, {LAYERS} layers of {HEADS} heads, {WIDTH} wide, {TOKENS} patches, "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    report(title, [judged("the pass and its maps, against eager", times)], RESULTS)
    show(
        "maps of one patch and the mean one in each layer, and a rollout",
        against_eager(__file__, KINDS, TOKENS, "the pass"),
    )


if __name__ == "__main__":
    main()
