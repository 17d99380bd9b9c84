"""The process in which a text is tried, with limits of memory and time: started by `trial.py`.

It imports `tokenizers` alone, so that it starts at once.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from tokenizers import Tokenizer


def _serve() -> None:
    """Answer a line for each that is asked; a process that ended answers nothing."""
    rules, memory = json.loads(sys.stdin.readline())
    limit = _limits(memory)
    # What is no tokenizer is reported by the parent.
    tokenizer = None
    with suppress(Exception):
        tokenizer = Tokenizer.from_str(rules)
    for line in sys.stdin:
        text, seconds = json.loads(line)
        limit(seconds)
        if tokenizer is not None:
            _encode(tokenizer, text)
        sys.stdout.write("tried\n")
        sys.stdout.flush()


def _encode(tokenizer: Tokenizer, text: str) -> None:
    # Special tokens in a text are parts of it, or not, as the caller likes.
    for splits in (False, True):
        tokenizer.encode_special_tokens = splits
        # A panic, which is no Exception, comes again in the parent, which reports it.
        with suppress(BaseException):
            tokenizer.encode(text, add_special_tokens=False)


def _limits(memory: int) -> Callable[[float], None]:
    """Limit the memory of this process, and return the function that limits its further time."""
    try:
        import resource
    except ImportError:  # Windows has none; the parent watches the time.
        return lambda _: None

    def limit(kind: int, most: int) -> None:
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))

    limit(resource.RLIMIT_AS, memory)
    # A process whose parent was killed ends, too.
    return lambda seconds: limit(resource.RLIMIT_CPU, int(time.process_time() + seconds) + 2)


if __name__ == "__main__":
    _serve()
