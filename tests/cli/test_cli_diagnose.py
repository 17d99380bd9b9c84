"""`glasshead diagnose`: the files that it reads, its exit codes, and what it refuses."""

import io
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

CAUSAL = np.tri(5, 5, dtype=bool)
LEAKING = CAUSAL.copy()
LEAKING[1, 3] = True


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of masks, good and bad."""
    monkeypatch.chdir(tmp_path)
    np.save("causal.npy", CAUSAL)
    np.save("leaking.npy", LEAKING)
    np.savez("one.npz", mask=CAUSAL)
    np.savez("two.npz", first=CAUSAL, second=CAUSAL)
    np.save("objects.npy", np.array([[None]], dtype=object), allow_pickle=True)
    np.savez("objects.npz", np.array([[None]], dtype=object))
    save_file({"mask": torch.from_numpy(CAUSAL)}, "one.safetensors")
    tensors = {"causal": torch.from_numpy(CAUSAL), "leaking": torch.from_numpy(LEAKING)}
    save_file(tensors, "two.safetensors")
    whole = (tmp_path / "causal.npy").read_bytes()
    files = {
        "causal.csv": b"1,0,0\n1,1,0\n1,1,1\n",
        "causal.tsv": b"# mine\n0\t-inf\t-inf\n0\t0\t-inf\n\n0\t0\t0\n",
        "words.txt": b"true false\ntrue true\n",
        "causal.json": b"[[1, 0, 0], [1, 1, 0], [1, 1, 1]]",
        "infinite.json": b'[[0, "-inf"], [0, -0.0]]',
        "ragged.csv": b"1,0\n1\n",
        "letters.csv": b"1,0\n1,x\n",
        "empty.csv": b"\n# nothing\n",
        "gap.csv": b"1,,0\n",
        "broken.json": b"[[1, 0],\n [1, 1]",
        "object.json": b'{"mask": 1}',
        "ragged.json": b"[[1, 0], [1]]",
        "null.json": b"[[1, null]]",
        "deep.json": b"[" * 100_000,
        "digits.json": b"[[" + b"1" * 5000 + b"]]",
        "cut.npy": whole[:-3],
        "header.npy": whole[:20],
        "text.npy": b"1,0\n1,1\n",
        "text.npz": b"1,0\n1,1\n",
        "mask.pt": pickle.dumps([1]),
        "zero.csv": b"1,\x000\n",
        "text.safetensors": b"1,0\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    "file",
    [
        "causal.npy",
        "one.npz",
        "one.safetensors",
        "two.safetensors:causal",
        "causal.csv",
        "causal.tsv",
        "words.txt",
        "causal.json",
        "infinite.json",
    ],
)
def test_a_healthy_mask_of_any_file_exits_with_0(place, command, file):
    outcome = command("diagnose", file)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("A healthy mask\n")
    assert "mask = gh.causal()" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [["leaking.npy"], ["two.safetensors", "--tensor", "leaking"], ["two.safetensors:leaking"]],
)
def test_a_fault_exits_with_1_and_is_told(place, command, arguments):
    outcome = command("diagnose", *arguments)
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.startswith("A mask with 1 error\n")
    assert "query 1, key 3" in " ".join(outcome.out.split())


def test_standard_input_is_read_as_text(place, command, typed):
    typed(b"1 0\n1 1\n")
    assert command("diagnose", "-").code == 0
    typed(b"[[0.0, 1.0], [0.0, 0.0]]")
    assert command("diagnose", "-").code == 1


def test_what_is_stated_is_checked(place, command):
    assert command("diagnose", "causal.npy", "--convention", "attend").code == 0
    outcome = command("diagnose", "causal.npy", "--convention", "hidden")
    assert outcome.code == 1
    assert "looks inverted" in outcome.out
    assert command("diagnose", "causal.npy", "--queries", "5", "--keys", "5").code == 0
    outcome = command("diagnose", "causal.npy", "--keys", "7")
    assert outcome.code == 1
    assert "ERROR length" in outcome.out
    assert command("diagnose", "causal.npy", "--offset", "2").code == 1


def test_a_page_is_written_and_the_text_is_as_wide_as_asked(place, command):
    outcome = command("diagnose", "leaking.npy", "--html", "new/page.html", "--width", "40")
    assert outcome.code == 1
    assert outcome.err == "The page is at new/page.html\n"
    assert max(map(len, outcome.out.splitlines())) <= 40
    assert (place / "new" / "page.html").read_text().startswith("<!doctype html>")


def test_code_that_is_wider_than_the_terminal_is_not_cut(place, command):
    np.save("tokens.npy", np.array([[1, 1, 1], [1, 0, 0]]))
    outcome = command("diagnose", "tokens.npy", "--width", "20")
    assert "\nF.scaled_dot_product_attention(\n    query, key,\n    value,\n" in outcome.out


def test_a_mask_that_is_spread_over_too_many_pairs_is_refused(command, typed):
    typed(b"1")
    outcome = command("diagnose", "-", "--queries", "100000", "--keys", "100000")
    assert (outcome.code, outcome.out) == (2, "")
    assert "would be spread over 10,000,000,000: give fewer" in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_conventions_are_those_of_the_library():
    from glasshead.cli.diagnosing.request import CONVENTIONS
    from glasshead.diagnosis.conventions import STATED

    assert CONVENTIONS == STATED


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.csv"], "there is no file none.csv: check its name."),
        (["."], ". is a folder: name a file in it."),
        (["mask.pt"], "mask.pt may be a pickle, which could run anything, and is not read"),
        (["objects.npy"], "objects.npy holds pickled Python objects, which could run anything"),
        (["objects.npz"], "objects.npz holds pickled Python objects, which could run anything"),
        (["cut.npy"], "cut.npy is malformed or cut off"),
        (["header.npy"], "header.npy is malformed or cut off"),
        (["text.npy"], "text.npy is no .npy file: write it by numpy.save."),
        (["text.npz"], "text.npz is no .npz file"),
        (["two.npz"], "two.npz: expected one array, and it has first, second"),
        (["text.safetensors"], "text.safetensors is no safetensors file"),
        (["two.safetensors"], "expected one tensor, and two.safetensors has"),
        (["two.safetensors", "--tensor", "casual"], "has no tensor casual, it has"),
        (["two.safetensors", "--tensor", "casual"], "did you mean causal?"),
        (["two.safetensors:leaking", "--tensor", "causal"], "leave one of them out"),
        (["causal.csv", "--tensor", "mask"], "--tensor names one of a safetensors file, and"),
        (["ragged.csv"], "ragged.csv, line 2: expected 2 numbers as on line 1, and got 1"),
        (
            ["letters.csv"],
            "letters.csv, line 2: expected a number, true, false or -inf, and got 'x'",
        ),
        (["gap.csv"], "gap.csv, line 1: expected a number, true, false or -inf, and got an empty"),
        (["empty.csv"], "empty.csv has no mask: give it a row of numbers a query."),
        (["zero.csv"], "zero.csv, line 1: expected UTF-8 text, and got the byte 0x00"),
        (["broken.json"], "broken.json, line 2: malformed JSON"),
        (["object.json"], "object.json: expected nested lists of numbers"),
        (["null.json"], "null.json: expected nested lists of numbers"),
        (["deep.json"], "deep.json: expected lists of numbers, and got too many brackets."),
        (["digits.json"], "digits.json: expected numbers of at most 4,300 digits"),
        (["ragged.json"], "ragged.json: diagnose(mask) takes lists of one length"),
        (
            ["causal.npy", "--queries", "0"],
            "--queries takes a whole number from 1 to 2^31, and got",
        ),
        (["causal.npy", "--keys", "x"], "it takes a whole number, and got 'x'"),
        (["causal.npy", "--offset", str(2**40)], "--offset takes a whole number of at most 2^31"),
        (["causal.npy", "--convention", "atend"], "--convention takes one of attend, hidden,"),
        (["causal.npy", "--convention", "atend"], "did you mean 'attend'?"),
        (["causal.npy", "--width", "3"], "--width takes 20 to 1000 columns"),
        (["causal.npy", "--html", "."], "--html takes a file to write, and . is a folder"),
        (["causal.npy", "--html", "causal.npy"], "--html takes another place than causal.npy"),
        ([""], "FILE takes a file, and got nothing"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_bad_input_is_one_sentence_and_exits_with_2(place, command, arguments, sentence):
    outcome = command("diagnose", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("glasshead: error: ")
    assert outcome.err.count("\n") == 1
    assert sentence in outcome.err


def test_an_archive_that_would_unpack_to_more_than_it_may_is_refused(place, command, monkeypatch):
    from glasshead.cli.inputs import arrays_file

    monkeypatch.setattr(arrays_file, "_MOST_BYTES", 1000)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask.npy", bytes(2000))
    (place / "bomb.npz").write_bytes(content.getvalue())
    outcome = command("diagnose", "bomb.npz")
    assert outcome.code == 2
    assert "bomb.npz unpacks to more than 1 GiB" in outcome.err


def test_help_does_without_torch():
    heavy = "{'torch', 'numpy', 'safetensors', 'jaxtyping'} & set(sys.modules)"
    code = (
        "import sys; from glasshead.cli import main; main(['diagnose', '--help']); "
        f"sys.exit(repr({heavy}) if {heavy} else 0)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    for option in ("--tensor", "--queries", "--keys", "--offset", "--convention", "--html"):
        assert option in outcome.stdout
