"""What dropout draws from: seeded at the start, and restored where training goes on."""

import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class RandomState(Callback):
    """Seeds the random numbers of torch, numpy and Python, saves their state and restores it.

    Each process has its own numbers. A checkpoint has those of the first; where several go on,
    the others are seeded anew from the step.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return random_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        # Not before: building the loaders and the strategy draws numbers, too.
        if self._restored is not None and trainer.global_rank == 0:
            restore(self._restored)
        else:
            _seed((self._seed, trainer.global_rank, trainer.global_step))
        self._restored = None


def random_state() -> dict[str, Any]:
    """The state of all that random numbers are drawn from."""
    numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - it is the global one that is meant
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
        "python": random.getstate(),
    }


def restore(state: dict[str, Any]) -> None:
    """Go on with the numbers that came next."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


def _seed(entropy: tuple[int, ...]) -> None:
    torch_seed, numpy_seed, python_seed = np.random.SeedSequence(entropy).generate_state(3).tolist()
    torch.manual_seed(torch_seed)
    np.random.seed(numpy_seed)  # noqa: NPY002
    random.seed(python_seed)
