"""The benchmarks for a GPU run, at tiny sizes on the CPU, and say in a sentence what they want."""

import json
import subprocess
import sys

import pytest
import torch

from scripts import ROOT, script


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/gpu.py")
    # Its dataclass looks itself up.
    monkeypatch.setitem(sys.modules, "gpu", module)
    return module


def tiny(benchmark, **others):
    model = {
        "vocab_size": 31,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    return benchmark.Sizes(
        torch.device("cpu"),
        lengths=(37, 53),
        judged_at=53,
        heads=4,
        kv_heads=2,
        width=16,
        pairs=1,
        exact_at=37,
        model=tuple(model.items()),
        text=29,
        told=7,
        steps=3,
        compile=False,
        **others,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["benchmarks/gpu.py", "benchmarks/gpu_paged.py"])
def test_without_a_gpu_it_says_so(name, tmp_path):
    file = tmp_path / "gpu.json"
    command = [sys.executable, name, "--out", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{name} takes a CUDA device, and PyTorch finds none here: run it there."
    ]
    assert not file.exists()


# It is compiled where it is measured.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_it_measures_everything_and_writes_json(benchmark, tmp_path, capsys):
    pytest.importorskip("transformers")
    sizes = tiny(benchmark, dtype=torch.float32, kernels=("flash", "cuDNN", "math"), most=100_000)
    benchmark.report("tiny", benchmark.measured(sizes), tmp_path / "gpu.json")
    capsys.readouterr()
    rows = {row["name"]: row for row in json.loads((tmp_path / "gpu.json").read_text())}
    alone = [name for name in rows if name.startswith("six statistics against")]
    assert {name.rpartition("T=")[2] for name in alone} == {"37", "53"}
    # cuDNN serves no CPU, and of the longer text the matrices would be too large.
    assert rows["cuDNN alone, T=37"]["value"] is None
    assert rows["six statistics against the matrix in plain torch, T=37"]["ours"] > 0
    refused = rows["six statistics against the matrix in plain torch, T=53"]
    assert refused["about"] == "its matrices would take 0 GB"
    # The goal is stated at one length.
    goals = [name for name in alone if rows[name]["limit"]]
    assert [name.rpartition(", ")[2] for name in goals] == ["T=53"]
    assert goals[0].endswith(" alone, T=53")
    assert all(rows[one]["reached"] for one in ("log_sum_exp", "entropy", "received", "mass_on"))
    assert sum("watched against not" in name for name in rows) == 2


def test_plain_torch_computes_the_same_statistics(benchmark):
    sizes = tiny(benchmark, dtype=torch.float32)
    query, key, value = sizes.inputs(37)
    attention = benchmark.gh.Attention(mask=benchmark.gh.causal())
    seen = attention.observe(query, key, value, benchmark.SIX)
    found = benchmark.in_plain_torch(query, key, value)
    for one, expected in zip(found, [seen.context, *seen.values.values()], strict=True):
        torch.testing.assert_close(one, expected)
