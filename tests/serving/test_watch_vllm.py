"""Watching the requests of vLLM: the same tokens, and statistics of float64, in every mode."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: the cell vllm-cpu has it")

from serving.small_models import small_model

# An engine in a process of its own imports PyTorch and vLLM once more.
pytestmark = pytest.mark.timeout(1200)
HERE = Path(__file__).parent
MODES = (
    "Llama eager",
    "Llama",
    "Llama eager chunks",
    "Llama eager prefix",
    "Llama eager apart",
    "Llama eager preempted chunks",
    "Qwen3 eager",
    "Mistral eager chunks",
    "Mistral eager preempted",
    "Gemma2 eager",
    "GptOss eager",
    "Llama eager bfloat16",
    "Gemma2 eager bfloat16",
    # Two workers, of which each computes half of the heads.
    "Llama eager two",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def found(folder):
    """What a run of the engine in a process of its own has found, once for each mode."""
    known: dict[str, dict] = {}

    def run(mode: str, script: str = "engine_run.py") -> dict:
        if mode not in known:
            paths = os.pathsep.join(map(str, (HERE.parents[1], HERE.parent)))
            done = subprocess.run(
                [sys.executable, HERE / script, folder, *mode.split()],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": paths},
            )
            assert done.returncode == 0, done.stderr[-3000:]
            known[mode] = json.loads(done.stdout.splitlines()[-1])
        return known[mode]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_the_same_and_statistics_are_those_of_float64(found, mode):
    seen = found(mode)
    assert seen["equal"]
    assert seen["requests"] == (24 if "preempted" in mode else 16 + ("prefix" in mode))
    assert not seen["wrapped"]
    # Sums over hundreds of queries.
    limits = {"received": 3e-5}
    for name, worst in seen["worst"].items():
        assert worst <= limits.get(name, 1e-5), (name, worst)


@pytest.mark.slow
def test_records_are_those_of_watch(found):
    assert found("Llama eager")["of_transformers"]["records"] < 2e-4


@pytest.mark.slow
def test_heads_have_the_roles_of_the_model_in_transformers(found):
    assert found("Llama eager")["of_transformers"]["roles"] < 1e-5


@pytest.mark.slow
def test_the_examples_of_the_page_run_in_a_script(tmp_path):
    page = (HERE.parents[1] / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")
    # Qwen3 has the third layer that the page reads.
    model = small_model(tmp_path, "Qwen3")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    assert "Qwen/Qwen3-0.6B" in code
    code = indent(code.replace("Qwen/Qwen3-0.6B", str(model)), "    ")
    script = tmp_path / "page.py"
    script.write_text(f'def main():\n{code}\nif __name__ == "__main__":\n    main()\n')
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": str(HERE.parents[1]),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_CACHE_ROOT": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # The prompt is 18 words and marks, and the last new token is not read.
    assert re.search(r"torch.Size\(\[1, 4, 41\]\)", done.stdout), done.stdout
    assert "model.layers.*.self_attn" in done.stdout
    assert re.search(r"^model.layers.0.self_attn \[", done.stdout, re.MULTILINE)
    # Words that the small model does not know are its third one.
    assert re.search(r"^\['w2', 'w2', 'w2', 'w2', 'w2'\]$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_cached_prefix_has_no_queries(found):
    seen = found("Llama eager prefix")
    # 101 tokens are three blocks of 32, and some. The text that filled the cache is whole.
    assert seen["firsts"] == {"96": 16}
    assert seen["skipping"] == [0] * 16
    assert seen["of_pattern"] == ["model.layers.1.self_attn"]


@pytest.mark.slow
def test_preempted_requests_are_computed_again(found):
    assert found("Llama eager preempted chunks")["preemptions"] > 0
    assert found("Mistral eager preempted")["preemptions"] > 0


@pytest.mark.slow
def test_windows_and_their_absence_are_read_from_the_layers(found):
    windows = [window for _, _, window in found("Gemma2 eager")["layers"].values()]
    assert windows == [48, 0, 48, 0]


@pytest.fixture(scope="module")
def faults(found):
    return found("Llama faults", "engine_faults.py")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["copy", "settle", "before", "after", "compare"])
def test_an_error_of_ours_neither_changes_a_token_nor_stops_the_engine(faults, place):
    assert faults[place]["equal"]
    assert "RuntimeError: of the test" in faults[place]["said"]
    assert not faults[place]["wrapped"]
    assert faults["afterwards"] == {"equal": True, "errors": 0}


@pytest.mark.slow
def test_a_scale_that_is_misread_is_found_by_the_output(faults):
    found = faults["scale"]
    assert found["equal"]
    assert found["said"] == (
        "10 of 10 requests were not observed. The first: watch_vllm needs attention that follows "
        "from its queries, keys and values, but the output of 'model.layers.0.self_attn' for token "
        "56 does not. Omit it with layers=."
    )


@pytest.mark.slow
def test_a_cache_that_is_misread_later_is_found_by_the_last_output(faults):
    assert "for token 56 does not" in faults["late"]["said"]


@pytest.mark.slow
def test_aborted_requests_change_no_other(faults):
    found = faults["aborted"]
    assert found["equal"]
    # 17 tokens of the prompt and those of some steps.
    assert 17 <= found["queries"] < 57


@pytest.mark.slow
def test_requests_beyond_the_budget_are_dropped_with_a_warning(faults):
    found = faults["budget"]
    assert found["equal"]
    assert "watch_vllm dropped" in found["warned"]
    assert found["left"] < 10


@pytest.mark.slow
def test_a_second_watch_and_what_cannot_be_joined_are_refused(faults):
    assert faults["second"] == "watch_vllm must be the only watch of an engine."
    assert faults["pattern"].startswith("layers must be names of the model's modules")
    assert faults["nothing"] == "watch_vllm saw no request. Call llm.generate in the block."
