"""Checkpoints as safetensors and JSON: written whole or not at all, and never unpickled."""

from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO

from glasshead.attention import tensor_files as files
from glasshead.tasks.training.not_finite import check_finite
from glasshead.tasks.training.packing import pack, unpack

_KIND = "checkpoint"


class SafeCheckpoints(CheckpointIO):
    """How Lightning writes and reads a checkpoint.

    Lightning lets only the first process save, and then waits for all: an error there would leave
    the others waiting. It is kept, and raised by `check_saved`.
    """

    def __init__(self) -> None:
        self._error: OSError | ValueError | None = None
        self._read: tuple[Path, dict[str, Any]] | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        del storage_options
        step = checkpoint["global_step"]
        try:
            rate = checkpoint["optimizer_states"][0]["param_groups"][0]["lr"]
            check_finite(checkpoint["state_dict"], step, rate)
            told, tensors = pack(checkpoint)
            files.write(path, _KIND, {"tree": told}, tensors)
        except OSError as error:
            self._error = OSError(
                f"the checkpoint of step {step} cannot be written to {path} "
                f"({error.__cause__ or error}), and the one before is kept: make room there, then "
                f"go on by the same command with --resume."
            )
        except ValueError as error:
            self._error = error

    def check_saved(self) -> None:
        """Raise what kept the last checkpoint from being saved."""
        if self._error is not None:
            raise self._error

    def read(self, path: Path) -> dict[str, Any]:
        """A checkpoint, which is then kept until Lightning loads it.

        Errors: an OSError where it cannot be read; a ValueError where it is none.
        """
        description, tensors = files.read(path, _KIND)
        with files.understood(path, _KIND):
            tree = unpack(description["tree"], tensors)
        self._read = path, tree
        return tree

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        del map_location, weights_only
        known, self._read = self._read, None
        return known[1] if known and known[0] == Path(path) else self.read(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)
