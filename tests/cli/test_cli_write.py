"""`glasshead write`: a run's model, or one of others, goes on with a text in the terminal."""

import pytest

import forked
from glasshead.models.decoding import Beam, Greedy, Sampling
from glasshead.tasks.write import Writer
from pretrained_folders import llama2c_files, llama_folder
from written import written


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "run": (written(folder / "run").path, "One day"),
        "llama": (llama_folder(folder / "llama"), "abc ab"),
        "llama2c": (llama2c_files(folder / "llama2c"), "ab"),
    }


@pytest.mark.parametrize("kind", ["run", "llama", "llama2c"])
@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (["--temperature", 0], Greedy()),
        (["--temperature", 0, "--repetition-penalty", 1.5], Greedy(repetition_penalty=1.5)),
        (
            ["--repetition-penalty", 1.5, "--top-k", 5, "--seed", 3],
            Sampling(0.8, top_k=5, seed=3, repetition_penalty=1.5),
        ),
        (["--beam", 2], Beam(2)),
    ],
)
def test_each_kind_of_model_writes(command, places, kind, options, strategy):
    place, prompt = places[kind]
    told = command("write", place, "--prompt", prompt, "--tokens", 7, *options)
    expected = "".join(Writer.load(place).write(prompt, strategy, max_tokens=7))
    assert (told.code, told.err, told.out) == (0, "", f"{prompt}{expected}\n")


def test_it_ends_before_a_stop_string(command, places):
    place, prompt = places["run"]
    asked = ("write", place, "--prompt", prompt, "--temperature", 0, "--tokens", 9)
    whole = command(*asked).out.removeprefix(prompt).removesuffix("\n")
    stops = ["--stop", "no such text", "--stop", whole[3:6]]
    told = command(*asked, *stops)
    assert told.out == f"{prompt}{whole.split(whole[3:6])[0]}\n" != f"{prompt}{whole}\n"


def test_a_line_may_be_what_it_ends_before(command, data_folder):
    stories = data_folder / "stories260K"
    asked = ("write", stories / "stories260K.bin", "--temperature", 0, "--tokens", 256)
    first = command(*asked, "--stop", r"\nLily's")
    published = (stories / "stories260K.md").read_text().split("-t 0.0\n")[1]
    assert first.out == published.split("\nLily's")[0] + "\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stop", ""], "--stop must be a text of at least one character, got ''. Omit it."),
        (["--beam", 2, "--repetition-penalty", 2], "--repetition-penalty would change nothing"),
        (["--repetition-penalty", 0], "error: --repetition-penalty must be a number above 0"),
        (["--temperature", -1], "error: --temperature must be at least 0, got -1.0."),
        (["--temperature", "hot"], "'--temperature': it must be a number, got 'hot'; see"),
        (["--top-k", 0], "error: --top-k must be a whole number of at least 1, got 0."),
        (["--top-p", 3], "error: --top-p must be above 0 and at most 1, got 3.0."),
        (["--beam", 0], "error: --beam must be a whole number of at least 1, got 0."),
        (
            ["One", "day"],
            "the text to continue must come after --prompt. Write --prompt 'One day'.",
        ),
        (["--tokens", 0], "--tokens must be a number from 1 to 1000000000, got 0"),
    ],
)
def test_options_that_do_not_fit_are_told(command, places, options, said):
    told = command("write", places["run"][0], *options)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert said in told.err


def test_an_encoder_does_not_write(command, tmp_path):
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=37, num_hidden_layers=1, **small)).save_pretrained(tmp_path)
    told = command("write", tmp_path, "--prompt", "a")
    assert (told.code, told.out) == (2, "")
    # Before it stands what transformers said while it saved.
    assert "must be" in told.err.splitlines()[-1]


ALONE = """
import sys
missing = {"lightning", "datasets", "matplotlib", "sacrebleu", "torchmetrics", "transformers"}
for name in [*missing, *sys.modules]:
    if name.partition(".")[0] in missing:
        sys.modules[name] = None
from importlib import util
find = util.find_spec
util.find_spec = lambda name: None if sys.modules.get(name, 0) is None else find(name)
from glasshead.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_it_takes_tokenizers_alone(places):
    place, prompt = places["llama"]
    asked = ["write", str(place), "--prompt", prompt, "--temperature", "0", "--tokens", "3"]
    done = forked.Process("-c", ALONE, *asked, fresh=True).ended()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(prompt)


def test_a_file_gets_no_nul_from_a_model_that_writes_any_byte(command, places, monkeypatch):
    place, prompt = places["run"]
    monkeypatch.setattr(Writer, "write", lambda *_, **__: iter(["a", "\0b"]))
    assert (
        command("write", place, "--prompt", prompt).out == f"{prompt}a\N{REPLACEMENT CHARACTER}b\n"
    )
