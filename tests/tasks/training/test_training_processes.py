"""Two processes train as one does with the same global batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_training import rows, run
from tiny_training_processes import Uneven, trained

from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware

SCRIPT = Path(__file__).with_name("tiny_training_processes.py")


def two(*command):
    ranks = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in ranks}
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


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


@pytest.mark.slow
def test_two_processes_reach_the_weights_of_one(tmp_path, alone):
    out = two(SCRIPT, tmp_path, "whole", "full")
    assert out.returncode == 0, out.stderr
    assert_same(RunFolder(tmp_path / "whole"), alone)
    said = sorted(out.stdout.splitlines())
    # The first one tells of the error, and the second leaves without a word.
    assert "full left with 0" in said
    assert any(line.startswith("full OSError: the checkpoint of step 1 cannot") for line in said)
    assert "Traceback" not in out.stderr
    assert "Warning" not in out.stderr


@pytest.mark.slow
def test_torchrun_launches_the_same(tmp_path, alone):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    out = two(*launcher, SCRIPT, tmp_path, "whole", "interrupted")
    assert out.returncode == 0, out.stderr
    assert_same(RunFolder(tmp_path / "whole"), alone)
    # PyTorch 2.8 tells its ranks in the output, each in parts that may come apart.
    said = sorted(line for line in out.stdout.splitlines() if line.startswith("interrupted"))
    assert len(said) == 2
    assert said[0].startswith("interrupted Interrupted: training was interrupted after step 3 of 5")
    assert said[1] == "interrupted left with 0"
    # One process may go on with what two began.
    trained(tmp_path / "interrupted", Uneven(), resume=True)
    assert_same(RunFolder(tmp_path / "interrupted"), alone)


def test_sharding_takes_a_gpu(tmp_path):
    hardware = Hardware(strategy="fsdp", accelerator="cpu")
    with pytest.raises(ValueError, match="strategy fsdp takes a GPU, as Lightning has it for"):
        run(tmp_path, hardware=hardware)


def test_sharding_cannot_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="strategy fsdp cannot go on from a checkpoint, as Lightn"):
        run(tmp_path, hardware=Hardware(strategy="fsdp"), resume=True)
