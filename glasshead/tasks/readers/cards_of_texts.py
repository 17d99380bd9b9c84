"""Cards of the heads of a model, summed over texts; what is interrupted can be resumed."""

import hashlib
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glasshead.attention.io import read, understood, write
from glasshead.message import Message
from glasshead.tasks.readers.find_roles import repeated
from glasshead.tasks.readers.observe_texts import fingerprint
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.readers.text_stream import WHOLE, TextStream, as_argument
from glasshead.tasks.readers.texts import load_texts
from glasshead.watching import watch
from glasshead.watching.analytics import HeadCards, head_cards

_PARTIAL, _EVERY = "partial head cards", 10.0
_BUDGET = 2**34
# Besides those around it; of fewer tokens there is nothing to say.
_LEAST = 3
# Of fewer texts, a token that each has once says nothing.
_ALIKE = 3


@dataclass(frozen=True)
class CardTexts:
    """The texts that cards are of.

    Attributes:
        tokens: The tokens of each, with those around it.
        short: The number of texts that were omitted because they are too short.
        separator: The token between two parts of a text; None: there are no two parts.
    """

    tokens: Sequence[Sequence[int]]
    short: int
    separator: int | None

    @property
    def digest(self) -> str:
        """A digest of all tokens."""
        digest = hashlib.sha256()
        for text in self.tokens:
            digest.update(array("q", [len(text), *text]).tobytes())
        return digest.hexdigest()


def texts_for_cards(
    reader: Reader,
    files: Iterable[Path],
    separator: str | None,
    spell: Callable[..., str] = as_argument,
) -> CardTexts:
    """Return the texts of files, or repeated random tokens if there are none.

    A single text is read in chunks, several texts are each read from their beginning. Without a
    separator, it is the only token that each of three texts or more has once, between two parts
    that share a token.

    Errors: a ValueError if the separator is not a token, or no text is long enough; otherwise as of
    `TextStream` and `repeated`.
    """
    mark = None if separator is None else _token(reader, separator, spell)
    files = [*files]
    if not files:
        return CardTexts(repeated(reader, None, 0, spell).tokens.tolist(), 0, mark)
    texts = load_texts(files, reader.field)
    stream = TextStream(reader, texts, WHOLE, truncate=True, spell=spell)
    if stream.counted().of_one_text:
        stream = TextStream(reader, texts, spell=spell)
    batches = stream.batches(stream.new_counts())
    found = [text for batch in batches for text in batch.tolist()]
    least = sum(map(len, reader.around)) + _LEAST
    long = [text for text in found if len(text) >= least]
    if not long:
        raise ValueError(
            Message(
                "a text must have at least {least} tokens, got fewer in every text of {name}. Name "
                "a longer text.",
                least=_LEAST,
                name=stream.name,
            )
        )
    if mark is None and len(long) >= _ALIKE:
        mark = _separator_of(long, {token for side in reader.around for token in side})
    return CardTexts(long, len(found) - len(long), mark)


def _separator_of(texts: Sequence[Sequence[int]], special: set[int]) -> int | None:
    """Return the only token that each text has once, between parts that share a token.

    >>> _separator_of([[3, 1, 9, 1], [4, 9, 4, 5], [5, 6, 9, 6]], set())
    9
    """
    found: set[int] | None = None
    for text in texts:
        own = [token for token in text if token not in special]
        once = {
            token
            for token, count in Counter(own).items()
            if count == 1 and not {*own[: (at := own.index(token))]}.isdisjoint(own[at + 1 :])
        }
        found = once if found is None else found & once
    return found.pop() if found and len(found) == 1 else None


def _token(reader: Reader, written: str, spell: Callable[..., str]) -> int:
    """Return the only token of a text."""
    (tokens,) = reader.encode([written])
    if len(tokens) != 1 or tokens[0] == reader.unknown:
        raise ValueError(
            Message(
                "{option} must be one token of {name}, got {written}.",
                option=spell("separator"),
                name=reader.name,
                written=repr(written),
            )
        )
    return tokens[0]


def inputs_of(reader: Reader, texts: CardTexts, version: str) -> dict[str, Any]:
    """Return what cards depend on, in JSON."""
    return {
        "version": version,
        "model": fingerprint(reader.model),
        "texts": texts.digest,
        "separator": texts.separator,
    }


def cards_of_texts(
    reader: Reader,
    texts: CardTexts,
    inputs: dict[str, Any],
    *,
    partial: Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> HeadCards:
    """Return the cards of all heads, summed over texts.

    Args:
        reader: The model.
        texts: The texts.
        inputs: What the cards depend on, from `inputs_of`.
        partial: File in which the sums so far are kept, every ten seconds or after the text that
            takes longer. If it exists, reading resumes from it, and gives the same bits.
        progress: Called with the number of layers done, over all texts, and the total.

    Errors: a ValueError if there are no texts, or the partial file is of other inputs, an OSError
    if it cannot be read or written; otherwise as of `head_cards`.
    """
    done, cards = _load(partial, inputs, reader)
    saved = time.monotonic()
    special = {*reader.around[0], *reader.around[1]}
    for place in range(done, len(texts.tokens)):

        def report(layer: int, layers: int, place: int = place) -> None:
            if progress is not None:
                progress(place * layers + layer, len(texts.tokens) * layers)

        tokens = torch.tensor(texts.tokens[place])
        with torch.no_grad(), watch(reader.model, keep="parts", budget=_BUDGET) as seen:
            reader.model(tokens[None].to(reader.device))
        with torch.no_grad():
            own = head_cards(
                seen,
                tokens,
                separator=texts.separator,
                special=special,
                word=reader.token,
                progress=report,
            )
        cards = own if cards is None else cards + own
        if partial is not None and time.monotonic() - saved >= _EVERY:
            described, tensors = cards.state()
            partial.parent.mkdir(parents=True, exist_ok=True)
            write(partial, _PARTIAL, described | {"inputs": inputs, "done": place + 1}, tensors)
            saved = time.monotonic()
    if cards is None:
        raise ValueError("texts must be at least one, got none.")
    return cards


def _load(
    partial: Path | None, inputs: dict[str, Any], reader: Reader
) -> tuple[int, HeadCards | None]:
    """Return how many texts were read before, and the cards of these."""
    if partial is None or not partial.exists():
        return 0, None
    described, tensors = read(partial, _PARTIAL)
    if (kept := described.get("inputs")) != inputs:
        kept = kept if isinstance(kept, dict) else {}
        other = " and ".join(name for name, value in inputs.items() if kept.get(name) != value)
        raise ValueError(
            f"{partial} holds the sums of a run with another {other}. Read what it began with, or "
            "delete it to begin again."
        )
    with understood(partial, _PARTIAL):
        return int(described["done"]), HeadCards.of_state(described, tensors, reader.token)
