"""What the map of a prompt's word costs in a transformer of Flux's kind, and in eager mode.

It takes diffusers: pip install diffusers.

python benchmarks/prompt_maps.py                    all of it, some two minutes
python benchmarks/prompt_maps.py memory ours 4096   what a child process does; it prints bytes
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from pairs import judged, paired, report, show
from resident import against_eager, resident
from torch.nn import functional as F

import glasshead as gh

RESULTS = Path("build/benchmarks/prompt_maps.json")
PATCHES, COLUMNS, PROMPT = 4096, 64, 512
HEADS, HEAD_DIM, WORD = 24, 16, 5
KINDS = ("plain", "ours", "eager")


def model() -> torch.nn.Module:
    """One double and one single layer of Flux's 24 heads, narrower, with random weights."""
    torch.manual_seed(0)
    return (
        import_module("diffusers")
        .FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=HEAD_DIM,
            num_attention_heads=HEADS,
            joint_attention_dim=64,
            pooled_projection_dim=16,
            axes_dims_rope=(4, 6, 6),
        )
        .eval()
    )


def step(patches: int) -> dict[str, Any]:
    """What a step of so many patches takes."""
    places = torch.arange(patches)
    rows_columns = torch.stack([0 * places, places // COLUMNS, places % COLUMNS], -1)
    return {
        "hidden_states": torch.randn(1, patches, 16),
        "encoder_hidden_states": torch.randn(1, PROMPT, 64),
        "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([0.5]),
        "img_ids": rows_columns.float(),
        "txt_ids": torch.zeros(PROMPT, 3),
    }


def run(kind: str, made: torch.nn.Module, given: dict[str, Any]) -> Callable[[], torch.Tensor]:
    """A step, and the map of a word in each layer."""

    def plain() -> torch.Tensor:
        with torch.no_grad():
            return made(**given).sample

    def ours() -> torch.Tensor:
        with torch.no_grad(), gh.prompt_maps(made, {"word": [WORD]}) as maps:
            made(**given)
        return torch.stack([call.weights[0] for call in maps.calls])

    def eager() -> torch.Tensor:
        fused, maps = F.scaled_dot_product_attention, []

        def attend(query: Any, key: Any, value: Any, **_: Any) -> torch.Tensor:
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            weights = scores.softmax(-1)
            maps.append(weights[0, :, PROMPT:, WORD].mean(0).reshape(-1, COLUMNS))
            return weights @ value

        F.scaled_dot_product_attention = attend  # type: ignore[assignment] - as a processor would
        try:
            plain()
        finally:
            F.scaled_dot_product_attention = fused
        return torch.stack(maps)

    return {"plain": plain, "ours": ours, "eager": eager}[kind]


def _peak(kind: str, patches: int) -> int:
    """The most bytes that a process held."""
    made = model()
    for each in {"ours", kind}:
        run(each, made, step(4 * COLUMNS))()  # what is compiled or loaded once
    run(kind, made, step(patches))()
    return resident("VmHWM")


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="*", help="memory KIND PATCHES")
    child = parser.parse_args().child
    if child:
        print(_peak(child[1], int(child[2])))
        return
    made, given = model(), step(PATCHES)
    ours, eager = (run(kind, made, given) for kind in ("ours", "eager"))
    torch.testing.assert_close(ours(), eager(), rtol=1e-4, atol=1e-7)
    times = paired(ours, eager, pairs=5)
    title = (
        f"Two layers of {HEADS} heads, {PATCHES} patches and a prompt of {PROMPT} tokens, torch "
        f"{torch.__version__}, {torch.get_num_threads()} threads"
    )
    report(title, [judged("a step and the map of a word, against eager", times)], RESULTS)
    show("the map of a word in each layer", against_eager(__file__, KINDS, PATCHES, "the step"))


if __name__ == "__main__":
    main()
