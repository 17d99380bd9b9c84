"""The program as a process with which one talks line by line, and the notes that it writes."""

import os
import re
import select
import signal
import subprocess
from contextlib import contextmanager

import forked

# Only whoever would wait forever waits as long.
_PATIENCE = 45


class Talk:
    def __init__(self, process):
        self._process = process

    def write(self, content):
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def answer(self, text):
        """What is answered to a line while the next one is not written; nothing if nothing is."""
        self.write(f"{text}\n".encode())
        told, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        return self._process.stdout.readline().decode() if told else ""

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)

    def end(self):
        self._process.stdin.close()

    def left(self):
        """Exit code, output and errors of a process that ends, its input closed or not."""
        code = self._process.wait(timeout=_PATIENCE)
        return code, self._process.stdout.read().decode(), self._process.stderr.read().decode()


@contextmanager
def talking(*arguments, start=forked.Process):
    # Python's own buffers are part of what is tested.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    # A child gets its parent's deafness to Ctrl-C, as of one started in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start(
        *("-m", "glasshead", *arguments),
        env=environment,
        text=False,
        bufsize=0,
        stdin=subprocess.PIPE,
    )
    signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield Talk(process)
        finally:
            process.kill()


def noted(errors):
    """The words that notes on standard error call unknown, in order; nothing else stands there."""
    note = (
        r"unknown words?: (.+)\. The model has no tokens? for (?:it|them), so it reads all unknown "
        "words alike.\n"
    )
    counted = r"\d+ of \d+ words are unknown to this model: .+\n"
    assert not re.sub(f"{note}|{counted}", "", errors)
    return [word for words in re.findall(note, errors) for word in re.findall("'(.+?)'", words)]
