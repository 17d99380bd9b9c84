"""The program as a process: start-up, pipes, terminals, encodings, interruptions.

What `glasshead explain` prints and writes: languages, widths, pages, JSON.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import systems
from glasshead.explanation.choices import NORMALIZERS, SCORES
from glasshead.explanation.translations import LANGUAGES
from glasshead.ladder import HELLO_SHINY_SUN

MODULES_OF_HELP = 500


PROGRAM = [sys.executable, "-m", "glasshead"]


def run(*arguments, **variables):
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "80", **variables}
    return subprocess.run([*PROGRAM, *arguments], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--help"], ["--version"], []])
def test_help_imports_little_and_does_without_torch(arguments):
    heavy = {"torch", "numpy", "safetensors", "jaxtyping", "jinja2", "markupsafe", "rich.progress"}
    heavy = f"{heavy | {'glasshead.drawing.document'}} & set(sys.modules)"
    code = (
        f"import sys; from glasshead.cli import main; main({arguments}); "
        f"print(len(sys.modules), file=sys.stderr); sys.exit({heavy} or 0)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "glasshead" in outcome.stdout
    assert int(outcome.stderr) < MODULES_OF_HELP


def test_help_tells_every_option_and_choice(command):
    outcome = command("explain", "--help")
    assert outcome.code == 0
    told = " ".join(outcome.out.replace("│", " ").split())
    options = (
        "vectors query seed dim mask beta score normalizer heads head weights lang html json width"
    )
    for option in re.findall(r"\w+", options):
        assert f"--{option} " in told
    choices = [*SCORES, *NORMALIZERS, *LANGUAGES, "[d_in, d_out]", "#2", "window:3", "auto", "inf"]
    for choice in [*choices, "TEXT", "LC_ALL"]:
        assert choice in told


def test_the_program_and_the_module_are_one():
    assert run("--version").stdout == b"glasshead 0.1.0\n"


def test_a_bad_input_ends_the_process_with_2():
    outcome = run("explain", "--lang", "de")
    assert outcome.returncode == 2
    assert outcome.stdout == b""
    assert outcome.stderr.startswith(b"glasshead: error: --lang must be one of en, tr, es, zh-Hant")
    assert outcome.stderr.count(b"\n") == 1


LOADED = """
import ctypes, sys
from glasshead.cli import main
library = sys.argv.pop()
sys.argv = ["glasshead", "--version"]
main()
ctypes.CDLL(library)
"""


def openmp():
    """The file of the OpenMP that torch has loaded into this process."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return re.search(r"/\S*/libgomp\S*", maps)[0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="another OpenMP tells it otherwise")
@pytest.mark.parametrize(
    ("own", "spins"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
    ],
)
def test_idle_threads_of_openmp_spin_as_long_as_is_asked_before_torch_is_loaded(
    own, spins, monkeypatch
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    # As OpenMP has it, which reads it once, when it is loaded: by torch, or here alone.
    program = [*PROGRAM, "explain"] if not own else [sys.executable, "-c", LOADED, openmp()]
    environment = {"PATH": os.environ["PATH"], "OMP_DISPLAY_ENV": "verbose", **own}
    outcome = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0
    assert f"GOMP_SPINCOUNT = '{spins}'" in outcome.stderr


ASKED = """
import os, sys
from glasshead.cli import main
sys.argv = ["glasshead", "--version"]
main()
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another OpenMP has other settings")
@pytest.mark.parametrize(
    ("own", "asked"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_a_process_asks_idle_threads_to_spin_briefly_unless_it_was_told_otherwise(own, asked):
    outcome = subprocess.run(
        [sys.executable, "-c", ASKED],
        env={"PATH": os.environ["PATH"], **own},
        capture_output=True,
        text=True,
        check=True,
    )
    assert outcome.stdout.splitlines()[-1] == asked


def test_a_call_from_python_leaves_the_environment(command, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delitem(sys.modules, "torch")
    assert command("--version").code == 0
    assert "GOMP_SPINCOUNT" not in os.environ


SHORT_AND_LONG = [["--help"], pytest.param(["explain", "--json"], marks=pytest.mark.slow)]


@pytest.mark.parametrize("arguments", SHORT_AND_LONG)
def test_a_reader_who_has_seen_enough_causes_no_traceback(arguments):
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["explain", "--lang", "de"]])
@pytest.mark.parametrize("closed", [[1], [1, 2], [0, 1, 2]])
@systems.descriptors
def test_a_closed_output_ends_the_program_quietly(arguments, closed):
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: [os.close(descriptor) for descriptor in closed],  # noqa: PLW1509
    )
    assert process.communicate() == (b"", b"")
    assert process.returncode == 1


@systems.descriptors
@pytest.mark.slow
def test_a_file_does_not_take_the_place_of_an_output_that_is_closed(tmp_path):
    file = tmp_path / "told.html"
    process = subprocess.Popen(
        [*PROGRAM, "explain", "--html", str(file)],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.close(2),  # noqa: PLW1509
    )
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", SHORT_AND_LONG)
def test_a_full_disk_is_reported(arguments):
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        outcome = subprocess.run(
            [*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert outcome.returncode == 2
    assert outcome.stderr == (
        b"glasshead: error: the output cannot be written: No space left on device.\n"
    )


@pytest.fixture
def interruptible():
    """A child gets its parent's deafness to Ctrl-C, as of one started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "after",
    [
        "typer",
        "numpy",
        *(
            pytest.param(module, marks=pytest.mark.slow)
            for module in ("torch", "glasshead.attention.attention")
        ),
    ],
)
@systems.signals
def test_an_interruption_causes_no_traceback(after):
    text = " ".join(f"w{place}" for place in range(3000))
    told = [sys.executable, "-X", "importtime", "-m", "glasshead", "explain", text]
    process = subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any(line.rpartition("|")[2].strip() == after for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert all(line.startswith("import time:") for line in err.splitlines())


IN_AN_IMPORT = """
import os, signal, sys

class SwallowsAnInterruption:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass

sys.meta_path.insert(0, SwallowsAnInterruption())
sys.argv = ["glasshead", "explain"]
from glasshead.cli import main
sys.exit(main())
"""


@pytest.mark.usefixtures("interruptible")
@systems.signals
def test_an_interruption_is_not_lost_in_an_import_that_swallows_it():
    outcome = subprocess.run(
        [sys.executable, "-c", IN_AN_IMPORT], capture_output=True, check=False, timeout=30
    )
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, b"", b"")


@pytest.mark.slow
def test_a_poor_encoding_costs_a_process_no_error():
    outcome = run("explain", "güneş 太陽", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (outcome.returncode, outcome.stderr) == (0, b"")
    text = outcome.stdout.decode("ascii")
    assert text.startswith("Self-attention, step by step: ???")
    assert "g?ne?" in text


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-9", "utf-8"])
def test_a_poor_encoding_loses_characters_and_nothing_else(command, monkeypatch, encoding):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    outcome = command("explain", "güneş 太陽")
    assert (outcome.code, outcome.err) == (0, "")
    text = written.getvalue().decode(encoding)
    assert ("güneş" in text) is (encoding != "ascii")
    assert ("太" in text) is (encoding == "utf-8")
    assert ("━━━" in text) is (encoding == "utf-8")


def in_terminal(*arguments, **variables):
    """What the program writes to a terminal of 100 columns and 256 colours."""
    import pty

    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(
        [*PROGRAM, *arguments], env=environment | variables, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 2**16)
        except OSError:  # a terminal whose programs have ended
            break
        if not part:
            break
        written += part
    os.close(ours)
    return process.wait(), written.decode()


@systems.terminal
@pytest.mark.slow
def test_a_terminal_has_colours_unless_they_are_unwanted():
    code, coloured = in_terminal("explain", "a b")
    assert code == 0
    assert "\x1b[38;5;" in coloured or "\x1b[48;5;" in coloured
    code, plain = in_terminal("explain", "a b", NO_COLOR="1")
    assert code == 0
    assert "\x1b[38;5;" not in plain
    assert "\x1b[48;5;" not in plain


TEXT = "the shiny sun and the moon!"


TOKENS = ["the", "shiny", "sun", "and", "the", "moon", "!"]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "tr_TR.UTF-8", "LC_MESSAGES": "es_ES"}, "es"),
        ({"LANG": "tr_TR.UTF-8", "LC_MESSAGES": "es_ES", "LC_ALL": "zh_TW.UTF-8"}, "zh-Hant"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh-Hans"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "tr_TR.UTF-8"}, "en"),
    ],
)
def test_the_language_of_the_environment(explained, monkeypatch, variables, language):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert explained()["language"] == language
    assert explained("--lang", "es")["language"] == "es"


@pytest.mark.parametrize("language", ["tr", "es", "zh-Hant", "zh-Hans"])
def test_what_was_made_up_is_said_in_each_language(explained, language):
    english = explained(TEXT, "--score", "additive")["notes"]
    notes = explained(TEXT, "--score", "additive", "--lang", language)["notes"]
    assert len(notes) == 2
    assert all("123" in note for note in notes)
    assert not set(notes) & set(english)


@pytest.mark.parametrize("width", [20, 60, 120])
def test_text_keeps_to_the_width(command, width):
    lines = command("explain", TEXT, "--width", width, "--lang", "zh-Hant").out.splitlines()
    wide = re.compile("[\u2e80-\u9fff\uff00-\uff60\u3000-\u303f]")
    assert max(len(line) + len(wide.findall(line)) for line in lines) <= width
    assert len(lines) > 40


def test_the_page_is_written_and_the_text_still_appears(command, tmp_path):
    page = tmp_path / "new" / "folder" / "page.html"
    outcome = command("explain", "--html", page)
    assert outcome.code == 0
    assert outcome.err == f"The page is at {page}\n"
    assert outcome.out == command("explain").out
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert written.rstrip().endswith("</html>")
    assert list(page.parent.iterdir()) == [page]


def test_a_page_replaces_the_old_one_behind_a_link(command, tmp_path):
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    assert command("explain", "--html", tmp_path / "link.html").code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "old.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_is_alone_on_standard_output(command, tmp_path):
    outcome = command("explain", TEXT, "--json", "--html", tmp_path / "page.html")
    assert json.loads(outcome.out)["tokens"] == TOKENS
    assert outcome.out.count("\n") == 1
    assert outcome.err == f"The page is at {tmp_path / 'page.html'}\n"


def test_numbers_of_json_are_exact(explained):
    told = explained()
    x = torch.tensor(HELLO_SHINY_SUN.embeddings, dtype=torch.float64)
    context = ((x @ x.T).softmax(-1) @ x).tolist()
    assert told["data"]["inputs"]["queries"] == x.tolist()
    torch.testing.assert_close(told["data"]["context"]["context"], context, rtol=1e-15, atol=0)


def test_hidden_pairs_are_null_in_json(explained):
    told = explained("a b", "--mask", "causal")
    assert told["data"]["masked"]["masked"][0][1] is None


def test_a_long_sentence_works(command):
    outcome = command("explain", " ".join(f"word{place}" for place in range(300)))
    assert outcome.code == 0
    assert outcome.out.count("\n") < 1000


def test_hostile_text_cannot_steer_the_terminal(command):
    outcome = command("explain", "a \x1b[31mred\x07 \u202etxt [bold]b[/bold] :smile:")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert "smile" in outcome.out
    refused = command("explain", "a b", "--query", "\x1b[31mx\u202e")
    assert refused.code == 2
    assert "\x1b" not in refused.err
