"""Two processes train as one does with the same global batches."""

from pathlib import Path

import pytest
import torch
from tiny_training import rows, run
from tiny_training_processes import Uneven, trained

import forked
from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware

SCRIPT = Path(__file__).with_name("tiny_training_processes.py")


def weights(folder):
    return files.read(folder.weights, "weights")[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("alone"), Uneven())


def assert_same(folder, alone):
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(weights(folder)[name], tensor, rtol=0, atol=1e-6)
    assert [row["step"] for row in rows(folder)] == ["1", "2", "3", "4", "5"]
    for own, other in zip(rows(folder), rows(alone), strict=True):
        assert float(own["loss"]) == pytest.approx(float(other["loss"]), abs=1e-6)
        if other["validation_loss"]:
            both = (float(row["validation_loss"]) for row in (own, other))
            assert next(both) == pytest.approx(next(both), abs=1e-6)


def ended(*arguments, **variables):
    both = [rank.ended() for rank in forked.ranks(2, SCRIPT, *arguments, **variables)]
    assert [rank.returncode for rank in both] == [0, 0], both
    return both


@pytest.mark.slow
def test_two_processes_reach_the_weights_of_one(tmp_path, alone):
    first, second = ended(tmp_path, "whole", "full", NODE_RANK="0")
    assert_same(RunFolder(tmp_path / "whole"), alone)
    # The first one tells of the error, and the second leaves without a word.
    assert first.stdout.startswith("full OSError: the checkpoint of step 1 cannot")
    assert second.stdout == "full left with 0\n"
    for rank in (first, second):
        assert "Traceback" not in rank.stderr
        assert "Warning" not in rank.stderr


@pytest.mark.slow
def test_torchrun_launches_the_same(tmp_path, alone):
    # By which Lightning knows torchrun.
    by_torchrun = {"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    first, second = ended(tmp_path, "whole", "interrupted", **by_torchrun)
    assert_same(RunFolder(tmp_path / "whole"), alone)
    (said,) = (line for line in first.stdout.splitlines() if line.startswith("interrupted"))
    assert said.startswith("interrupted Interrupted: training was interrupted after step 3 of 5")
    assert "interrupted left with 0" in second.stdout.splitlines()
    # One process may go on with what two began.
    trained(tmp_path / "interrupted", Uneven(), resume=True)
    assert_same(RunFolder(tmp_path / "interrupted"), alone)


def test_sharding_takes_a_gpu(tmp_path):
    hardware = Hardware(strategy="fsdp", accelerator="cpu")
    with pytest.raises(ValueError, match="strategy fsdp needs a GPU"):
        run(tmp_path, hardware=hardware)


def test_sharding_cannot_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(
        ValueError, match="strategy fsdp cannot resume from a checkpoint, as Lightn"
    ):
        run(tmp_path, hardware=Hardware(strategy="fsdp"), resume=True)
