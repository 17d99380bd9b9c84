"""Processes that need not import anything: each is a fork of a server that has imported everything.

To import PyTorch, transformers and Lightning takes longer than what most tests do in a process. A
fork has arguments, environment, folder, pipes and an exit code of its own, and hears signals, as
`subprocess.Popen` starts it. All forks of a server have its hash seed. On other systems than Linux
a process is a new one.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

# The libraries, as far as they are installed, none of which starts a thread.
LIBRARIES = (
    "torch",
    "torch._dynamo",
    "torch.distributed.tensor.parallel",
    "jaxtyping",
    "numba",
    "pandas",
    "pydantic.dataclasses",
    "rich.progress",
    "typer",
    "fastapi",
    "uvicorn",
    "networkx",
    "lightning.fabric",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "sacrebleu",
    "tokenizers",
    "torchmetrics",
    "transformers.models.llama.modeling_llama",
    "ipykernel.kernelapp",
)
GLASSHEAD = (
    "glasshead.cli.app",
    "glasshead.cli.observe_model",
    "glasshead.cli.train",
    "glasshead.tasks.training.loop",
)
# Digits of a number in the pipe that reports a process.
_WIDTH = 20


class NewProcess(subprocess.Popen):
    """`python arguments...`, with pipes for its output; the arguments begin with -m, -c or a file.

    Args:
        arguments: What stands after `python`.
        fresh: Whether glasshead is not imported yet, and the libraries alone are.
        libraries: A folder with all libraries that it has, but those that PYTHONPATH adds.
        options: Those of `subprocess.Popen`, of which `cwd`, `env`, `stdin`, `text`, `bufsize` and
            `process_group=0` count.
    """

    def __init__(self, *arguments, fresh=False, libraries=None, text=True, **options):
        self._fresh, self._libraries = fresh, libraries
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*_python(libraries), *map(str, arguments)]
        environment = {**(options.pop("env", None) or os.environ)}
        if libraries is not None:
            paths = (str(libraries), environment.get("PYTHONPATH", ""))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        super().__init__(command, text=text, env=environment, **pipes, **options)

    def ended(self, timeout=120):
        """Wait for its end, and give its exit code and what it printed."""
        with self:
            try:
                told = self.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return subprocess.CompletedProcess(self.args, self.returncode, *told)


class Process(NewProcess):
    """The same, as a fork."""

    if sys.platform == "linux":

        def _execute_child(self, args, _executable, _preexec, _close, _pass, cwd, env, *more):
            # Startup information, creation flags and shell; then the two ends of each pipe.
            read, write, out_read, out_write, err_read, err_write = more[3:9]
            arguments = args[len(_python(self._libraries)) :]
            asked = {"arguments": arguments, "cwd": str(Path(cwd or ".").absolute())}
            asked |= {"environment": env, "leads": more[15] == 0}
            request = os.memfd_create("request")
            os.write(request, json.dumps(asked).encode())
            self._status, status = os.pipe()
            given = (request, status, 0 if read == -1 else read, out_write, err_write)
            socket.send_fds(_servers(self._libraries)[self._fresh], [b"."], given)
            os.close(request)
            os.close(status)
            self.pid = int(os.read(self._status, _WIDTH))
            self._child_created = True
            self._close_pipe_fds(read, write, out_read, out_write, err_read, err_write)

        def _try_wait(self, wait_flags):
            if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
                return 0, 0
            status = int(os.read(self._status, _WIDTH))
            os.close(self._status)
            return self.pid, status

        def _internal_poll(self, *_, **__):
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            return self.returncode


def ranks(count, *arguments, cwd=None, stdin=None, **variables):
    """Start processes that are ranks of each other, as a launcher does; each has its own pipes."""
    port = free_port()
    return [
        Process(
            *arguments,
            cwd=cwd,
            stdin=stdin,
            env=os.environ | variables | launched(rank, count, port),
        )
        for rank in range(count)
    ]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def launched(rank, count, port):
    """The variables by which a launcher tells a process which one it is."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
    told |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": 1}
    return {name: str(value) for name, value in told.items()}


def _python(libraries):
    return [sys.executable] if libraries is None else [sys.executable, "-S"]


@cache
def _servers(libraries):
    """The sockets of a server with glasshead and of one without; it ends when its own is closed."""
    ours, theirs = zip(socket.socketpair(), socket.socketpair(), strict=True)
    # A library that starts threads when it is imported could not be forked.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if libraries is not None:
        environment["PYTHONPATH"] = str(libraries)
    server = subprocess.Popen(
        [*_python(libraries), __file__, *(str(one.fileno()) for one in theirs)],
        pass_fds=[one.fileno() for one in theirs],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    atexit.register(server.wait)
    for own, other in zip(ours, theirs, strict=True):
        other.close()
        atexit.register(own.close)
    return ours


def _import(names):
    for name in names:
        with suppress(ImportError):
            importlib.import_module(name)


def _serve(asking, fresh):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import(LIBRARIES)
    if os.fork():
        asking = fresh
    else:
        _import(GLASSHEAD)
    # A fork that looked for garbage in what is imported would copy all of it.
    gc.freeze()
    # Nobody waits for those who wait for a process.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, given, _, _ = socket.recv_fds(asking, 1, 5)
        if not message:
            return
        if not os.fork():
            asking.close()
            _fork(*given)
        for one in given:
            os.close(one)


def _fork(request, status, *pipes):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    leads = asked.pop("leads")
    child = os.fork()
    if leads and child:
        os.setpgid(child, child)
    if not child:
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
        for one in (request, status, *pipes):
            os.close(one)
        _run(**asked)
    for pipe in pipes:
        os.close(pipe)
    os.write(status, _told(child))
    os.write(status, _told(os.waitpid(child, 0)[1]))
    os._exit(0)


def _told(number):
    return str(number).rjust(_WIDTH).encode()


def _run(arguments, cwd, environment):
    """Be the process, up to its end; what it has imported is not cleared, which takes long."""
    import torch

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", cores)))
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    # The folder of this file, which comes first, is not that of the program.
    sys.path[1:1] = [path for path in paths if path and path not in sys.path[1:]]
    code = 0
    try:
        _run_program(*arguments)
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)  # noqa: T201
            code = 1
    except BaseException as error:  # noqa: BLE001 - it is printed, as Python does
        traceback.print_exc()
        code = 1
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _run_program(first, *others):
    sys.argv = [first, *others]
    if first == "-m":
        sys.path[0], sys.argv = os.getcwd(), [*others]  # noqa: PTH109
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path[0], sys.argv = "", [first, *others[1:]]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(others[0], vars(main))
    else:
        sys.path[0] = str(Path(first).parent.absolute())
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
