"""Texts: those that were sent to be read, remembered by what they are."""

import hashlib
import threading
from collections import OrderedDict

from glasshead.studio.limits import Limits
from glasshead.studio.refusals import Forgotten, Refusal, TooMuch


class Texts:
    """Texts by name; the same text has the same name in every studio.

    >>> texts = Texts(Limits())
    >>> name = texts.add("Once upon a time")
    >>> texts[name]
    'Once upon a time'
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, text: str) -> str:
        """Remember a text, and give its name.

        Errors: a `Refusal` where it has no word or is too long.
        """
        # Half a pair of surrogates is no character, and no answer could give it back.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        content = text.encode()
        if not text.strip():
            raise Refusal("a text takes a word at least, and this has none: write or choose one.")
        if len(content) > self._limits.text:
            raise TooMuch(
                f"a text takes at most {self._limits.text:,} bytes, and this has "
                f"{len(content):,}: cut it."
            )
        name = hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._texts[name] = text
            self._texts.move_to_end(name)
            while len(self._texts) > self._limits.texts:
                self._texts.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> str:
        """The text of a name.

        Errors: `Forgotten` where it is not, or no longer, there.
        """
        with self._lock:
            if name not in self._texts:
                raise Forgotten("this text is no longer here: open it again.")
            self._texts.move_to_end(name)
            return self._texts[name]
