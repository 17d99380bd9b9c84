"""The kernels' machine code: shipped, kept on disk, or compiled, it is never of other sources."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming import machine_code
from glasshead.engines.streaming.kernels import compiling, processor
from glasshead.engines.streaming.kernels.arguments import ENTRIES, Matrix
from glasshead.engines.streaming.kernels.compiling import compiled
from glasshead.engines.streaming.kernels.processor import SHIPPED, at_hand
from scripts import ROOT

REAL = np.dtype(np.float32)
BUILD = ROOT / "glasshead/engines/streaming/build.py"


def code_of(entry, real=REAL):
    """The machine code that this machine runs, from wherever it has it."""
    machine_code.kernel(entry, real)
    found = machine_code.shipped(entry, real, at_hand()) or machine_code._cached(entry, real)
    if found is None:
        pytest.skip("nothing can be written on this machine")
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package's folder of machine code, with that of `pack`."""
    # Looked for first, as a kernel that this process has loaded is in no cache.
    code = code_of("pack")
    monkeypatch.setattr(machine_code, "SHIPPED_FOLDER", tmp_path)
    machine_code.save(tmp_path, "pack", REAL, at_hand(), code)
    return tmp_path


def file_of(folder, entry="pack"):
    return folder / machine_code.file_name(entry, REAL, at_hand())


def test_what_was_saved_is_what_is_shipped(folder):
    assert machine_code.shipped("pack", REAL, at_hand()) == code_of("pack")
    assert machine_code.shipped("pack", np.dtype(np.float64), at_hand()) is None
    other = next(one for one in SHIPPED if one != at_hand())
    assert machine_code.shipped("pack", REAL, other) is None


@pytest.mark.parametrize("place", [0, 31, 32, 100, -1])
def test_a_damaged_file_is_not_loaded(folder, place):
    file = file_of(folder)
    whole = bytearray(file.read_bytes())
    whole[place] ^= 1
    file.write_bytes(whole)
    assert machine_code.shipped("pack", REAL, at_hand()) is None


@pytest.mark.parametrize("length", [0, 7, 32, 1000])
def test_a_file_that_was_cut_is_not_loaded(folder, length):
    file = file_of(folder)
    file.write_bytes(file.read_bytes()[:length])
    assert machine_code.shipped("pack", REAL, at_hand()) is None


def test_machine_code_of_other_sources_is_not_loaded(folder, monkeypatch):
    monkeypatch.setattr(machine_code, "_sources", lambda: b"of another version")
    assert machine_code.shipped("pack", REAL, at_hand()) is None
    monkeypatch.setattr(machine_code, "_sources", lambda: None)
    assert machine_code.shipped("pack", REAL, at_hand()) is None


def test_machine_code_for_a_processor_with_other_features_is_not_loaded(folder):
    same_name = at_hand()._replace(features="+amx-bf16")
    assert machine_code.shipped("pack", REAL, same_name) is None


def test_a_file_of_another_kernel_is_not_loaded(folder):
    file_of(folder, "forward_blocks").write_bytes(file_of(folder).read_bytes())
    assert machine_code.shipped("forward_blocks", REAL, at_hand()) is None


def test_what_is_nowhere_is_compiled(folder, monkeypatch):
    compile_, compiled = machine_code._compile, []
    file_of(folder).write_bytes(b"damaged")
    monkeypatch.setattr(machine_code, "_loaded", {})
    monkeypatch.setattr(machine_code, "_cached", lambda *_: None)
    monkeypatch.setattr(machine_code, "_compile", lambda *of: compiled.append(of) or compile_(*of))
    packed = np.zeros(64 * 3, REAL)
    numbers = np.arange(15, dtype=REAL)
    for _ in range(2):
        machine_code.kernel("pack", REAL)(Matrix(numbers, 3, 3), 5, 8, packed)
    assert compiled == [("pack", REAL)]
    # Five vectors of three numbers in a panel of eight, transposed, the rest 0.
    expected = np.zeros((3, 8), REAL)
    expected[:, :5] = numbers.reshape(5, 3).T
    assert np.array_equal(packed[:24], expected.reshape(-1))


# Another process.
def test_the_cache_keeps_a_few_states_of_a_kernel_and_every_other_file(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(compiling, "compiled", lambda *_: b"code")
    others = {"foreign.o", machine_code.file_name("widen", REAL, at_hand())}
    for name in others:
        (tmp_path / name).touch()
    for state in range(11):
        monkeypatch.setattr(machine_code, "_own_key", lambda *_, state=state: b"%d" % state)
        machine_code._compile("pack", REAL)
        assert machine_code._cached("pack", REAL) == b"code"
    found = {file.name for file in tmp_path.iterdir()}
    assert others < found
    assert len(found - others) == 8


@pytest.mark.slow
def test_an_installation_with_machine_code_runs_it_without_numba(tmp_path):
    """A fresh process with a folder of machine code has the bits of this one, and no Numba."""
    for entry in ENTRIES:
        machine_code.save(tmp_path, entry, REAL, at_hand(), code_of(entry))
    program = f"""
import json, sys
from pathlib import Path
import torch
import glasshead as gh
from glasshead.engines.streaming import machine_code
machine_code.SHIPPED_FOLDER = Path({str(tmp_path)!r})
{SOME}
print(json.dumps([some(), machine_code.in_package(), "numba" in sys.modules]))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "nothing")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    bits, shipped, numba = json.loads(done.stdout)
    assert done.stderr == ""
    assert shipped
    assert not numba
    names = {"torch": torch, "gh": gh}
    exec(SOME, names)
    assert bits == names["some"]()


SOME = """
def some():
    torch.set_num_threads(2)
    x = torch.linspace(-1, 1, 3 * 4 * 131 * 17).sin().view(3, 1, 4, 131, 17).requires_grad_()
    attention = gh.Attention(mask=gh.causal(), softcap=5.0, engine="streaming")
    seen = attention.observe(*x, [gh.Entropy(), gh.Received(), gh.TopK(3)])
    (gradient,) = torch.autograd.grad(seen.context.square().sum(), x)
    found = seen.context, seen.entropy, seen.received, seen.top_k.weights, gradient
    return [one.detach().double().flatten().tolist() for one in found]
"""


# Another process each, with Numba.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "machine"), [("aarch64", 183), ("x86_64-avx2", 62), ("x86_64-avx512bf16", 62)]
)
def test_code_for_another_processor_is_compiled_here(tmp_path, name, machine):
    program = f"""
import runpy
from pathlib import Path
build = runpy.run_path({str(BUILD)!r})
build["build_for"](Path({str(tmp_path)!r}), {name!r}, "pack")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    wanted = next(one for one in SHIPPED if one.name == name)
    code = machine_code.shipped("pack", REAL, wanted, tmp_path)
    assert code is not None
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == machine
    # Nothing of Numba's is called.
    for foreign in (b"NRT_", b"numba_", b"Py"):
        assert foreign not in code


# Another process: Numba compiles for the processor that the kernels were imported for.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_code_for_matrix_tiles_is_compiled_on_any_processor(tmp_path):
    program = f"""
import runpy
from pathlib import Path
import numpy as np
from llvmlite import binding
build = runpy.run_path({str(BUILD)!r})
build["_skip_packages"]()
from glasshead.engines.streaming.kernels import processor
tiled = next(one for one in processor.SHIPPED if one.matrix_tiles)
processor.at_hand = lambda: tiled
from glasshead.engines.streaming.kernels.compiling import compiled
emit = binding.TargetMachine.emit_object
for entry in ("forward_blocks", "backward_blocks"):
    file = Path({str(tmp_path)!r}, entry)
    def emit_both(machine, module):
        file.with_suffix(".s").write_text(machine.emit_assembly(module))
        return emit(machine, module)
    binding.TargetMachine.emit_object = emit_both
    file.with_suffix(".o").write_bytes(compiled(entry, np.dtype(np.float32), tiled))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    for entry in ("forward_blocks", "backward_blocks"):
        instructions = (tmp_path / f"{entry}.s").read_text().split()
        # Tiles are opened and released once in a call.
        assert [instructions.count(one) for one in ("ldtilecfg", "tilerelease")] == [1, 1]
        for one in ("tileloadd", "tdpbf16ps", "tilestored"):
            assert one in instructions
        assert (tmp_path / f"{entry}.o").read_bytes()[:4] == b"\x7fELF"


def test_a_processor_that_nobody_knows_has_a_kind_of_its_own(monkeypatch):
    monkeypatch.setattr(processor, "SHIPPED", ())
    own = processor.at_hand.__wrapped__()
    assert own.name.startswith("own-")
    assert own.tile == at_hand().tile
    assert own.half_products == at_hand().half_products


@pytest.mark.parametrize(
    ("lacking", "name"),
    [
        ("", "x86_64-avx512bf16"),
        ("avx512bf16", "x86_64-avx512"),
        ("avx512f", "x86_64-avx2"),
    ],
)
def test_a_processor_runs_the_best_of_what_it_has_the_features_for(monkeypatch, lacking, name):
    features = dict.fromkeys(SHIPPED[0].needs, True) | {lacking: False}
    monkeypatch.setattr(processor.binding, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    assert processor.at_hand.__wrapped__().name == name


def test_kernels_of_another_processor_are_not_compiled_from_those_of_this_one():
    other = at_hand()._replace(half_products=not at_hand().half_products)
    with pytest.raises(ValueError, match="compiled in a process for it"):
        compiled("pack", REAL, other)


@pytest.mark.parametrize(
    "numbers",
    [
        np.zeros(12, np.float64),
        np.zeros((3, 4), np.float32),
        np.zeros(24, np.float32)[::2],
    ],
)
def test_arguments_of_another_layout_are_refused(numbers):
    pack = machine_code.Packer("pack", REAL)
    fits = np.zeros(12, np.float32)
    assert len(pack((Matrix(fits, 3, 3), 4, 8, fits))) == 8 * (2 + 2 + 2 + 2)
    with pytest.raises(TypeError, match="pack needs contiguous arrays of float32 and 1 axes"):
        pack((Matrix(fits, 3, 3), 4, 8, numbers))


def test_every_kernel_has_a_packer_of_both_dtypes():
    for entry in ENTRIES:
        for real in (np.float32, np.float64):
            assert machine_code.Packer(entry, np.dtype(real))
