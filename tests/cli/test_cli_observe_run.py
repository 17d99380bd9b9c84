"""`glasshead observe RUN --text FILE`: its numbers, its page, its files, and what it refuses."""

import json
import math
import re
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import glasshead as gh
from glasshead.cli.observe_tables import HeadsTable
from glasshead.models.saving import write_weights
from glasshead.tasks.readers import text_stream as cutting
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.tokenizers.train_tokenizer import characters
from glasshead.tasks.write import Writer, WriteSettings

CONTEXT, LAYERS, HEADS = 11, 2, 3
# Five pieces and three tokens more.
TEXT = "the quick brown fox jumps over the lazy dog, and then it sleeps"[: 5 * CONTEXT + 3]
NAMES = [f"blocks.{layer}.attention" for layer in range(LAYERS)]
MEANS = {
    "entropy": "nats",
    "max-weight": "weight",
    "mean-distance": "places",
    "mass-on:0": "weight",
    "mass-on:0,2,3": "weight",
    "log-sum-exp": "nats",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    settings = WriteSettings.from_preset(
        "nano",
        [f"context_length={CONTEXT}", "d_model=18", f"num_heads={HEADS}", f"num_layers={LAYERS}"],
    )
    tokenizer = characters([TEXT])
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    model = gh.LanguageModel(config)
    # Larger weights than new ones, so that heads differ.
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    run = RunFolder("run")
    run.create()
    tokenizer.save(run.tokenizer)
    write_weights(model, run.weights)
    run.write_config(settings.to_json(config))
    return tmp_path


def observe(command, *options, text="text.txt"):
    outcome = command("observe", "run", "--text", text, *options)
    assert outcome.code == 0, outcome.err
    return outcome


def weights(text=TEXT):
    """P of each piece, `[layers, heads, queries, keys]`, from the traces of each attention."""
    writer, inputs, found = Writer.load("run"), {}, []
    for block in writer.model.blocks:
        block.attention.register_forward_pre_hook(
            lambda module, given: inputs.update({module: given[0]})
        )
    for tokens in torch.tensor(writer.tokenizer.encode(text)).split(CONTEXT):
        with torch.no_grad():
            writer.model(tokens[None])
            found.append(torch.cat([one.trace(x).weights.double() for one, x in inputs.items()]))
    return found


def expected(written, P):
    """A statistic of one piece, `[layers, heads, queries]`."""
    queries, keys = torch.meshgrid(*map(torch.arange, P.shape[-2:]), indexing="ij")
    present = [key for key in (0, 2, 3) if key < P.shape[-1]]
    return {
        "entropy": -torch.special.xlogy(P, P).sum(-1),
        "max-weight": P.amax(-1),
        "mean-distance": (P * (queries - keys).abs()).sum(-1),
        "mass-on:0": P[..., 0],
        "mass-on:0,2,3": P[..., present].sum(-1),
    }[written]


def mean_over_tokens(written):
    return torch.cat([expected(written, P) for P in weights()], -1).mean(-1)


def asked(*names):
    return [part for name in names for part in ("--stat", name)]


def table(out, caption):
    """The numbers of the table below a caption that begins so: layer by layer."""
    lines = out[out.index(caption) :].splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("layer ")) + 2
    return torch.tensor([[float(x) for x in line.split()[1:]] for line in lines[start:][:LAYERS]])


@pytest.mark.parametrize("written", [name for name in MEANS if name != "log-sum-exp"])
def test_a_table_has_the_mean_over_all_tokens_of_each_layer_and_head(command, place, written):
    found = mean_over_tokens(written)
    out = observe(command, *asked(written)).out
    shown = table(out, f"{written}, {MEANS[written]}: mean over all tokens")
    assert shown.shape == (LAYERS, HEADS)
    torch.testing.assert_close(shown.double(), found, atol=1e-3, rtol=1e-3)
    assert len(TEXT) == 58
    assert (
        "Layers: 2; heads of each: 3; tokens: 58 in 6 pieces of 11, the last of 3, each read from"
        in (" ".join(out.split()))
    )


def test_the_extremes_are_named_with_their_place(command, place):
    found = mean_over_tokens("entropy")
    out = " ".join(observe(command, *asked("entropy")).out.split())
    for word, at in (("Smallest entropy:", found.argmin()), ("largest:", found.argmax())):
        layer, head = divmod(int(at), HEADS)
        (said,) = re.findall(rf"{word} ([\d.e-]+), in layer {layer}, head {head}", out)
        assert float(said) == pytest.approx(found[layer, head].item(), abs=1e-3)
    # The finding comes first; n equal weights have the entropy ln n.
    found_in = r"in layer (\d), head (\d), with the entropy of (\d+\.\d+)"
    for said, at in zip(re.findall(found_in, out), (found.argmin(), found.argmax()), strict=True):
        assert divmod(int(at), HEADS) == tuple(map(int, said[:2]))
        assert float(said[2]) == pytest.approx(found.flatten()[at].exp().item(), rel=0.01)
    assert out.index("The narrowest attention") < out.index("Smallest entropy:")
    assert out.index("Smallest entropy:") < out.index("Layers: 2;")


def test_what_is_saved_is_named_by_layer_and_statistic(command, place):
    target = place / "new" / "seen.safetensors"
    names = [*MEANS, "max-score", "received", "received:2", "distance-histogram:0,1,4,inf"]
    outcome = observe(command, *asked(*names), "--save", target)
    assert outcome.err == f"The observation is at {target}\n"
    saved, whole = load_file(target), torch.stack(weights()[:-1])
    values = {name: re.sub(r"\W", "_", name) for name in names}
    assert set(saved) == {
        f"{layer}.{name}" for layer in NAMES for name in (*values.values(), "pooled_map")
    }

    def stacked(name):
        return torch.stack([saved[f"{layer}.{name}"] for layer in NAMES])

    def alike(name, right):
        torch.testing.assert_close(stacked(name), right.double(), atol=1e-5, rtol=1e-5)

    for name in set(MEANS) - {"log-sum-exp"}:
        alike(values[name], mean_over_tokens(name))
    alike("received", whole.sum(-2).mean(0))
    alike("received_2", whole[..., -2:, :].sum(-2).mean(0))
    alike("pooled_map", whole.mean(0))
    distance = (torch.arange(CONTEXT)[:, None] - torch.arange(CONTEXT)).abs()
    bins = [
        sum((P * ((low <= distance) & (distance < high))[: len(P[0, 0]), : len(P[0, 0])]).sum(
            (-2, -1)
        ) for P in weights()) / len(TEXT)
        for low, high in ((0, 1), (1, 4), (4, math.inf))
    ]  # fmt: skip
    alike("distance_histogram_0_1_4_inf", torch.stack(bins, -1))
    with safe_open(target, "pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    assert told["layers"] == NAMES
    assert (told["run"], told["text"], told["tokens"], told["pieces"]) == ("run", "text.txt", 58, 6)
    assert told["statistics"]["received_2"] == {
        "written": "received:2", "unit": "weight", "axes": ["head", "key"],
    }  # fmt: skip
    assert told["statistics"]["entropy"]["axes"] == ["head"]


def test_scores_are_those_of_the_trace(command, place):
    observe(command, *asked("max-score", "log-sum-exp"), "--save", "seen.safetensors")
    writer, scores = Writer.load("run"), []
    attention, embedding = writer.model.blocks[0].attention, writer.model.embedding
    for tokens in torch.tensor(writer.tokenizer.encode(TEXT)).split(CONTEXT):
        x = embedding(tokens[None], torch.arange(len(tokens)))
        with torch.no_grad():
            x = writer.model.blocks[0].around_attention.norm(x)
            scores.append(attention.trace(x).masked[0])
    saved = load_file("seen.safetensors")
    largest = torch.stack([one.amax((-2, -1)) for one in scores]).amax(0)
    mean = torch.cat([one.logsumexp(-1) for one in scores], -1).mean(-1)
    for name, right in (("max_score", largest), ("log_sum_exp", mean)):
        found = saved[f"blocks.0.attention.{name}"]
        torch.testing.assert_close(found, right.double(), atol=1e-5, rtol=1e-5)


def test_batches_change_nothing(command, place, monkeypatch):
    observe(command, "--save", "one.safetensors")
    monkeypatch.setattr(cutting, "_TOKENS_AT_ONCE", 2 * CONTEXT)
    observe(command, "--save", "many.safetensors")
    one, many = load_file("one.safetensors"), load_file("many.safetensors")
    assert set(one) == set(many)
    for name, value in one.items():
        torch.testing.assert_close(value, many[name])


@pytest.mark.parametrize(
    ("options", "said", "rows", "chosen"),
    [
        ([], "mean over all 6 heads", ["layer 0", "layer 1"], (slice(None), slice(None))),
        (["--layer", 1], "mean over the 3 heads of layer 1", [f"head {h}" for h in range(3)], (1,)),
        (["--layer", 1, "--head", 2], "of layer 1, head 2", ["head 2"], (1, 2)),
    ],
)
def test_whose_map_and_keys_are_drawn_can_be_chosen(command, place, options, said, rows, chosen):
    out = observe(command, *options, *asked("received"), "--width", 200).out
    mean = torch.stack(weights()[:-1]).mean(0)
    P = mean[chosen].reshape(-1, CONTEXT, CONTEXT).mean(0)
    over = "mean over 5 pieces of 11"
    assert f"Weights, {said}, {over}: one row per query, one column per key" in out
    drawn = [line.split() for line in out.splitlines() if re.match(r"\d+ +\d\.\d\d ", line)]
    for query, cells in enumerate(drawn):
        shown = [f"{weight:.2f}" if key <= query else "·" for key, weight in enumerate(P[query])]
        assert cells == [f"{query}", *shown]
    assert len(drawn) == CONTEXT
    assert (
        f"Positions that receive the most attention, {said}, {over}; each query gives 1 in total"
        in out
    )
    mass = P.sum(0)
    ((_, weight),) = re.findall(rf"^ +({mass.argmax()}) +([\d.]+) +[\d.]+ %$", out, re.MULTILINE)
    assert float(weight) == pytest.approx(mass.max().item(), rel=1e-3)
    drawn = [line for line in out.splitlines() if re.match(r"(layer|head) \d +\d", line)]
    assert [" ".join(line.split()[:2]) for line in drawn] == rows


def test_a_histogram_has_a_column_for_each_layer_or_head(command, place):
    out = observe(command, *asked("distance-histogram:0,1,inf")).out
    assert re.search(r"^distance +layer 0 +layer 1$", out, re.MULTILINE)
    assert "distance-histogram in each layer, mean over its heads, weight" in " ".join(out.split())
    out = observe(command, *asked("distance-histogram:0,1,inf"), "--layer", 0).out
    assert re.search(r"^distance +head 0 +head 1 +head 2$", out, re.MULTILINE)


def test_the_tokens_of_a_single_piece_are_named(command, place):
    (place / "short.txt").write_text("the fox!")
    out = observe(command, *asked("received"), "--width", 200, text="short.txt").out
    assert "tokens: 8 in 1 piece; " in out
    assert re.search(r"^f +(\d\.\d\d +){5}(· *){3}$", out, re.MULTILINE)
    assert re.search(r"^<unk> ", out, re.MULTILINE)
    said = " ".join(out.replace("│", " ").split())
    assert "reads as one and the same token: 1 (12.5 %)." in said
    (place / "longer.txt").write_text("the quick brown")
    out = observe(command, *asked("received"), "--width", 200, text="longer.txt").out
    assert "Weights, mean over all 6 heads, over the first 11 tokens: one row per query" in out
    assert re.search(r"^q +(\d\.\d\d +){5}(· *){6}$", out, re.MULTILINE)
    assert "reads as one and the same token" not in out


def test_texts_of_a_table_follow_each_other_each_with_its_end(command, place):
    (place / "texts.jsonl").write_text('{"text": "the fox"}\n{"text": "a dog"}\n')
    out = observe(command, *asked("entropy"), text="texts.jsonl").out
    assert "tokens: 14 in 2 pieces of 11, the last of 3" in " ".join(out.split())


def test_many_heads_stand_below_each_other_and_none_is_left_out(command, place):
    out = observe(command, *asked("entropy"), "--width", 24).out
    assert "layer  head 0  head 1" in out
    assert re.search(r"^layer +head 2$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 24


def test_the_page_has_everything_and_needs_nothing(command, place):
    names = [name for name in MEANS if name != "log-sum-exp"]
    outcome = observe(command, *asked(*names, "received"), "--html", "new/page.html")
    assert outcome.err == "The page is at new/page.html\n"
    page = (place / "new" / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "The attention of run over text.txt" in page
    for name in names:
        assert f"<span>{name}, {MEANS[name]}: mean over all tokens</span>" in page
    assert page.count('<figure class="heat-map">') == len(names) + 2
    assert not re.search(r"https?:|<script[^>]+src|<link|@import|url\(|<img", page)
    entropy = f"{mean_over_tokens('entropy')[1, 2].item():.2f}"
    assert re.search(rf'title="layer 1 → head 2: [^"]+"><span>{entropy}</span>', page)


def test_what_can_be_below_zero_is_not_painted():
    below = HeadsTable([[0.5, -0.25]], "log-sum-exp, nats")
    assert "-0.25" in below.as_text()
    assert "-0.25" in below.html()
    assert "heat-map" not in below.html()
    assert "heat-map" in HeadsTable([[0.5, 0.0]], "entropy, nats").html()


def test_the_default_is_that_of_one_attention_but_for_what_names_keys(command, place):
    out = observe(command).out
    for name in ("entropy", "max-weight", "mean-distance", "received", "mass-on:0"):
        assert re.search(rf"^{name}, ", out, re.MULTILINE)
    assert "top-k" not in out


REFUSED = [
    (["run", "--stat", "top-k:2"], "--stat top-k:2 names keys of one text, but a model reads"),
    (["run", "--stat", "entropi"], "got 'entropi'. Did you mean 'entropy'?"),
    (["run", "--stat", "mass-on:11"], "MassOn(keys) must be keys from 0 to 10, got 11"),
    (["run", "--stat", "received:12"], "Received(last=12) needs at least 12 queries, got 11"),
    (
        ["run", "--vectors", "x.csv"],
        "--vectors cannot be combined with --text, because the model makes",
    ),
    (["run", "--mask", "none"], "--mask cannot be combined with --text, because the model has its"),
    (
        ["run", "--engine", "auto"],
        "--engine cannot be combined with --text, because the model chooses",
    ),
    (["run", "--head", "1"], "--head needs --layer. Add --layer N, or omit"),
    (["run", "--layer", "2"], "--layer must be from 0 to 1, as there are 2 layers, got 2."),
    (["run", "--layer", "-1"], "--layer must be a layer, counted from 0, got -1."),
    (["run", "--layer", "1", "--head", "3"], "--head must be from 0 to 2, as there"),
    (["run", "--layer", "1", "--head", "-1"], "--head must be a head, counted from 0, got -1."),
    (["run", "--width", "3"], "--width must be 20 to 1000 columns, got 3"),
    (
        ["run", "--save", "run/model.safetensors"],
        "--save must be another file than run/model.safet",
    ),
    (["run", "--html", "text.txt"], "--html must be another file than text.txt, which is read"),
    (
        ["run", "--html", "a", "--save", "a"],
        "--html and --save must name different files, got a for both",
    ),
    ([], "--text needs the folder of a run whose model reads it. Name it, as in glasshead observe"),
    ([""], "--text needs the folder of a run whose model reads it. Name it, as in glasshead obser"),
    (["none"], "there is no folder none. Check its name."),
    (["text.txt"], "a run must be a folder, got the file text.txt. Name the folder of the run."),
    (["."], ". has no run: there is no config.json in it. Check its name."),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(command, place, arguments, sentence):
    before = sorted(place.rglob("*"))
    outcome = command("observe", *arguments, "--text", "text.txt")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("none.txt", "there is no file none.txt. Check its name."),
        ("empty.txt", "empty.txt is empty. Name a file with text in it."),
        ("-", "Standard input is not read, so name a file."),
        ("", "--text must be a file, got an empty name. Name one, or omit it."),
        (
            "text.bin",
            "text.bin must have a name that ends in one of .txt, .text, .md, .jsonl, .csv, .tsv",
        ),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(command, place, text, sentence):
    (place / "empty.txt").write_text(" \n")
    (place / "text.bin").write_bytes(b"abc")
    outcome = command("observe", "run", "--text", text)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err


def test_a_layer_without_a_model_is_refused(command, place):
    outcome = command("observe", "a sentence", "--layer", 1)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--layer needs a model. Name the folder of a run, and" in (outcome.err)


def test_what_is_refused_by_itself_needs_no_torch():
    code = (
        "import sys; from glasshead.cli import main; "
        "code = main(['observe', 'run', '--text', 'a.txt', '--save', 'b', '--stat', 'top-k']); "
        "sys.exit(code if not {'torch', 'numba', 'tokenizers'} & set(sys.modules) else 3)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert outcome.returncode == 2
    assert b"names keys of one text" in outcome.stderr


def parts_of(place):
    """The text as three files and their names, one of them in a folder."""
    (place / "corpus" / "more").mkdir(parents=True)
    names = ["corpus/a.txt", "corpus/b.txt", "corpus/more/c.txt"]
    for name, begin in zip(names, (0, 19, 41), strict=True):
        (place / name).write_text(TEXT[begin : begin + 23])
    return names


def test_several_files_are_named_one_by_one_by_a_pattern_or_in_a_list(command, place):
    names = parts_of(place)
    one_by_one = [part for name in names[1:] for part in ("--text", name)]
    observe(command, *one_by_one, "--save", "right", text=names[0])
    (place / "names").write_text("\n".join(names) + "\n\n")
    right = load_file("right")
    for given in (
        ["--text", "corpus/**/*.txt"],
        ["--text", "corpus"],
        ["--files-from", "names"],
        ["--text", names[0], "--text", "corpus/b*", "--text", "corpus/more"],
    ):
        outcome = command("observe", "run", *given, "--save", "found")
        assert outcome.code == 0, outcome.err
        found = load_file("found")
        assert all(found[name].equal(value) for name, value in right.items())


def test_a_list_of_files_comes_from_another_command(command, place, typed):
    typed("\n".join(parts_of(place)).encode())
    outcome = command("observe", "run", "--files-from", "-", *asked("entropy"))
    assert outcome.code == 0, outcome.err
    said = outcome.out
    assert "The attention of run over corpus/a.txt, corpus/b.txt, corpus/more/c.txt" in said


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ["--files-from", "names"],
            "--files-from must name a file with one file name per line, got none in names",
        ),
        (["--files-from", "none"], "there is no file none. Check its name."),
        (
            ["--files-from", ""],
            "--files-from must be a file, got an empty name. Name one, or omit it",
        ),
        (["--text", "corpus/*.md"], "corpus/*.md matches no file. Check the pattern, or the folde"),
        (["--text", "text.txt", "--save", "text.txt"], "--save must be another file than text.txt"),
        (
            ["--text", "corpus/*", "--save", "corpus/b.txt"],
            "--save must be another file than corpu",
        ),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(command, place, given, sentence):
    parts_of(place)
    (place / "names").write_text("\n \n")
    outcome = command("observe", "run", *given)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
