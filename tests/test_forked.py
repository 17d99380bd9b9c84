"""A fork of the server is to its test what a new process is."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

import forked
import systems

pytestmark = pytest.mark.slow

PROGRAMS = {
    "arguments": "import sys; print(sys.argv, __name__)",
    "input": "print(input()[::-1])",
    "place": "import os, sys; print(os.getcwd(), os.environ['HERE'], 'HOME' in os.environ)",
    "code": "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)",
    "a sentence as code": "import sys; sys.exit('what is wrong')",
    "error": "1 / 0",
    "interruption": "raise KeyboardInterrupt",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "left": "import os; os._exit(3)",
    "no stray descriptors": "import os; print(sorted(os.listdir('/proc/self/fd'))[:3])",
}


def told(start, program, folder):
    environment = {"HERE": "here", "PATH": os.environ["PATH"]}
    process = start(
        *("-c", program, "one", "two"), cwd=folder, env=environment, stdin=subprocess.PIPE
    )
    with process:
        out, err = process.communicate("abc\n", timeout=60)
    return process.returncode, out, err.splitlines()[-1:]


@systems.signals
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_does_what_a_new_process_does(program, tmp_path):
    forks, new = (
        told(start, PROGRAMS[program], tmp_path) for start in (forked.Process, forked.NewProcess)
    )
    assert forks == new


def test_files_and_modules_are_run_as_python_runs_them(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    (tmp_path / "run.py").write_text("import sys; from beside import NAME; print(NAME, sys.argv)")
    for program in (("run.py", "x"), ("-m", "run", "x")):
        forks, new = (
            start(*program, cwd=tmp_path).ended() for start in (forked.Process, forked.NewProcess)
        )
        assert (forks.returncode, forks.stdout) == (0, new.stdout), forks.stderr


@systems.signals
def test_it_hears_signals_while_it_runs():
    code = "print('here', flush=True); import time; time.sleep(3600)"
    for number, code_of_end in ((signal.SIGTERM, -15), (signal.SIGKILL, -9), (signal.SIGINT, -2)):
        with forked.Process("-c", code) as process:
            assert process.stdout.readline() == "here\n"
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(timeout=60) == code_of_end


@systems.signals
def test_it_leads_a_group_if_asked():
    code = "print('here', flush=True); import time; time.sleep(3600)"
    with forked.Process("-c", code, process_group=0) as process:
        assert process.stdout.readline() == "here\n"
        assert os.getpgid(process.pid) == process.pid
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.parametrize(("place", "code"), [(Path(forked.__file__).parent, 0), ("", 1)])
def test_it_finds_what_lies_next_to_the_server_if_told(place, code):
    environment = {**os.environ, "PYTHONPATH": str(place)}
    for start in (forked.Process, forked.NewProcess):
        assert start("-c", "import scripts", env=environment).ended().returncode == code


def test_ranks_have_outputs_of_their_own():
    code = "import os; print(*(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'MORE')))"
    ended = [rank.ended() for rank in forked.ranks(3, "-c", code, MORE="more")]
    assert [rank.stdout for rank in ended] == ["0 3 more\n", "1 3 more\n", "2 3 more\n"]
