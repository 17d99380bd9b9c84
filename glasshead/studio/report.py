"""Reports: the studio's views of one text in a single HTML file that opens offline."""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing.printable import printable
from glasshead.explanation.embeddings import composed, split
from glasshead.explanation.translations import Say
from glasshead.files import whole_file
from glasshead.message import Message
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.page import document, float32, framed, icon
from glasshead.studio.strings import REPORT, words
from glasshead.studio.studio import LANGUAGES, Limits, Studio, about
from glasshead.studio.subject import Sample
from glasshead.studio.views.alignment import sentences_of, stored_alignment
from glasshead.studio.views.atlas import Atlases, stored_atlas
from glasshead.studio.views.heads import chosen_heads, reading_of, stored_heads
from glasshead.studio.views.steps import MOST_WORDS, steps_stored
from glasshead.tasks.run_folder import RunFolder, require_for_model

# JavaScript writes numbers outside this range with an exponent, in its own format.
_PLAIN = (1e-6, 1e15)


class Answers:
    """Answers to the page's requests, keyed by path and parameters as `stored` in source.js is.

    Plain answers repeat each other and are compressed together; tensors, which the page unpacks
    one by one, are compressed apart, equal ones once.

    >>> answers = Answers()
    >>> answers.hold("words", {"lang": "en"}, {"shell.views": "Views"})
    >>> answers.by_key
    {'words|lang=en': {'shell.views': 'Views'}}
    """

    def __init__(self) -> None:
        self.by_key: dict[str, Any] = {}
        self.numbers: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def hold(self, path: str, given: Mapping[str, Any], answer: Any) -> None:
        """Add an answer.

        Args:
            path: Path in the studio's API, without `api/`.
            given: Parameters by name; those that are None are left out.
            answer: Plain data, or a tensor.
        """
        key = key_of(path, given)
        if isinstance(answer, Tensor):
            self.numbers[key] = self._deduplicated(key, answer)
        else:
            self.by_key[key] = answer

    def hold_all(self, given: Iterable[tuple[str, Mapping[str, Any], Any]], work: Work) -> None:
        """Add answers one by one until the work is cancelled.

        Args:
            given: Path, parameters and answer of each.
            work: Checked for cancellation before each.

        Errors: `Cancelled` if the work was cancelled.
        """
        for path, parameters, answer in given:
            work.check()
            self.hold(path, parameters, answer)

    def json(self, missing: str) -> str:
        """Serialize all answers to JSON that may stand in a script element.

        Args:
            missing: The page's message for a request without an answer.

        Errors: a ValueError if a number in a plain answer is not finite.
        """
        try:
            answers = json.dumps(self.by_key, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(
                "the numbers of this model grow beyond all bounds: train it again, or name another."
            ) from error
        return in_a_script({"missing": missing, "told": packed(answers), "numbers": self.numbers})

    def _deduplicated(self, key: str, values: Float[Tensor, "*shape"]) -> dict[str, Any]:
        data, shape = packed(float32(values)), list(values.shape)
        first = self._keys.setdefault(data, key)
        return {"shape": shape, "data": data} if first == key else {"shape": shape, "as": first}


def key_of(path: str, given: Mapping[str, Any]) -> str:
    """Return the key of a request, as `keyOf` in source.js computes it.

    Errors: a ValueError for a number that JavaScript formats in another way.

    >>> key_of("steps/trace", {"mask": "causal", "beta": 1.0, "soft": True, "head": None})
    'steps/trace|beta=1|mask=causal|soft=true'
    """
    named = {name: _written(value) for name, value in sorted(given.items()) if value is not None}
    return "|".join([path, *(f"{name}={value}" for name, value in named.items())])


def packed(content: bytes) -> str:
    """Compress bytes and encode them as base64.

    >>> packed(bytes(1000))
    'eNpjYBgFo2AUDHcAAAPoAAE='
    """
    return base64.b64encode(zlib.compress(content, 9)).decode()


def in_a_script(value: Any) -> str:
    r"""Serialize a value to ASCII JSON that is safe inside a script element.

    Errors: a ValueError if a number is not finite.

    >>> in_a_script("<!-- \u2028")
    '"\\u003c!-- \\u2028"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _written(value: Any) -> str:
    """Format a parameter as JavaScript's `String` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value and not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        raise ValueError(f"a report names answers by plain numbers, and got {value}: give a text.")
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The subject of a report, given to each view's export.

    Attributes:
        studio: The studio that holds the model.
        text: The text.
        name: The studio's name of the text.
        lang: Language code.
        work: Receives progress.
    """

    studio: Studio
    text: str
    name: str
    lang: str
    work: Work


def report_note(content: ReportContent, name: str, **places: int) -> list[str]:
    """Return a note of the report, as a list of one sentence.

    Args:
        content: The report's content.
        name: Name of the sentence in `REPORT`, without its prefix.
        places: Values of its placeholders.
    """
    return [Say(content.lang)(REPORT[f"report.{name}"], **places)]


_SENTENCES = 5


def export_alignment(answers: Answers, content: ReportContent) -> list[str]:
    """Export the translations of the first sentences, with their cross-attention weights.

    Errors: a `Refusal` if there is no sentence that can be translated.
    """
    subject, limits = content.studio.subject, content.studio.limits
    found = stored_alignment(subject.translator(), content.text, limits, _SENTENCES)
    answers.hold_all(found, content.work)
    count = len(answers.by_key["alignment/stored"]["sentences"])
    return (
        []
        if count == len(sentences_of(content.text))
        else report_note(content, "sentences", count=count)
    )


# Weights or blocks of all maps together, and of each where there are few.
_NUMBERS = 500_000
_FEW_NUMBERS = 5 * 256**2
_TILES = 5
_SIDE = 256


def export_atlas(answers: Answers, content: ReportContent) -> list[str]:
    """Export the atlases of the heads that have a role, and of others as far as there is room.

    Errors: a `Refusal` if the text cannot be read, or its attention cannot be observed.
    """
    atlases = Atlases(content.studio)
    opened = atlases.opened(content.name, content.work)
    heads = _heads(content, opened["length"])
    # Two heads at one level are worth more than one head at two.
    tiles = _TILES if len(heads) * _FEW_NUMBERS <= _NUMBERS else 1
    answers.hold_all(
        stored_atlas(atlases, content.name, heads, content.work, tiles=tiles), content.work
    )
    of = sum(layer["heads"] for layer in opened["layers"])
    return [] if len(heads) == of else report_note(content, "heads", kept=len(heads), of=of)


def _heads(content: ReportContent, length: int) -> list[tuple[int, int]]:
    """Choose the heads whose coarsest tiles fit into the file."""
    blocks = length
    while blocks > _SIDE:
        blocks = -(-blocks // 2)
    reading = reading_of(content.studio, content.name, content.work)
    return chosen_heads(reading, max(_NUMBERS // blocks**2, 1) * 4 * reading.length**2)


# Bytes of all full-size maps before compression: 13 of 256 tokens.
_MAPS_BYTES = 3_500_000


def export_heads(answers: Answers, content: ReportContent) -> list[str]:
    """Export the maps of as much of the text as the model reads and a file has room for.

    Errors: a `Refusal` if the text cannot be read, or its attention cannot be observed.
    """
    answers.hold_all(
        stored_heads(content.studio, content.name, content.work, _MAPS_BYTES), content.work
    )
    summary = answers.by_key[key_of("heads/reading", {"text": content.name})]
    whole, of = summary["whole"], sum(summary["heads"])
    return [] if whole is None else report_note(content, "heads", kept=len(whole), of=of)


# Bytes before compression, which is about twentyfold.
_STEPS_BYTES = 1_000_000


def export_steps(answers: Answers, content: ReportContent) -> list[str]:
    """Export the matrices and explanations of the first sentence, for most settings.

    Errors: a `Refusal` if the text has no word.
    """
    whole = [part for part in sentences_of(composed(content.text)) if split(part)]
    if not whole:
        raise Refusal(Message("Enter at least one word: a report takes a text."))
    sentence = beginning(whole[0], MOST_WORDS)
    limits = content.studio.limits
    answers.hold_all(steps_stored(sentence, content.lang, limits, most=_STEPS_BYTES), content.work)
    if len(whole) == 1 and sentence == whole[0]:
        return []
    return report_note(content, "sentence", count=len(split(sentence)))


def beginning(sentence: str, most: int) -> str:
    """Truncate a sentence after a number of words and punctuation marks.

    >>> beginning("The  sun, the moon.", 4)
    'The  sun, the'
    """
    end = 0
    for token in split(sentence)[:most]:
        end = sentence.index(token, end) + len(token)
    return sentence if len(split(sentence)) <= most else sentence[:end]


HOLDING: dict[str, Callable[[Answers, ReportContent], list[str]]] = {
    "steps": export_steps,
    "heads": export_heads,
    "alignment": export_alignment,
    "atlas": export_atlas,
}
"""The export of each view: adds its answers, and returns notes on the parts left out."""


_SHOWN = 40
# Tokens whose maps fit into a file, and tokens that are read in a reasonable time.
_LIMITS = {"heads": 256, "atlas": 2**14}
# The view that needs no model.
_WITHOUT_A_MODEL = "steps"
# Characters of the text that are shown and stored.
_CHARACTERS = 2000


class Report:
    """The studio's views of one text in a single HTML file, for sharing and for notebooks.

    It opens on the model's heads. It contains the steps of the text's first sentence, the heads and
    the atlas of as many of its tokens as a small file has room for, and, of a translator, the
    alignment; each number as the library computes it. The page states which parts of the text it
    omits, and why a view is missing; if no view of the model is possible, an error is raised.

    Attributes:
        tokens: Tokens shown and tokens in all, by view.
        refused: Why a view of the model is missing, by view.
        sample: The text, and where it is from.

    Args:
        model: A run folder, a Hugging Face or llama2.c model folder, llama2.c's file of a model, or
            a `Studio`; None: only the views that need no model.
        text: The text to read; None: one that the run has held out, or for a model alone, one of
            the studio's own.
        lang: Language code of the page, as for `explain`.
        work: Receives progress; if it is cancelled, `Cancelled` is raised.

    Errors: a ValueError if the text has no word, the language is unknown, the model cannot be
    loaded, or its attention cannot be observed; an OSError if there is no such folder.

    >>> report = Report(None, "Hello shiny sun!")
    >>> report
    Report of 'Hello shiny sun!' in en
    >>> report.html()[:15]
    '<!doctype html>'
    """

    def __init__(
        self,
        model: "str | Path | Studio | None",
        text: str | None = None,
        *,
        lang: str = "en",
        work: Work | None = None,
    ) -> None:
        self._say = Say(lang)
        studio = _studio(model)
        # Stored weights are refused here, rather than by an empty page.
        if studio.subject.kind == "weights":
            raise Refusal(
                Message(
                    "a report takes the folder of a run or a model, and {name} holds weights "
                    "alone: open it by glasshead studio.",
                    name=studio.subject.name,
                )
            )
        folder = studio.subject.folder
        if folder is not None:
            require_for_model(folder, "a report of a model")
        elif text is None:
            raise Refusal(Message("a report without a model takes a text, and got none: name one."))
        self.sample = studio.subject.sample() if text is None else Sample(text, "given")
        self._text = text = self.sample.text
        content = ReportContent(
            studio=studio,
            text=text,
            name=studio.texts.add(text),
            lang=self._say.language,
            work=work or Work(),
        )
        self._words = words(content.lang)
        self._title = _title(studio)
        self._answers, self.refused = _answers_of(content, self._words)
        private = private_places(studio)
        why = without_places(self.sample.why, private)
        shown = replace(self.sample, text=text[:_CHARACTERS], why=why)
        self._answers.hold("sample", {}, asdict(shown))
        self.tokens = _tokens(self._answers, content.name)

    def html(self) -> str:
        """Return the page as self-contained HTML."""
        held = self._answers.json(self._words["report.missing"])
        return document(held, self._title, self._say.language, self._words["report.noscript"])

    def save(self, file: str | Path) -> None:
        """Write the page to a file atomically.

        Errors: an OSError if it cannot be written.
        """
        with whole_file(Path(file)) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return framed(self.html(), self._title)

    def __repr__(self) -> str:
        begin = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        return f"Report of {begin!r} in {self._say.language}"


def private_places(studio: Studio) -> tuple[Path, ...]:
    """Return the files of a studio's subject, whose places are private to the report's author."""
    folder = studio.subject.folder
    if folder is None:
        return ()
    try:
        data = RunFolder(folder).read_config().get("data")
    except (OSError, ValueError):
        data = None
    known = data if isinstance(data, dict) else {}
    lists = (known.get(name) for name in ("files", "held_out_files"))
    files = [file for each in lists if isinstance(each, list) for file in each]
    named = [folder, folder.resolve(), *(Path(file) for file in files if isinstance(file, str))]
    return tuple(file for place in named for file in (place, place.absolute()))


def without_places(sentence: str, places: Sequence[Path]) -> str:
    """Return a sentence in which files keep their names and lose their folders.

    >>> without_places("no /home/ada/a.txt, not even /home/ada.", [Path("/home/ada/a.txt")])
    'no a.txt, not even ….'
    """
    folders = {parent for place in places for parent in place.parents if parent.is_absolute()}
    named = {printable(str(folder)): "…" for folder in folders if folder.name}
    named |= {printable(str(place)): printable(place.name) for place in places if place.name}
    for place in sorted(named, key=len, reverse=True):
        sentence = sentence.replace(place, named[place])
    return sentence


def _studio(model: "str | Path | Studio | None") -> Studio:
    """Return a studio of the same subject with the limits of a report."""
    if not isinstance(model, Studio):
        return Studio(None if model is None else Path(model), Limits(**_LIMITS))
    studio = Studio(model.subject.folder, replace(model.limits, **_LIMITS))
    studio.subject = model.subject
    return studio


def _title(studio: Studio) -> str:
    name = studio.subject.label
    return "glasshead" if name is None else f"{name} · glasshead"


def _answers_of(content: ReportContent, spoken: dict[str, str]) -> tuple[Answers, dict[str, str]]:
    """Collect the answers of the shell and of each view, and the reasons of refused views.

    Errors: a `Refusal` if all views of the model are refused.
    """
    answers, description = Answers(), about(content.studio)
    views: dict[str, str | None] = {view: description["views"][view] for view in HOLDING}
    notes: dict[str, list[str]] = {}
    refused: dict[str, Refusal] = {}
    for view, hold in HOLDING.items():
        if views[view] is None:
            try:
                notes[view] = hold(answers, content)
            except Refusal as error:
                sentence = Say(content.lang).translated(error)
                views[view] = without_places(sentence, private_places(content.studio))
                refused[view] = error
    of_the_model = [view for view in (*notes, *refused) if view != _WITHOUT_A_MODEL]
    if of_the_model and all(view in refused for view in of_the_model):
        raise refused[of_the_model[0]]
    answers.hold(f"texts/{content.name}", {}, {"text": content.text[:_CHARACTERS]})
    answers.hold("about", {}, _about(description, content, views, notes))
    answers.hold("words", {"lang": content.lang}, spoken)
    return answers, {view: views[view] or "" for view in refused}


def _tokens(answers: Answers, text: str) -> dict[str, tuple[int, int]]:
    """Return the number of tokens that each view shows, and of the text."""
    heads = answers.by_key.get(key_of("heads/reading", {"text": text}))
    atlas = answers.by_key.get(key_of("atlas/read", {}))
    shown = {} if heads is None else {"heads": (len(heads["tokens"]), heads["of"])}
    return shown if atlas is None else shown | {"atlas": (atlas["length"], atlas["of"])}


def _about(
    description: dict[str, Any],
    content: ReportContent,
    views: dict[str, str | None],
    notes: dict[str, list[str]],
) -> dict[str, Any]:
    return {
        **description,
        # Its path is private to the report's author.
        "subject": {**description["subject"], "path": None},
        "views": views,
        "notes": notes,
        "text": content.name,
        "first": next((view for view in ("heads", *views) if views[view] is None), "steps"),
        "languages": {content.lang: LANGUAGES[content.lang]},
        "icon": icon(),
    }
