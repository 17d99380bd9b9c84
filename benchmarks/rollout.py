"""What attention rollout costs: through the lazy weights, and from the matrices of eager mode.

python benchmarks/rollout.py                    all of it, some four minutes
python benchmarks/rollout.py memory ours 4096   what a child process does; it prints bytes
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from pairs import Figure, Pair, figure, judged, paired, report, seconds_of, show
from resident import peak_of_child, resident

import glasshead as gh

RESULTS = Path("build/benchmarks/rollout.json")
LENGTHS, COMPARED, LONG = (1024, 2048), 4096, 32768
LAYERS, HEADS, WIDTH, VOCABULARY = 4, 4, 256, 1009
KINDS = ("plain", "ours", "eager")


def model(kind: str, length: int) -> torch.nn.Module:
    """A small GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    config = GPT2Config(
        n_positions=length, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, vocab_size=VOCABULARY
    )
    torch.manual_seed(0)
    made = GPT2LMHeadModel(config)
    made.set_attn_implementation("eager" if kind == "eager" else "sdpa")
    return made.eval()


def run(kind: str, made: torch.nn.Module, tokens: torch.Tensor) -> Callable[[], object]:
    """A pass over a text, and what of it reaches its last token."""

    def plain() -> object:
        with torch.no_grad():
            return made(tokens, use_cache=False, logits_to_keep=1)

    def ours() -> object:
        with torch.no_grad(), gh.watch(made, keep="weights") as seen:
            made(tokens, use_cache=False, logits_to_keep=1)
        return gh.rollout(seen, rows=[-1])

    def eager() -> object:
        with torch.no_grad():
            found = made(tokens, use_cache=False, logits_to_keep=1, output_attentions=True)
            reached = torch.eye(tokens.shape[-1])[None, -1:]
            for weights in reversed(found.attentions):
                reached = 0.5 * reached + 0.5 * reached @ weights.mean(1)
        return reached

    return {"plain": plain, "ours": ours, "eager": eager}[kind]


def text(length: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(VOCABULARY, (1, length))


def compared(length: int) -> Pair:
    """The pass and the rollout of the last token, both ways; they agree."""
    tokens = text(length)
    ours, eager = (run(kind, model(kind, length), tokens) for kind in ("ours", "eager"))
    torch.testing.assert_close(ours(), eager(), rtol=1e-4, atol=1e-6)
    times = paired(ours, eager, pairs=9)
    return judged(f"the pass and one row, T={length}, against eager", times)


def long() -> list[Figure]:
    """One row of a text whose matrices would never fit, and the pass that it comes after."""
    tokens = text(LONG)
    made = model("ours", LONG)
    run("ours", made, tokens[:, :64])()  # what is compiled or loaded once
    alone = seconds_of(run("plain", made, tokens))
    with torch.no_grad(), gh.watch(made, keep="weights") as seen:
        made(tokens, use_cache=False, logits_to_keep=1)
    found = []
    taken = seconds_of(lambda: found.append(gh.rollout(seen, rows=[-1])))
    matrices = LAYERS * HEADS * LONG**2 * 4 / 2**30
    return [
        figure(f"T={LONG}, the pass alone", alone, "s", about="sdpa, not watched"),
        figure(f"T={LONG}, the rollout of one row", taken, "s", about="after a watched pass"),
        figure(
            f"T={LONG}, 1 - the sum of the row",
            abs(1 - float(found[0].double().sum())),
            "",
            about="rows sum to 1",
            at_most=1e-4,
        ),
        figure(
            f"T={LONG}, the process at its peak",
            peak_of_child(__file__, "ours", LONG) / 2**20,
            "MiB",
            about=f"the matrices alone: {matrices:.0f} GiB",
            at_most=2048,
        ),
    ]


def memory() -> list[Figure]:
    """What the rollout adds to the peak of a process, beyond the pass alone."""
    peaks = {kind: peak_of_child(__file__, kind, COMPARED) for kind in KINDS}
    ours, eager = (peaks[kind] - peaks["plain"] for kind in ("ours", "eager"))
    about = "more at the peak than the pass alone"
    return [
        figure(f"T={COMPARED}, ours", ours / 2**20, "MiB", about=about),
        figure(f"T={COMPARED}, eager", eager / 2**20, "MiB", about=about),
        figure(f"T={COMPARED}, ours against eager", ours / eager, "×", at_most=0.1),
    ]


def _peak(kind: str, length: int) -> int:
    """The most bytes that a process held."""
    made = model(kind, length)
    run(kind, made, text(64))()  # what is compiled or loaded once
    run(kind, made, text(length))()
    return resident("VmHWM")


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="*", help="memory KIND LENGTH")
    child = parser.parse_args().child
    if child:
        print(_peak(child[1], int(child[2])))
        return
    title = (
        f"GPT-2, {LAYERS} layers of {HEADS} heads, {WIDTH} wide, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    figures = [*memory(), *long()]
    report(title, [compared(length) for length in LENGTHS], RESULTS)
    show("one row", figures)


if __name__ == "__main__":
    main()
