"""`glasshead observe` of a model of Hugging Face: its numbers, over processes too, and refusals."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import forked
import glasshead as gh
import systems
from cli.word_models import HEADS, LAYERS, WordModels

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("no_bars")

CONTEXT = 11
TEXT = "the quick brown fox jumps over the lazy dog and then it sleeps under a tree while the sun "
TEXT += "goes down over the hill"
STATISTICS = ["entropy", "mass-on:0", "max-weight", "received", "max-score"]
SMALL = WordModels(TEXT.split(), CONTEXT, encoder="BertForMaskedLM")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("llama", "bert"):
        SMALL.save(kind, folder / kind)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, models):
    monkeypatch.chdir(tmp_path)
    for kind in ("llama", "bert"):
        shutil.copytree(models / kind, tmp_path / kind)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def asked(*names):
    return [part for name in names for part in ("--stat", name)]


def observe(command, *arguments):
    outcome = command("observe", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def pieces_of(kind, texts, length=CONTEXT):
    """What is read, as tokens: all texts one after another, cut, and what stands around."""
    tokenizer = SMALL.tokenizer(kind)
    plain = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    end = tokenizer.eos_token_id if kind == "llama" else tokenizer.sep_token_id
    joined = [token for ids in plain for token in (*ids, end)]
    tokens = joined if len(texts) > 1 else plain[0]
    size = length - (1 if kind == "llama" else 2)
    pieces = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    return [[0, *piece] if kind == "llama" else [0, *piece, 1] for piece in pieces]


def eager(folder, pieces):
    """P of each piece, `[layers, heads, queries, keys]`, as the eager attention returns it."""
    auto = transformers.AutoModelForCausalLM if "llama" in folder.name else transformers.AutoModel
    model = auto.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return [
            torch.cat(model(torch.tensor([piece]), output_attentions=True).attentions).double()
            for piece in pieces
        ]


def expected(P):
    return {
        "entropy": torch.cat([-torch.special.xlogy(p, p).sum(-1) for p in P], -1).mean(-1),
        "mass_on_0": torch.cat([p[..., 0] for p in P], -1).mean(-1),
        "max_weight": torch.cat([p.amax(-1) for p in P], -1).mean(-1),
    }


def saved(file, layers):
    tensors = load_file(file)
    names = {name.rpartition(".")[2] for name in tensors}
    return {name: torch.stack([tensors[f"{layer}.{name}"] for layer in layers]) for name in names}


def layers_of(kind):
    if kind == "llama":
        return [f"model.layers.{layer}.self_attn" for layer in range(LAYERS)]
    return [f"bert.encoder.layer.{layer}.attention.self" for layer in range(LAYERS)]


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_the_numbers_are_those_of_eager_weights(command, place, kind):
    options = ("--text", "text.txt", "--save", "seen.safetensors", *asked(*STATISTICS))
    out = " ".join(observe(command, kind, *options).out.split())
    pieces = pieces_of(kind, [TEXT])
    P = eager(place / kind, pieces)
    found = saved("seen.safetensors", layers_of(kind))
    full = torch.stack([p for p in P if p.shape[-1] == CONTEXT])
    right = expected(P) | {"received": full.sum(-2).mean(0), "pooled_map": full.mean(0)}
    assert len(full) == len(pieces) - 1
    assert set(found) == {*right, "max_score"}
    for name, value in right.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)
    count = sum(map(len, pieces))
    assert f"tokens: {count} in {len(pieces)} pieces of 11, the last of {len(pieces[-1])}" in out
    assert f"The attention of {kind} over text.txt" in out
    assert ("· hidden" in out) == (kind == "llama")
    with safe_open("seen.safetensors", "pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    assert (told["model"], told["layers"], told["pieces"]) == (kind, layers_of(kind), len(pieces))


def test_the_length_of_a_piece_can_be_chosen(command, place):
    observe(command, "llama", "--text", "text.txt", "--length", 7, "--save", "seen.safetensors")
    found = saved("seen.safetensors", layers_of("llama"))
    P = eager(place / "llama", pieces_of("llama", [TEXT], 7))
    torch.testing.assert_close(found["entropy"], expected(P)["entropy"], atol=1e-5, rtol=1e-5)
    assert found["received"].shape == (LAYERS, HEADS, 7)


TEXTS = ["the quick fox", "over the lazy dog it sleeps", "the hill goes down"]


def test_texts_of_a_folder_follow_each_other(command, place):
    (place / "texts" / "below").mkdir(parents=True)
    (place / "texts" / "b.txt").write_text(TEXTS[2])
    (place / "texts" / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:2])
    )
    (place / "texts" / "below" / ".hidden.txt").write_text("sun")
    (place / "texts" / "picture.png").write_bytes(b"\0")
    observe(command, "bert", "--text", "texts", "--save", "seen.safetensors")
    found = saved("seen.safetensors", layers_of("bert"))
    P = eager(place / "bert", pieces_of("bert", TEXTS))
    torch.testing.assert_close(found["entropy"], expected(P)["entropy"], atol=1e-5, rtol=1e-5)


def test_whole_texts_are_read_each_on_its_own(command, place):
    (place / "texts.jsonl").write_text("".join(json.dumps({"text": x}) + "\n" for x in TEXTS))
    options = ("--text", "texts.jsonl", "--length", "whole", *asked("entropy", "received"))
    out = observe(command, "llama", *options, "--save", "seen.safetensors").out
    said = " ".join(out.replace("│", " ").split())
    assert "tokens: 16 in 3 texts of 4 to 7, each in one pass" in said
    assert "Texts of different lengths have no common map" in said
    found = saved("seen.safetensors", layers_of("llama"))
    assert set(found) == {"entropy", "received"}
    P = eager(place / "llama", [pieces_of("llama", [text])[0] for text in TEXTS])
    total, count = torch.zeros(LAYERS, HEADS, 7).double(), torch.zeros(7)
    for p in P:
        total[..., : p.shape[-1]] += p.sum(-2)
        count[: p.shape[-1]] += 1
    torch.testing.assert_close(found["received"], total / count, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found["entropy"], expected(P)["entropy"], atol=1e-5, rtol=1e-5)


def test_a_single_whole_text_has_a_map_with_its_tokens(command, place):
    (place / "short.txt").write_text(TEXTS[0])
    options = ("--length", "whole", "--layer", 1, "--head", 2, "--width", 200)
    out = observe(command, "llama", "--text", "short.txt", *options).out
    assert re.search(r"^fox +(\d\.\d\d *){4}$", out, re.MULTILINE)
    assert "Weights, of layer 1, head 2: one row per query" in out


def test_a_model_whose_positions_begin_later_reads_as_many_fewer(command, place):
    tokenizer = SMALL.tokenizer("bert")
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), pad_token_id=1, **SMALL.sizes)
    transformers.RobertaForMaskedLM(config).save_pretrained(place / "roberta")
    tokenizer.save_pretrained(place / "roberta")
    out = " ".join(observe(command, "roberta", "--text", "text.txt").out.split())
    assert f"in {-(-len(TEXT.split()) // (CONTEXT - 4))} pieces of {CONTEXT - 2}" in out


def test_the_first_position_may_follow_a_padding_of_number_0(command, place):
    tokenizer = SMALL.tokenizer("bert")
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), pad_token_id=0, **SMALL.sizes)
    transformers.RobertaModel(config).save_pretrained(place / "roberta")
    tokenizer.save_pretrained(place / "roberta")
    out = " ".join(observe(command, "roberta", "--text", "text.txt").out.split())
    assert f"pieces of {CONTEXT - 1}" in out


def limited(folder, limit):
    """Write into a folder's tokenizer how many tokens it takes."""
    config = folder / "tokenizer_config.json"
    told = json.loads(config.read_text()) | {"model_max_length": limit}
    config.write_text(json.dumps(told))


@pytest.mark.parametrize("kind", ["llama", "bert"])
@pytest.mark.parametrize("limit", [5, 7.0, 23, 10**30])
def test_the_config_of_a_model_overrules_the_limit_of_its_tokenizer(command, place, kind, limit):
    limited(place / kind, limit)
    out = " ".join(observe(command, kind, "--text", "text.txt").out.split())
    assert f"pieces of {CONTEXT}" in out
    refused(command, "reads at most 11 tokens", kind, "--text", "text.txt", "--length", "13")


def test_the_limit_of_a_tokenizer_counts_where_positions_are_distances_alone(command, place):
    tokenizer = SMALL.tokenizer("llama")
    sizes = SMALL.sizes | {"vocab_size": len(tokenizer)}
    config = transformers.FalconConfig(alibi=True, new_decoder_architecture=False, **sizes)
    transformers.FalconForCausalLM(config).save_pretrained(place / "falcon")
    tokenizer.save_pretrained(place / "falcon")
    out = " ".join(observe(command, "falcon", "--text", "text.txt").out.split())
    assert "tokens: 25 in 1 piece" in out
    limited(place / "falcon", 7)
    out = " ".join(observe(command, "falcon", "--text", "text.txt").out.split())
    assert "pieces of 7" in out


LONG = TEXT.split()
# With what stands around them: 4, 26, 6, 0, 14 and 12 tokens of llama's, which reads 11.
FOLDER = [LONG[:3], LONG + LONG[:1], LONG[:5], [], LONG[3:16], LONG[5:16]]


@pytest.fixture
def folder(place):
    (place / "texts").mkdir()
    for number, words in enumerate(FOLDER):
        rows = place / "texts" / f"{number}.jsonl"
        rows.write_text(json.dumps({"text": " ".join(words)}) + "\n")
    return place


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_whole_texts_that_are_too_long_are_cut_and_counted(command, folder, kind):
    options = ("--text", "texts", "--length", "whole")
    refused(command, "cuts 3 of 6 texts, or --length 11", kind, *options)
    options += ("--truncate", "--save", "seen.safetensors", *asked("entropy", "received"))
    outcome = observe(command, kind, *options)
    begin, end = [0], [] if kind == "llama" else [1]
    room = CONTEXT - len(begin) - len(end)
    tokenizer = SMALL.tokenizer(kind)
    texts = [tokenizer(" ".join(words), add_special_tokens=False)["input_ids"] for words in FOLDER]
    beyond = sum(max(len(one) - room, 0) for one in texts)
    for printed in (outcome.err, outcome.out.replace("│", " ")):
        said = " ".join(printed.split())
        assert (
            "Texts truncated to the model's context of 11 tokens: 3 of 5; "
            f"tokens omitted: {beyond}."
        ) in said
        assert "Texts without a token, skipped: 1." in said
    # It is the last that is told.
    assert outcome.err.splitlines()[-1] == "Texts without a token, skipped: 1."
    P = eager(folder / kind, [[*begin, *one[:room], *end] for one in texts if one])
    result = gh.load("seen.safetensors")
    assert result.source["cut"] == {"texts": 3, "tokens": beyond}
    for layer, name in enumerate(layers_of(kind)):
        right = torch.cat([-torch.special.xlogy(p, p).sum(-1)[layer] for p in P], -1).mean(-1)
        torch.testing.assert_close(result[name].entropy, right, atol=1e-5, rtol=1e-5)


def test_nothing_is_told_of_what_was_not_cut(command, place):
    options = ("--text", "text.txt", "--length", "whole", "--truncate")
    limited_text = " ".join(LONG[:7])
    (place / "text.txt").write_text(limited_text)
    outcome = observe(command, "llama", *options)
    assert outcome.err == ""
    assert "cut" not in outcome.out


@pytest.mark.parametrize("kind", ["llama", "bert"])
@pytest.mark.parametrize("count", [5, 25])
def test_what_is_saved_is_read_with_its_tokens(command, place, kind, count):
    (place / "text.txt").write_text(" ".join(LONG[:count]))
    names = ["entropy", "received", "max-score", "mass-on:0,2", "distance-histogram:0,1,inf"]
    observe(command, kind, "--text", "text.txt", "--save", "seen.safetensors", *asked(*names))
    tensors = load_file("seen.safetensors")
    for result in (gh.load("seen.safetensors"), gh.CorpusResult.load("seen.safetensors")):
        assert isinstance(result, gh.CorpusResult)
        assert list(result) == layers_of(kind)
        for layer, own in ((layer, result[layer]) for layer in result):
            assert torch.equal(own.entropy, tensors[f"{layer}.entropy"])
            assert torch.equal(own[gh.MassOn((0, 2))], own["mass_on_0_2"])
            assert torch.equal(own[gh.Received()], own.received)
            assert own.pooled_map.ndim == 3
        assert set(result.to_frame().columns) == {"entropy", "max_score", "mass_on_0_2"}
        assert ", score: the largest" in str(result.summary())
        pieces = pieces_of(kind, [" ".join(LONG[:count])])
        written = [SMALL.tokenizer(kind).decode([one]) for piece in pieces for one in piece]
        assert list(result.tokens) == written
        assert result.documents == len(pieces)
        assert (result.source["model"], result.source["text"]) == (kind, "text.txt")
        frame = result.to_frame("received")
        assert ("token" in frame) == (len(pieces) == 1)
        if len(pieces) == 1:
            assert frame.loc[result.keys()[1], 2].token.tolist() == written
    # What was read can be saved, and read again.
    result.save("again.safetensors")
    again = gh.load("again.safetensors")
    assert (again.tokens, again.source, again.documents) == (
        result.tokens, result.source, result.documents,
    )  # fmt: skip
    assert all(torch.equal(again[layer].received, result[layer].received) for layer in result)


def test_a_file_of_several_texts_has_no_tokens(command, folder):
    options = ("--text", "texts", "--save", "seen.safetensors")
    observe(command, "llama", *options)
    assert gh.load("seen.safetensors").tokens is None


def test_a_file_written_before_statistics_were_described_is_read(command, place):
    options = ("--text", "text.txt", "--save", "seen.safetensors")
    observe(command, "llama", *options, *asked("entropy", "max-score", "received:2"))
    tensors = load_file("seen.safetensors")
    with safe_open("seen.safetensors", "pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    older = {name: told[name] for name in told.keys() - {"asked", "written_tokens", "cut"}}
    save_file(tensors, "older.safetensors", metadata={"glasshead": json.dumps(older)})
    result, layer = gh.load("older.safetensors"), layers_of("llama")[1]
    assert (result.tokens, result.documents) == (None, told["pieces"])
    assert torch.equal(result[layer][gh.Entropy()], tensors[f"{layer}.entropy"])
    assert result.to_frame("received_2").index.names == ["layer", "head", "key"]
    assert ", score: the largest" in str(result.summary())


class Bars:
    """What a counter was told, instead of a terminal."""

    told: dict = {}  # noqa: RUF012 - of each test again

    def __init__(self, doing, **_):
        self.doing = doing

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def show(self, done, of):
        self.told.setdefault(self.doing, []).append((done, of))


@pytest.mark.parametrize("texts", [[LONG[:10]], [LONG, LONG[:7], LONG]])
def test_progress_is_told_within_a_batch_and_ends_with_all(command, place, monkeypatch, texts):
    monkeypatch.setattr(Bars, "told", {})
    monkeypatch.setattr("glasshead.cli.observe_model.Counter", Bars)
    rows = [json.dumps({"text": " ".join(words)}) for words in texts]
    (place / "rows.jsonl").write_text("\n".join(rows) + "\n")
    observe(command, "llama", "--text", "rows.jsonl", "--length", "whole", "--truncate")
    characters = sum(len(" ".join(words)) for words in texts)
    # Before it was read, the size of the file stands for its characters.
    size = (place / "rows.jsonl").stat().st_size
    assert Bars.told["reading texts"] == [(0, size), (characters, characters)]
    shown = Bars.told["observing"]
    done, (total,) = [one for one, _ in shown], {of for _, of in shown}
    assert total == sum(min(len(words) + 1, CONTEXT) for words in texts)
    assert done == sorted(done)
    assert done[-1] == total
    # A batch, of which there is one here or two, is told of after each layer.
    assert len(set(done)) >= LAYERS * len({min(len(words) + 1, CONTEXT) for words in texts})


def test_the_page_has_everything(command, place):
    observe(command, "llama", "--text", "text.txt", "--html", "page.html")
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "The attention of llama over text.txt" in page
    assert "<p>Model:" not in page
    assert not re.search(r"https?:|<script[^>]+src|<link|@import|url\(|<img", page)


def test_a_title_has_names_without_their_folders(command, place):
    model, text = place / "llama", place / "text.txt"
    outcome = observe(command, model, "--text", text, "--html", "page.html")
    assert f"Model: {model}; text: {text}." in " ".join(outcome.err.split())
    page = (place / "page.html").read_text(encoding="utf-8")
    assert page.count("<title>The attention of llama over text.txt</title>") == 1
    assert str(place) not in page


# The statistics of the command, of which one is the map that it draws.
IN_PYTHON = {
    "entropy": gh.Entropy(),
    "mass_on_0": gh.MassOn([0]),
    "max_weight": gh.MaxWeight(),
    "received": gh.Received(),
    "max_score": gh.MaxScore(),
    "pooled_map": gh.PooledMap(CONTEXT, CONTEXT),
}


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_python_has_the_numbers_of_the_command_in_one_call(command, place, kind):
    options = ("--text", "text.txt", "--save", "seen.safetensors", *asked(*STATISTICS))
    observe(command, kind, *options)
    saved = gh.load("seen.safetensors")
    auto = f"AutoModelFor{'CausalLM' if kind == 'llama' else 'MaskedLM'}"
    model = getattr(transformers, auto).from_pretrained(kind).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(kind)
    for found in (
        gh.observe_texts(kind, place / "text.txt", IN_PYTHON),
        gh.observe_texts(model, TEXT, IN_PYTHON, tokenizer=tokenizer),
    ):
        assert (found.documents, found.tokens) == (saved.documents, saved.tokens)
        assert found.statistics == saved.statistics
        for layer in saved:
            for name, value in saved[layer].items():
                assert torch.equal(found[layer][name], value), name
    assert gh.observe_texts(kind, Path("text.txt"), IN_PYTHON).source == saved.source


RANKS = """
import json
from pathlib import Path
import glasshead as gh
result = gh.observe_texts("llama", Path("text.txt"), [gh.Entropy(), gh.MaxScore()])
entropy = result["model.layers.1.self_attn"].entropy.tolist()
print(json.dumps([entropy, result.source["pieces"]]))
"""


@pytest.mark.slow
def test_python_reads_on_several_ranks_and_each_has_the_whole(place):
    (place / "ranks.py").write_text(RANKS)
    both = [rank.ended() for rank in forked.ranks(2, "ranks.py")]
    found = gh.observe_texts("llama", TEXT, [gh.Entropy(), gh.MaxScore()])
    for rank in both:
        assert rank.returncode == 0, rank.stderr
        numbers, pieces = json.loads(rank.stdout)
        assert pieces == found.source["pieces"]
        expected = found["model.layers.1.self_attn"].entropy
        torch.testing.assert_close(torch.tensor(numbers).double(), expected, rtol=1e-6, atol=1e-6)


def by_torchrun(count, *arguments):
    """What all ranks print, as one."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    # Unbuffered, each print is two writes, between which another rank's may come.
    variables = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    done = forked.Process(
        *launcher, "-m", "glasshead", "observe", *arguments, env=os.environ | variables
    ).ended()
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def together(count, *arguments):
    ranks = forked.ranks(count, "-m", "glasshead", "observe", *arguments)
    ended = [rank.ended() for rank in ranks]
    assert [rank.returncode for rank in ended] == [0] * count, ended
    return "".join(rank.stdout for rank in ended), "".join(rank.stderr for rank in ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "count", "text"), [(by_torchrun, 2, TEXT), (together, 3, TEXTS[0])]
)
def test_processes_together_see_what_one_sees(command, place, start, count, text):
    (place / "text.txt").write_text(text)
    options = ("--text", "text.txt", *asked(*STATISTICS, "distance-histogram:0,1,4,inf"), "--save")
    one = observe(command, "llama", *options, "one.safetensors").out
    said, told = start(count, "llama", *options, "many.safetensors")
    alone, shared = load_file("one.safetensors"), load_file("many.safetensors")
    assert list(alone) == list(shared)
    for name, value in alone.items():
        torch.testing.assert_close(shared[name], value, atol=1e-6, rtol=1e-6)
    timeless = [re.sub(r"[\d.e-]+ s\.", "… s.", " ".join(out.split())) for out in (one, said)]
    assert timeless[0] == timeless[1]
    assert told.count("The observation is at") == 1


def test_the_one_process_of_a_launcher_sees_the_same(command, place, monkeypatch, port):
    options = ("--text", "text.txt", *asked(*STATISTICS), "--save")
    observe(command, "llama", *options, "alone.safetensors")
    for name, value in forked.launched(0, 1, port).items():
        monkeypatch.setenv(name, value)
    observe(command, "llama", *options, "launched.safetensors")
    alone, found = load_file("alone.safetensors"), load_file("launched.safetensors")
    assert alone.keys() == found.keys()
    assert all(torch.equal(found[name], value) for name, value in alone.items())
    refused(command, "--layer must be from 0 to 1", "llama", *options[:2], "--layer", "2")
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_what_processes_refuse_together_is_said_once(place):
    arguments = ("-m", "glasshead", "observe", "llama", "--text", "text.txt", "--layer", "2")
    ended = [rank.ended() for rank in forked.ranks(2, *arguments)]
    assert all(rank.returncode != 0 for rank in ended)
    assert [rank.stdout for rank in ended] == ["", ""]
    told = "".join(rank.stderr for rank in ended)
    assert told.count("glasshead: error:") == 1
    assert "glasshead: error: --layer must be from 0 to 1, as there are 2 layers, got 2" in told


@pytest.fixture
def port():
    return forked.free_port()


def started(rank, folder, port, *program):
    """One process of two, as a launcher on another machine would start it."""
    variables = os.environ | forked.launched(rank, 2, port)
    asked = ("observe", "llama", "--text", "text.txt")
    return forked.Process(*program, *asked, cwd=folder, env=variables)


@pytest.mark.slow
def test_what_one_process_refuses_ends_all_with_its_sentence(place, port):
    (place / "elsewhere").mkdir()
    program = ("-m", "glasshead")
    both = [started(0, place, port, *program), started(1, place / "elsewhere", port, *program)]
    first, second = [process.ended() for process in both]
    assert (first.returncode, second.returncode) == (2, 2)
    assert first.stdout == ""
    assert first.stderr == (
        "glasshead: error: process 1 of 2: there is no folder llama. Check its name.\n"
    )


DIES = """
import os, sys
from glasshead.tasks.readers.observe_texts import TextObserver
TextObserver.result = lambda self: os._exit(9)
from glasshead.cli import main
sys.exit(main())
"""


@pytest.mark.slow
def test_a_process_that_dies_is_not_waited_for(place, port):
    both = [started(0, place, port, "-m", "glasshead"), started(1, place, port, "-c", DIES)]
    first, second = [process.ended() for process in both]
    assert (first.returncode, second.returncode) == (2, 9)
    assert first.stdout == ""
    assert first.stderr.splitlines()[-1] == (
        "glasshead: error: another process of this command has ended. See its error, or start "
        "all of them again."
    )


def without(*names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def configured(**changes):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def robbed(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def broken(folder):
    (folder / "model.safetensors").write_bytes(b"not weights")


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("config.json"), "llama has no run: there is no config.json in it. Check its name"),
        (without("model.safetensors"), "llama has no weights: there is no model.safetensors in it"),
        (pickled, "llama has its weights in pytorch_model.bin alone, which is pickled and could"),
        (without(*TOKENIZER), "llama has no tokenizer: there is no tokenizer.json in it. Save"),
        (configured(model_type="nonesuch"), "config.json in llama cannot be loaded ("),
        (configured(num_hidden_layers=3), "the weights in llama must fit LlamaForCausal"),
        (configured(hidden_size=12), "the weights in llama must fit LlamaForCausalLM"),
        (
            robbed,
            "model.layers.1.self_attn.q_proj.weight is missing or has another shape. Check co",
        ),
        (broken, "the model in llama cannot be loaded ("),
    ],
)
def test_a_folder_that_is_not_whole_is_refused_in_one_sentence(command, place, change, sentence):
    change(place / "llama")
    refused(command, sentence, "llama", "--text", "text.txt")


def refused(command, sentence, *arguments):
    outcome = command("observe", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--text", "empty.txt"], "empty.txt is empty. Name a file with text in it."),
        (["--text", "nothing.jsonl"], "nothing.jsonl contains no text. Name a file that has some"),
        (["--text", "none"], "none has no texts in it. Name a folder with files that end in .txt"),
        (["--text", "text.txt", "--layer", "2"], "--layer must be from 0 to 1, as"),
        (
            ["--text", "text.txt", "--layer", "1", "--head", "3"],
            "--head must be from 0 to 2, as there are 3 heads, got 3.",
        ),
        (
            ["--text", "text.txt", "--length", "0"],
            "--length must be a number of tokens, or whole",
        ),
        (
            ["--text", "text.txt", "--length", "x"],
            "--length must be a number of tokens, or whole",
        ),
        (
            ["--text", "text.txt", "--length", "1"],
            "--length must be at least 2, as tokens are added ar",
        ),
        (
            ["--text", "text.txt", "--length", "12"],
            "llama reads at most 11 tokens at once, got ",
        ),
        (
            ["--text", "text.txt", "--length", "whole"],
            "at once, got a piece of 25. Add --",
        ),
        (
            ["--text", "text.txt", "--stat", "mass-on:11"],
            "MassOn(keys) must be keys from 0 to 10, got",
        ),
        (
            ["--text", "text.txt", "--save", "llama/model.safetensors"],
            "--save must be another file than",
        ),
        (["--length", "7"], "--length needs --text. Add --text FILE, or omit --length."),
        (["--truncate"], "--truncate needs --text FILE and --length whole. Add them, or omit"),
        (
            ["--text", "text.txt", "--truncate"],
            "--truncate needs --length whole. Add it, or omit --truncate",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(command, place, arguments, sentence):
    (place / "empty.txt").write_text(" \n")
    (place / "nothing.jsonl").write_text('{"text": ""}\n')
    (place / "none").mkdir()
    refused(command, sentence, "llama", *arguments)


def test_more_than_a_text_is_for_python(command, place):
    small = {"d_model": 24, "d_kv": 8, "num_heads": 3, "num_layers": 2, "d_ff": 37}
    seq2seq = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=30, **small))
    pictures = {"image_size": 8, "patch_size": 4, **SMALL.sizes}
    del pictures["max_position_embeddings"]
    vision = transformers.ViTModel(transformers.ViTConfig(**pictures))
    for name, model in (("t5", seq2seq), ("vit", vision)):
        model.save_pretrained(place / name)
        SMALL.tokenizer("bert").save_pretrained(place / name)
        kind = type(model).__name__
        sentence = (
            f"and {name} has {kind}, which needs more. Watch it in Python with gh.watch(model"
        )
        refused(command, sentence, name, "--text", "text.txt")


def test_a_missing_library_is_named(command, place, monkeypatch):
    from glasshead import extras

    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "transformers" else 1)
    sentence = (
        "glasshead observe MODEL needs transformers, not installed here. Run pip install 'glass"
    )
    refused(command, sentence, "llama", "--text", "text.txt")


def test_a_code_of_its_own_is_not_run(command, place):
    configured(auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"})(
        place / "llama"
    )
    configured(model_type="own")(place / "llama")
    (place / "llama" / "own.py").write_text("raise SystemExit('ran')")
    refused(command, "config.json in llama cannot be loaded (", "llama", "--text", "text.txt")


def test_observing_leaves_the_log_of_transformers_as_it_was(command, place):
    before = transformers.logging.get_verbosity()
    observe(command, "llama", "--text", "text.txt", *asked("entropy"))
    assert transformers.logging.get_verbosity() == before


def test_what_is_watched_in_python_is_the_same(command, place):
    observe(command, "llama", "--text", "text.txt", "--save", "seen.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained("llama").eval()
    corpus = gh.CorpusStatistics([gh.Entropy()])
    for piece in pieces_of("llama", [TEXT]):
        with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
            model(torch.tensor([piece]))
        corpus.update(seen)
    found = saved("seen.safetensors", layers_of("llama"))["entropy"]
    torch.testing.assert_close(found, corpus.compute().stacked("entropy"), atol=1e-6, rtol=1e-6)


# Runs the command, keeps the sums after each batch, and is killed in a later one.
KILLED = """
import os, signal, sys
from glasshead.cli import main
from glasshead.tasks.readers import observe_texts, text_stream
observe_texts._EVERY, text_stream._TOKENS_AT_ONCE = 0.0, 22
save = observe_texts.PartialFile.save
def saved(self, partial):
    save(self, partial)
    if partial.batches == 3:
        os.kill(os.getpid(), signal.SIGKILL)
observe_texts.PartialFile.save = saved
main(sys.argv[1:])
"""


@systems.signals
class TestResuming:
    @pytest.fixture
    def options(self, place, monkeypatch):
        from glasshead.tasks.readers import text_stream

        (place / "text.txt").write_text(f"{TEXT} " * 7)
        monkeypatch.setattr(text_stream, "_TOKENS_AT_ONCE", 22)
        return ["llama", "--text", "text.txt", "--save", "made/seen.safetensors"]

    @pytest.fixture
    def interrupted(self, place, command, options, monkeypatch):
        """The options of a run that kept its sums after three batches, and was interrupted then."""
        from glasshead.tasks.readers import observe_texts

        save = observe_texts.PartialFile.save

        def saved(self, partial):
            save(self, partial)
            if partial.batches == 3:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(observe_texts, "_EVERY", 0.0)
            patch.setattr(observe_texts.PartialFile, "save", saved)
            assert command("observe", *options).code == 130
        self.check_kept(place)
        return options

    def check_kept(self, place):
        assert [file.name for file in (place / "made").iterdir()] == ["seen.safetensors.partial"]

    def check_resumed(self, place, command, options):
        """What goes on after three batches ends with the same bits as what was not ended."""
        observe(command, *options[:-1], "whole.safetensors")
        outcome = observe(command, *options, "--resume")
        assert "Continuing after 66 tokens, read by an earlier run." in outcome.err
        assert (place / "made" / "seen.safetensors").read_bytes() == (
            place / "whole.safetensors"
        ).read_bytes()
        assert [file.name for file in (place / "made").iterdir()] == ["seen.safetensors"]

    def test_a_run_that_was_interrupted_goes_on_with_the_same_bits(
        self, place, command, interrupted
    ):
        self.check_resumed(place, command, interrupted)

    @pytest.mark.slow
    def test_a_run_that_was_killed_goes_on_with_the_same_bits(self, place, command, options):
        done = forked.Process("-c", KILLED, "observe", *options).ended()
        assert done.returncode == -9, done.stderr
        self.check_kept(place)
        self.check_resumed(place, command, options)

    def test_what_was_kept_is_not_lost_by_mistake(self, place, command, interrupted):
        partial = place / "made" / "seen.safetensors.partial"
        kept = partial.read_bytes()
        outcome = command("observe", *interrupted)
        assert outcome.code == 2
        assert "Add --resume to continue that run, or delete the file" in outcome.err
        (place / "text.txt").write_text(TEXT * 5)
        outcome = command("observe", *interrupted, "--resume")
        assert outcome.code == 2
        assert "holds the sums of a run with another text or length" in outcome.err
        assert partial.read_bytes() == kept

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            (["llama", "--text", "text.txt", "--resume"], "Add --save, or omit --resume"),
            (
                ["llama", "--text", "text.txt", "--save", "a.safetensors", "--resume"],
                "--resume found no a.safetensors.partial. Omit --resume to begin",
            ),
            (["--resume"], "--resume needs --text FILE and --save. Add them"),
        ],
    )
    def test_resuming_takes_what_to_go_on_with(self, place, command, options, sentence):
        outcome = command("observe", *options)
        assert outcome.code == 2
        assert sentence in outcome.err
