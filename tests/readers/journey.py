"""What the tests of the texts share: the numbers of the texts, and how they are compared."""

import json
from pathlib import Path

import torch

NUMBERS = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text())
WORDS = ["Your", "journey", "starts", "with", "one", "step"]


def inputs():
    """The six vectors, as the texts write them."""
    return torch.tensor(
        [
            [0.43, 0.15, 0.89],  # Your     (x^1)
            [0.55, 0.87, 0.66],  # journey  (x^2)
            [0.57, 0.85, 0.64],  # starts   (x^3)
            [0.22, 0.58, 0.33],  # with     (x^4)
            [0.77, 0.25, 0.10],  # one      (x^5)
            [0.05, 0.80, 0.55],  # step     (x^6)
        ]
    )


def four(tensor):
    """A tensor's numbers as they are printed, with four decimals."""
    if tensor.ndim > 1:
        return [four(row) for row in tensor]
    return [f"{x:.4f}" for x in tensor.tolist()]


def printed(numbers):
    """Numbers of the file in the same form; its JSON drops zeros at the end."""
    return four(torch.tensor(numbers, dtype=torch.float64))


def traced(explanation):
    """The numbers of each step of an explanation, by the step's name."""
    return {step.name: step.data for step in explanation.steps}
