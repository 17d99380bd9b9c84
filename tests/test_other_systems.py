"""Systems that are not at hand: what Windows lacks, keeps or spells otherwise, and Apple's GPUs."""

import ntpath
import os
import platform
import socket
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import forked
from glasshead import files
from glasshead.cli import output
from glasshead.cli.inputs.files import output_file
from glasshead.drawing.printable import as_command
from glasshead.engines.streaming import machine_code
from glasshead.engines.streaming.kernels import processor
from glasshead.recipe.validation import in_float64
from glasshead.studio.app import listening_on
from scripts import ROOT

# Libraries are imported before, as they ask which system there is, and not what it has.
WITHOUT_POSIX = """
import importlib, os, pkgutil, signal, sys

for name in (
    "fastapi lightning.fabric matplotlib.figure networkx numba numpy pandas pydantic rich.progress "
    "sacrebleu tokenizers torch torch._dynamo torch.distributed.tensor torchmetrics transformers "
    "typer uvicorn"
).split():
    importlib.import_module(name)
for name in ("fcntl", "pty", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "fork register_at_fork set_blocking memfd_create mkfifo geteuid getuid uname getloadavg "
        "sched_getaffinity killpg wait O_NONBLOCK O_NOFOLLOW O_CLOEXEC",
    signal: "SIGHUP SIGKILL SIGALRM SIGUSR1 alarm pthread_kill setitimer",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
count = 0
for module in pkgutil.walk_packages(["glasshead"], "glasshead."):
    if ".triton." not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
assert count > 200

from pathlib import Path
from glasshead.cli import main
from glasshead.tasks.run_folder import RunFolder

folder = Path(sys.argv[1])
(folder / "v.csv").write_text("sun,1,2\\nmoon,3,4\\n", encoding="utf-8")
assert main(["explain", "--vectors", str(folder / "v.csv"), "--html", str(folder / "p.html")]) == 0
run = RunFolder(folder / "run")
with run.locked():
    run.create()
    run.write_config({"d_model": 7})
assert run.read_config() == {"d_model": 7}
"""


@pytest.mark.slow
def test_every_module_does_without_what_windows_lacks(tmp_path):
    done = forked.Process("-c", WITHOUT_POSIX, tmp_path, fresh=True, cwd=ROOT).ended()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.html").stat().st_size > 1000


def test_a_file_is_read_where_none_can_be_asked_to_block(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_AT_ONCE", 0)
    monkeypatch.setattr(os, "set_blocking", lambda *_: pytest.fail("Windows refuses it for files"))
    (tmp_path / "words").write_bytes(b"Hello\r\n\x1ashiny sun!")
    assert files.read_regular(tmp_path / "words") == b"Hello\r\n\x1ashiny sun!"


@pytest.mark.parametrize(("system", "read", "replaced"), [("win32", 3, True), ("linux", 1, False)])
def test_a_file_that_is_read_meanwhile_is_waited_for_where_the_system_keeps_it(
    tmp_path, monkeypatch, system, read, replaced
):
    left, replace = iter(range(read)), Path.replace

    def kept(path, target):
        if next(left, None) is not None:
            raise PermissionError(13, "Permission denied")
        return replace(path, target)

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(files, "_PAUSES", (0.0,) * 3)
    monkeypatch.setattr(Path, "replace", kept)
    (tmp_path / "log.csv").write_text("old")
    try:
        with files.whole_file(tmp_path / "log.csv") as beside:
            beside.write_text("new")
    except PermissionError:
        assert not replaced
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]
    assert (tmp_path / "log.csv").read_text() == ("new" if replaced else "old")


def test_a_file_that_stays_open_is_told(tmp_path, monkeypatch):
    def kept(path, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(files, "_PAUSES", (0.0,) * 3)
    monkeypatch.setattr(Path, "replace", kept)
    with (
        pytest.raises(PermissionError),
        files.whole_file(tmp_path / "log.csv") as beside,
    ):
        beside.write_text("new")
    assert list(tmp_path.iterdir()) == []


def test_commands_are_quoted_as_the_shells_of_windows_read_them(monkeypatch):
    words = ["glasshead", "translate", r"demo\translator", "Guten Morgen"]
    monkeypatch.setattr(sys, "platform", "win32")
    assert as_command(words) == r'glasshead translate demo\translator "Guten Morgen"'


def test_a_name_with_the_systems_own_separator_at_its_end_is_a_folder(monkeypatch):
    assert output_file("new\\", "--html") == Path("new\\")
    monkeypatch.setattr(os, "sep", "\\")
    for name in ("new\\", "new/"):
        with pytest.raises(ValueError, match=r"got the folder .*\. Name a file in it"):
            output_file(name, "--html")


def test_capitals_make_no_other_file_where_the_system_reads_them_as_small(tmp_path, monkeypatch):
    both = [(output.PAGE, tmp_path / "a.html"), (output.PAGE, tmp_path / "A.html")]
    output.check_outputs(both, [])
    monkeypatch.setattr(output, "normcase", ntpath.normcase)
    with pytest.raises(ValueError, match="must name different files, got"):
        output.check_outputs(both, [])


@pytest.mark.parametrize(("system", "reused"), [("win32", False), ("linux", True)])
def test_a_port_is_shared_with_no_other_program(monkeypatch, system, reused):
    monkeypatch.setattr(sys, "platform", system)
    with listening_on("127.0.0.1", 0) as listening:
        assert bool(listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) is reused


@pytest.mark.parametrize(
    ("system", "machine", "features", "tile"),
    [
        ("darwin", "arm64", {}, processor._ARM_TILE),
        ("win32", "ARM64", {}, processor._ARM_TILE),
        ("win32", "AMD64", {"avx": True, "avx2": True}, processor._AVX_TILE),
    ],
)
def test_another_system_compiles_code_of_its_own(monkeypatch, system, machine, features, tile):
    class Features(dict):
        def flatten(self):
            return ",".join(f"+{name}" for name in self)

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor.binding, "get_host_cpu_features", lambda: Features(features))
    found = processor.at_hand.__wrapped__()
    assert found not in processor.SHIPPED
    assert (found.triple, found.tile) == ("", tile)


def test_code_is_kept_where_a_file_can_be_made_whatever_the_system_says(tmp_path, monkeypatch):
    touch = Path.touch

    def touched(path, *arguments, **named):
        if path.is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied")
        touch(path, *arguments, **named)

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(Path, "touch", touched)
    kernels = tmp_path.parent / f"{tmp_path.name} kernels"
    monkeypatch.setattr(machine_code, "_KERNELS", kernels)
    assert machine_code._cache_folder.__wrapped__() == kernels / "__pycache__"
    assert list((kernels / "__pycache__").iterdir()) == []


def test_float64_is_computed_on_the_cpu_where_a_gpu_has_none():
    with FakeTensorMode():
        for device, found in (("mps", "cpu"), ("cuda", "cuda"), ("cpu", "cpu")):
            number = in_float64(torch.empty(2, 3, device=device))
            assert (number.device.type, number.dtype) == (found, torch.float64)
