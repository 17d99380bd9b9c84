"""`glasshead diagnose`: the files that it reads, its exit codes, and what it refuses."""

import io
import pickle
import re
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from glasshead.cli.inputs import masks as arrays_file

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
    assert "got 10,000,000,000 from a mask of shape [1, 1]. Use fewer" in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_conventions_are_those_of_the_library():
    from glasshead.cli.diagnose import CONVENTIONS
    from glasshead.diagnosis.conventions import STATED

    assert CONVENTIONS == STATED


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.csv"], "there is no file none.csv. Check its name."),
        (["."], ". is a folder. Name a file in it."),
        (["mask.pt"], "mask.pt must not be a pickle, which could run anything. Save"),
        (
            ["objects.npy"],
            "objects.npy must not hold pickled Python objects, which could run anything",
        ),
        (
            ["objects.npz"],
            "objects.npz must not hold pickled Python objects, which could run anything",
        ),
        (["cut.npy"], "cut.npy is malformed or cut off"),
        (["header.npy"], "header.npy is malformed or cut off"),
        (["text.npy"], "text.npy is not a .npy file. Write it with numpy.save."),
        (["text.npz"], "text.npz is not a .npz file"),
        (["two.npz"], "two.npz must have one array, got first, second"),
        (["text.safetensors"], "text.safetensors is not a safetensors file"),
        (["two.safetensors"], "two.safetensors must have one tensor, got"),
        (["two.safetensors", "--tensor", "casual"], "has no tensor casual, but"),
        (["two.safetensors", "--tensor", "casual"], "Did you mean causal?"),
        (["two.safetensors:leaking", "--tensor", "causal"], "Omit one of them"),
        (["causal.csv", "--tensor", "mask"], "--tensor needs a safetensors file, got"),
        (["ragged.csv"], "ragged.csv, line 2: expected 2 numbers as on line 1, got 1"),
        (
            ["letters.csv"],
            "letters.csv, line 2: expected a number, true, false or -inf, got 'x'",
        ),
        (["gap.csv"], "gap.csv, line 1: expected a number, true, false or -inf, got an empty"),
        (["empty.csv"], "empty.csv has no mask. Give it one row of numbers per query."),
        (["zero.csv"], "zero.csv, line 1: expected UTF-8 text, got the byte 0x00"),
        (["broken.json"], "broken.json, line 2: malformed JSON"),
        (["object.json"], "object.json: expected nested lists of numbers"),
        (["null.json"], "null.json: expected nested lists of numbers"),
        (["deep.json"], "deep.json: expected lists of numbers, got too many brackets."),
        (["digits.json"], "digits.json: expected numbers of at most 4,300 digits"),
        (["ragged.json"], "ragged.json: diagnose(mask) must be lists of one length"),
        (
            ["causal.npy", "--queries", "0"],
            "--queries must be a whole number from 1 to 2^31, got",
        ),
        (["causal.npy", "--keys", "x"], "it must be a whole number, got 'x'"),
        (["causal.npy", "--offset", str(2**40)], "--offset must be a whole number of at most 2^31"),
        (["causal.npy", "--convention", "atend"], "--convention must be one of attend, hidden,"),
        (["causal.npy", "--convention", "atend"], "Did you mean 'attend'?"),
        (["causal.npy", "--width", "3"], "--width must be 20 to 1000 columns"),
        (["causal.npy", "--html", "."], "--html must be a file to write, got the folder ."),
        (["causal.npy", "--html", "causal.npy"], "--html must be another file than causal.npy"),
        ([""], "FILE must be a file, got an"),
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
    monkeypatch.setattr(arrays_file, "_MOST_BYTES", 1000)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask.npy", bytes(2000))
    (place / "bomb.npz").write_bytes(content.getvalue())
    outcome = command("diagnose", "bomb.npz")
    assert outcome.code == 2
    assert "bomb.npz unpacks to more than 1 GiB" in outcome.err


HEADER = "{'descr': '|b1', 'fortran_order': False, 'shape': (4, 4), "


def npy(header, numbers=16):
    """A .npy file whose header says whatever it likes."""
    written = f"{header}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little") + written + bytes(numbers)


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        "(" * 997,
        HEADER + "}" * 2,
        HEADER + '"""',
        HEADER.replace("(4, 4)", "(4, -4)") + "}",
        HEADER.replace("(4, 4)", "(4, 5)") + "}",
        HEADER.replace("(4, 4)", f"({2**62}, 4)") + "}",
        HEADER.replace("(4, 4)", "4") + "}",
        HEADER.replace("|b1", "|V0").replace("(4, 4)", f"({2**62},)") + "}",
        HEADER.replace("'|b1'", "[('a', [('b', 'f4')]") + "}",
        HEADER.replace("|b1", "b1, b1, nothing") + "}",
        "{'descr': '|b1'\t\\ , 'shape'}",
        "9" * 5003,
        "\t \n  0\n 1",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_is_none_is_told(place, command, header, packed):
    content = io.BytesIO(npy(header))
    if packed:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mask.npy", npy(header))
    file = place / f"odd.np{'z' if packed else 'y'}"
    file.write_bytes(content.getvalue())
    outcome = command("diagnose", file.name)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert re.search(rf"error: {file.name}(: .* \|V0\.| is malformed or cut off. )", outcome.err)


def test_an_archive_is_read_as_far_as_its_header_and_its_list_agree(place, command):
    held = 67_000_009
    shapes = {"more.npz": (8191, 8191), "less.npz": (3, 5), "none.npz": (2**40, 7)}
    for name, shape in shapes.items():
        header = HEADER.replace("(4, 4)", str(shape)) + "}"
        with zipfile.ZipFile(place / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mask.npy", npy(header, held))
    tracemalloc.start()
    try:
        for name in shapes:
            outcome = command("diagnose", name)
            assert outcome.code == 2
            assert f"{name} is malformed or cut off" in outcome.err
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < held / 7


def test_an_archive_whose_list_says_too_much_is_refused(place, command):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("mask.npy", npy(HEADER.replace("(4, 4)", "(8191, 8191)") + "}"))
    lying = bytearray(content.getvalue())
    for signature, place_of_size in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = lying.index(signature) + place_of_size
        lying[at : at + 4] = (128 + 8191 * 8191).to_bytes(4, "little")
    (place / "list.npz").write_bytes(lying)
    outcome = command("diagnose", "list.npz")
    assert outcome.code == 2
    assert "list.npz is " in outcome.err
    with zipfile.ZipFile(place / "many.npz", "w") as archive:
        for number in range(1009):
            archive.writestr(f"{number}.npy", b"")
    assert "have one array, got many. Save" in command("diagnose", "many.npz").err


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_is_read_as_it_was_saved(place, command, order, compressed):
    mask = np.asarray(np.tri(7, 11, 4, dtype=bool), order=order)
    np.save(place / "plain.npy", mask)
    (np.savez_compressed if compressed else np.savez)(place / "packed.npz", mask)
    plain, packed = (command("diagnose", name) for name in ("plain.npy", "packed.npz"))
    assert plain.code == 0
    assert packed.out.replace("packed.npz", "plain.npy") == plain.out
    assert np.array_equal(arrays_file.read_npz((place / "packed.npz").read_bytes()), mask)


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
