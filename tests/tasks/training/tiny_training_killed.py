"""Runs that are killed at many moments and resumed; one process, which forks, for all of them.

It is called with a folder, and prints how many runs were killed. Importing Lightning takes longer
than all the runs.
"""

import os
import signal
import sys
import traceback
from pathlib import Path

import lightning.fabric
import torch
from tiny_training import Sequences, Tiny, everything, run

from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import logs


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def at_move(number, after):
    """Kill at that file that is moved to its place, before or after it is."""
    moves, replace = [], Path.replace

    def counted(self, target):
        moves.append(target)
        if len(moves) == number and not after:
            kill()
        result = replace(self, target)
        if len(moves) == number and after:
            kill()
        return result

    Path.replace = counted


def amid_saving(number):
    """Kill when half of that file of tensors is written."""
    saved, save_file = [], files.save_file

    def half(tensors, place, metadata):
        saved.append(place)
        save_file(tensors, place, metadata=metadata)
        if len(saved) == number:
            os.truncate(place, place.stat().st_size // 2)
            kill()

    files.save_file = half


def amid_row(number):
    """Kill when half of that row of the log is written."""
    appended, append = [], RunFolder.append

    def half(self, file, text):
        appended.append(text)
        if len(appended) == number:
            append(self, file, text[: len(text) // 2])
            kill()
        append(self, file, text)

    RunFolder.append = half


def amid_loss(number):
    """Kill in the midst of that step or validation."""
    losses, loss = [], Tiny.loss

    def last(self, batch):
        losses.append(batch)
        if len(losses) == number:
            kill()
        return loss(self, batch)

    Tiny.loss = last


def forked(work):
    """How a child ended that did the work: 0, or less what signal."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a fork is to end here, whatever comes
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(path, moment, arguments, resume):
    def work():
        moment(*arguments)
        run(path, resume=resume)

    return forked(work) == -signal.SIGKILL


def main(base):
    torch.set_num_threads(1)
    # To draw one takes longer than the steps.
    logs.drawn = lambda rows: b"a picture"
    assert forked(lambda: run(base / "whole")) == 0
    expected = everything(RunFolder(base / "whole"))
    moments = [
        *((at_move, (number, after)) for number in (1, 2, 3, 5, 6, 7, 10, 13) for after in (0, 1)),
        *((amid_saving, (number,)) for number in (1, 2, 3, 7)),
        *((amid_row, (number,)) for number in (1, 4, 6)),
        *((amid_loss, (number,)) for number in (1, 2, 5, 8, 12, 18)),
    ]
    for place, (moment, arguments) in enumerate(moments):
        path = base / f"killed{place}"
        assert killed(path, moment, arguments, resume=False), (moment, arguments)
        # Now and then it is killed again.
        if place % 3 == 0:
            assert killed(path, amid_loss, (3,), resume=True), (moment, arguments)
        assert forked(lambda path=path: run(path, resume=True)) == 0, (moment, arguments)
        assert everything(RunFolder(path)) == expected, (moment, arguments)
        assert not list(path.rglob("*.tmp"))
    sys.stdout.write(f"{len(moments)}\n")


if __name__ == "__main__":
    assert Sequences
    assert lightning.fabric
    main(Path(sys.argv[1]))
