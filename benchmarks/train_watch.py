"""What `glasshead train --watch` costs: whole trainings with and without it, pair by pair.

Only training is timed, as `seconds` in the last row of log.csv tells it: starting Python and
reading texts take as long either way, and would hide a share of what is asked about. The first step
that is watched loads compiled code, half a second once, which is part of what is timed.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from pairs import Pair, judged, report

RESULTS = Path("build/benchmarks/train_watch.json")
TASKS = ("write", "classify", "translate")


def training(task: str, steps: int, *, watch: bool) -> float:
    """The seconds of a training of the preset tiny."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        sets = [f"steps={steps}", f"validate_every={steps}", "save_every=50", "warmup=10"]
        assigned = [part for each in sets for part in ("--set", each)]
        command = [sys.executable, "-m", "glasshead", "train", task, "--run", str(run), *assigned]
        subprocess.run([*command, *(["--watch"] if watch else [])], check=True, capture_output=True)
        with (run / "log.csv").open(newline="") as log:
            *_, before, _ = csv.DictReader(log)
        # The last row has the validation and the curve's picture as well.
        return float(before["seconds"])


def pair(task: str, steps: int, pairs: int) -> Pair:
    """Trainings with and without, who goes first in turn."""
    times = []
    for turn in range(pairs):
        order = (True, False) if turn % 2 else (False, True)
        taken = {watch: training(task, steps, watch=watch) for watch in order}
        times.append((taken[True], taken[False]))
        print(f"{task}: {taken[True]:.2f} s watched, {taken[False]:.2f} s not", flush=True)
    return judged(f"train {task}, tiny, {steps} steps", times, ratio=1.05)


def main() -> None:
    """Time pairs of trainings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    asked = parser.parse_args()
    rows = [pair(task, asked.steps, asked.pairs) for task in asked.tasks]
    title = f"--watch against none, torch {torch.__version__}, {torch.get_num_threads()} threads"
    report(title, rows, RESULTS)


if __name__ == "__main__":
    main()
