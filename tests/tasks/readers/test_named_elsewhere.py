"""A model folder runs no code, fetches nothing and opens no file outside: seen by an audit hook."""

import inspect
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from glasshead.models.pretrained.folder import check_numbers
from glasshead.tasks.readers.huggingface import check_buffers
from glasshead.tasks.readers.named_elsewhere import check_names
from pretrained_folders import TOKENS, llama_folder, tokenizer_files
from scripts import ROOT

pytest.importorskip("transformers")
from transformers.utils import import_utils

# Opens a folder once per case; the hook writes down what Python was asked for meanwhile.
OPENED = """
import json
import sys
from pathlib import Path

import torch

from glasshead.tasks.readers.huggingface import reader_of_huggingface

place = Path(sys.argv[1])
base, outside, stubs = place / "base", place / "outside", place / "stubs"
asked, armed = [], False
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.system", "exec.stub")


def hook(name, arguments):
    if not armed:
        return
    if name.startswith("socket.") and name not in ("socket.__new__", "socket.gethostname"):
        asked.append(name)
    elif name in STARTS:
        asked.append(name)
    elif name == "open" and str(arguments[0]).startswith((str(outside), str(stubs))):
        asked.append(f"open {arguments[0]}")
    elif name == "import":
        # What ships with Python or transformers may be imported late.
        top = arguments[0].partition(".")[0]
        if top not in sys.stdlib_module_names and top not in tops:
            asked.append(f"import {arguments[0]}")


sys.addaudithook(hook)
reader_of_huggingface(base, torch.device("cpu"))
tops = {name.partition(".")[0] for name in sys.modules}
for number, (file, values) in enumerate(json.loads(sys.stdin.read())):
    asked.clear()
    folder = place / str(number)
    folder.mkdir()
    for one in base.iterdir():
        (folder / one.name).hardlink_to(one)
    target = folder / file
    known = json.loads(target.read_text()) if target.exists() else {}
    target.unlink(missing_ok=True)
    target.write_text(json.dumps(known | values))
    armed, said = True, None
    try:
        reader = reader_of_huggingface(folder, torch.device("cpu"))
    except (ValueError, OSError) as error:
        said = str(error)
    armed = False
    print(json.dumps([said, asked]))
"""
# A `kernels` and a `peft` that note that they were asked.
KERNELS = """
import sys

ASK = ["get_kernel", "get_local_kernel", "snapshot_download"]


class Names(type):
    def __getattr__(cls, name): return name


class Anything(metaclass=Names):
    def __init__(self, *_, **__): pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ASK:
        def fetch(*asked, **_):
            sys.audit("exec.stub", name)
            raise OSError("a stub")
        return fetch
    if name.startswith("use_"):
        return lambda *_, **__: lambda one: one
    return Anything
"""
EVIL = 'import sys\nsys.audit("exec.stub", "code of the folder")\n'
REFUSED, FREE = "is refused", "is opened"
IMPLEMENTATIONS = ["evil/repo", "evil/repo@main:f", "kernels-community/flash-attn", "paged|a/b"]
CASES = [
    *(
        ("config.json", {f"{under}{kind}_implementation": name}, REFUSED)
        for under in ("", "_")
        for kind in ("attn", "experts")
        for name in IMPLEMENTATIONS
    ),
    ("config.json", {"attn_implementation": {"": "sdpa", "text_config": "evil/repo"}}, REFUSED),
    ("config.json", {"text_config": {"attn_implementation": "evil/repo"}}, REFUSED),
    *(
        ("config.json", {"attn_implementation": name}, FREE)
        for name in ("eager", "sdpa", "flash_attention_2", "flash_attention_3", None)
    ),
    ("config.json", {"quantization_config": {"quant_method": "mxfp4"}}, REFUSED),
    ("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}, REFUSED),
    ("config.json", {"text_config": {"quantization_config": {"quant_method": "gptq"}}}, REFUSED),
    ("config.json", {"compression_config": {"quant_method": "compressed-tensors"}}, REFUSED),
    ("config.json", {"backbone": "evil/repo", "use_pretrained_backbone": True}, REFUSED),
    ("config.json", {"use_timm_backbone": True}, REFUSED),
    ("config.json", {"transformers_weights": "../outside/model.safetensors"}, REFUSED),
    ("config.json", {"configuration_files": ["config.4.0.0.json"]}, REFUSED),
    ("config.json", {"auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.M"}}, FREE),
    ("config.json", {"auto_map": {"AutoConfig": "evil/repo--evil.Config"}}, FREE),
    (
        "config.json",
        {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.M"}},
        "is refused by transformers",
    ),
    ("config.json", {"architectures": ["os.system"]}, FREE),
    ("config.json", {"dtype": "hub"}, "is refused by transformers"),
    ("config.json", {"_name_or_path": "evil/repo", "name_or_path": "evil/repo"}, FREE),
    ("config.json", {"tokenizer_class": "evil.Tokenizer"}, FREE),
    ("config.json", {"custom_pipelines": {"a": {"impl": "evil.P", "pt": ["AutoModel"]}}}, FREE),
    ("generation_config.json", {"cache_implementation": "static"}, FREE),
    ("generation_config.json", {"cache_implementation": "evil/repo"}, REFUSED),
    ("generation_config.json", {"custom_generate": "evil/repo", "assistant": "evil/repo"}, FREE),
    ("tokenizer_config.json", {"tokenizer_file": "OUTSIDE"}, REFUSED),
    ("tokenizer_config.json", {"vocab_file": "https://127.0.0.1:9/vocab.model"}, REFUSED),
    ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}, REFUSED),
    ("tokenizer_config.json", {"gguf_file": "evil.gguf", "name_or_path": "evil/repo"}, REFUSED),
    ("tokenizer_config.json", {"special_tokens_map_file": "OUTSIDE"}, FREE),
    ("tokenizer_config.json", {"name_or_path": "evil/repo"}, FREE),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", "evil.F"]}}, FREE),
    ("tokenizer_config.json", {"chat_template": "{{ ''.__class__.__mro__ }}"}, FREE),
    ("tokenizer_config.json", {"processor_class": "evil.Processor"}, FREE),
    ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "evil.P"}}, FREE),
    ("preprocessor_config.json", {"attn_implementation": "evil/repo"}, REFUSED),
    ("processor_config.json", {"processor_class": "evil.P", "tokenizer_file": "OUTSIDE"}, REFUSED),
    ("adapter_config.json", {"base_model_name_or_path": "evil/repo"}, REFUSED),
]


# Models that fetch code of their own choice need a GPU, or that transformers takes this for one.
FETCHING = """
import sys
from pathlib import Path

import torch
from transformers import utils

from glasshead.tasks.readers.huggingface import reader_of_huggingface

for name in ("is_ninja_available", "is_torch_cuda_available"):
    setattr(utils, name, lambda: True)
sys.addaudithook(lambda name, _: print(name) if name == "exec.stub" else None)
reader = reader_of_huggingface(Path(sys.argv[1]) / "base", torch.device("cpu"))
reader.read(torch.tensor([[5, 7, 3]]))
from transformers.models.rwkv import modeling_rwkv

try:
    modeling_rwkv.load_wkv_cuda_kernel(31)
except ImportError:
    print("not installed")
"""


def with_stubs(code, folder, given=""):
    """Run code that has packages to ask, and return what came of it."""
    for name, written in {"kernels": KERNELS, "peft": ""}.items():
        (folder / "stubs" / name).mkdir(parents=True)
        (folder / "stubs" / name / "__init__.py").write_text(written)
        about = folder / "stubs" / f"{name}-1.dist-info"
        about.mkdir()
        version = getattr(import_utils, f"{name.upper()}_MIN_VERSION", "1.0")
        about_it = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (about / "METADATA").write_text(about_it)
    path = os.pathsep.join([str(folder / "stubs"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    outcome = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        input=given,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome


@pytest.mark.slow
def test_a_model_that_fetches_code_by_its_own_choice_finds_no_way_to(tmp_path):
    modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    if "hub_kernels" not in inspect.getsource(modeling):
        pytest.skip("this transformers ships the code")
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "context_length": 31}
    config = modeling.RwkvConfig(vocab_size=len(TOKENS) + 3, **sizes)
    modeling.RwkvForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer_files(tmp_path / "base")
    assert with_stubs(FETCHING, tmp_path).stdout == "not installed\n"


@pytest.mark.slow
def test_no_name_in_a_folder_leads_out_of_it(tmp_path):
    base = llama_folder(tmp_path / "base")
    (base / "evil.py").write_text(EVIL)
    (tmp_path / "outside").mkdir()
    outside = tmp_path / "outside" / "tokenizer.json"
    shutil.copy(base / "tokenizer.json", outside)
    cases = json.loads(json.dumps(CASES).replace("OUTSIDE", str(outside)))
    outcome = with_stubs(OPENED, tmp_path, json.dumps([case[:2] for case in cases]))
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    for (file, values, right), (said, asked) in zip(cases, lines, strict=True):
        assert asked == [], (values, asked)
        assert (said is None) == (right == FREE), (values, said)
        if right == REFUSED:
            assert file in said
            assert "the folder" in said


@pytest.mark.parametrize(("file", "values", "right"), CASES)
def test_a_name_that_leads_out_is_refused_before_transformers_reads_it(
    tmp_path, file, values, right
):
    (tmp_path / file).write_text(json.dumps(values))
    if right != REFUSED:
        check_names(tmp_path)
        return
    with pytest.raises(ValueError, match=file):
        check_names(tmp_path)


def test_numbers_that_take_memory_beside_the_weights_are_bounded(tmp_path):
    file = tmp_path / "config.json"
    check_numbers({"model_type": "mpt", "max_seq_len": 2**20}, file, 5)
    with pytest.raises(ValueError, match="more memory than any machine"):
        check_numbers({"model_type": "mpt", "max_seq_len": 10**8}, file, 5)
    with torch.device("meta"):
        model = torch.nn.BatchNorm1d(7)
        check_buffers(model, tmp_path)
        model.register_buffer("mask", torch.ones(2**15 + 1, 2**15, dtype=torch.bool))
    with pytest.raises(
        ValueError,
        match=r"config.json needs tables of at most 1,073,741,824 bytes .*, got 1,073,774,656",
    ):
        check_buffers(model, tmp_path)
