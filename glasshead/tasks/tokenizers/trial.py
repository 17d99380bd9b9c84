"""Trials of texts in a process of its own, as nothing stops a regular expression in this one.

Most tokenizers need no trial, as their rules take time in proportion to the text. The others try
each text in a child process whose time and memory are limited, before it is encoded here. The child
has the rules without the vocabulary, so that it starts at once.
"""

import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Inner

from glasshead.tasks.tokenizers.bounds import EMPTY, LINEAR, patterns, rules_of

_CHILD = Path(__file__).with_name("trial_process.py")
# The seconds of a trial, the letters of a text for each further one, and the bytes of memory.
_SECONDS, _RATE, _MEMORY = 10.0, 50_000, 2**32


class Trial:
    """A child process that tries texts with the rules of a tokenizer; it starts at the first one.

    Args:
        rules: A tokenizer.json without its vocabulary.
        where: The tokenizer's file, for errors.
    """

    def __init__(self, rules: str, where: str) -> None:
        self._request = json.dumps([rules, _MEMORY])
        self._where, self._lock = where, threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._owner = os.getpid()

    def check(self, texts: Iterable[str]) -> None:
        """Try to encode texts.

        Errors: a ValueError for one that takes too much time or memory.
        """
        with self._lock:
            for text in texts:
                self._try(text)

    def _try(self, text: str) -> None:
        seconds = _SECONDS + len(text) / _RATE
        child, answer, begun = self._started(), "", time.monotonic()
        killer = threading.Timer(seconds, child.kill)
        killer.start()
        try:
            # The child may have ended before.
            with suppress(OSError):
                child.stdin.write(json.dumps([text, seconds]) + "\n")  # type: ignore[union-attr]
                child.stdin.flush()  # type: ignore[union-attr]
                answer = child.stdout.readline()  # type: ignore[union-attr]
        finally:
            killer.cancel()
            if not answer:
                _end(child, self._owner)
                self._child = None
        if not answer:
            late = time.monotonic() - begun >= seconds
            much = f"{seconds:.0f} s" if late else f"{_MEMORY / 2**30:g} GB of memory"
            raise ValueError(
                f"{self._where} has a tokenizer that takes more than {much} for {len(text):,} "
                "characters. Use one whose regular expressions are simpler, or another text."
            )

    def _started(self) -> subprocess.Popen[str]:
        """Return the child; a forked process starts one of its own."""
        if self._child is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._child = child = subprocess.Popen(  # noqa: S603 - a file of this folder
                # Without -P, Python would take the modules beside the file for its own.
                [sys.executable, "-P", str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the parent, which ends the child.
                start_new_session=True,
                env=os.environ | {"TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"},
                encoding="ascii",
            )
            weakref.finalize(self, _end, child, self._owner)
            with suppress(OSError):
                child.stdin.write(self._request + "\n")  # type: ignore[union-attr]
        return self._child


def trial_of(inner: Inner, where: str) -> Trial | None:
    """Return the trial of a tokenizer, as of `trial_of_rules`."""
    names = "content", "single_word", "lstrip", "rstrip", "normalized", "special"
    added = [
        {"id": number, **{name: getattr(token, name) for name in names}}
        for number, token in inner.get_added_tokens_decoder().items()
    ]
    return trial_of_rules(rules_of(inner), added, where)


def trial_of_rules(rules: dict[str, Any], added: Any, where: str) -> Trial | None:
    """Return the trial of a tokenizer, or None if it takes time in proportion to the text.

    Args:
        rules: From `rules_of`.
        added: Its added tokens, as in a tokenizer.json.
        where: Its file, for errors.
    """
    if LINEAR.issuperset(patterns(rules)):
        return None
    return _trial(json.dumps(EMPTY | rules | {"added_tokens": added}, sort_keys=True), where)


# One for the file and for the tokenizer that is made of it.
_trial = lru_cache(maxsize=4)(Trial)


def _end(child: subprocess.Popen[str], owner: int) -> None:
    if owner != os.getpid():
        return
    child.kill()
    for stream in (child.stdin, child.stdout):
        with suppress(OSError):
            if stream is not None:
                stream.close()
    child.wait()
