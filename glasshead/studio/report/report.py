"""Reports: the studio's views of one text in a single HTML file that opens offline."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from glasshead.drawing import printable
from glasshead.drawing.page import rendered
from glasshead.explanation.embeddings import composed, split
from glasshead.explanation.translations import Say
from glasshead.files import whole_file
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.page import style_sheet
from glasshead.studio.report.linker import Answers, key_of, script
from glasshead.studio.strings import REPORT, words
from glasshead.studio.studio import LANGUAGES, Limits, Studio, about
from glasshead.studio.views.alignment import sentences_of, stored_alignment
from glasshead.studio.views.atlas import Atlases, stored_atlas
from glasshead.studio.views.heads import chosen_heads, reading_of, stored_heads
from glasshead.studio.views.steps import MOST_WORDS, steps_stored
from glasshead.tasks.run_folder import require_for_model

_PACKAGE = "glasshead.studio.report"


def document(answers: str, title: str, language: str, without_script: str) -> str:
    """Assemble the page as one HTML file with a content security policy that allows no other code.

    Args:
        answers: Answers to its views' requests, as JSON that may stand in a script element.
        title: Title of the window, as plain text.
        language: Language code of the document.
        without_script: Message shown where JavaScript is disabled.
    """
    style, code = f"\n{style_sheet()}", f"\n{script()}"
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    page = rendered(
        "report.html",
        package=_PACKAGE,
        language=language,
        policy=policy,
        title=title,
        icon=icon(),
        style=style,
        without_script=without_script,
        answers=answers,
        code=code,
    )
    return page + "\n"


def framed(page: str, title: str) -> str:
    """Wrap the page in a sandboxed iframe, isolated from the notebook that shows it.

    Args:
        page: HTML, as from `document`.
        title: Title of the frame, as plain text.
    """
    return rendered("frame.html", package=_PACKAGE, page=page, title=title)


def icon() -> str:
    """Return the favicon as a data: URL."""
    content = files("glasshead.studio").joinpath("static", "icon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


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

    Errors: a `Refusal` where there is no sentence that can be translated.
    """
    subject, limits = content.studio.subject, content.studio.limits
    found = stored_alignment(subject.translator(), content.text, limits, _SENTENCES)
    answers.hold_all(found, content.work)
    count = len(answers.told["alignment/stored"]["sentences"])
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

    Errors: a `Refusal` where the text cannot be read, or its attention cannot be observed.
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

    Errors: a `Refusal` where the text cannot be read, or its attention cannot be observed.
    """
    answers.hold_all(
        stored_heads(content.studio, content.name, content.work, _MAPS_BYTES), content.work
    )
    summary = answers.told[key_of("heads/reading", {"text": content.name})]
    whole, of = summary["whole"], sum(summary["heads"])
    return [] if whole is None else report_note(content, "heads", kept=len(whole), of=of)


# Bytes before compression, which is about twentyfold.
_STEPS_BYTES = 1_000_000


def export_steps(answers: Answers, content: ReportContent) -> list[str]:
    """Export the matrices and explanations of the first sentence, for most settings.

    Errors: a `Refusal` where the text has no word.
    """
    whole = [part for part in sentences_of(composed(content.text)) if split(part)]
    if not whole:
        raise Refusal("a report takes a text of a word at least, and this has none: name another.")
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

    It contains the steps of the text's first sentence, the heads and the atlas of as many of its
    tokens as a small file has room for, and, of a translator, the alignment; each number as the
    library computes it. The page says which parts of the text it leaves out, and why a view is
    missing; where no view of the model is possible, an error is raised.

    Attributes:
        tokens: Tokens shown and tokens in all, by view.
        refused: Why a view of the model is missing, by view.

    Args:
        model: A run folder, a Hugging Face model folder, or a `Studio`; None: only the views that
            need no model.
        text: The text to read.
        lang: Language code of the page, as for `explain`.
        work: Receives progress; where it is cancelled, `Cancelled` is raised.

    Errors: a ValueError where the text has no word, the language is unknown, the model cannot be
    loaded, or its attention cannot be observed; an OSError where there is no such folder.

    >>> report = Report(None, "Hello shiny sun!")
    >>> report
    Report of 'Hello shiny sun!' in en
    >>> report.html()[:15]
    '<!doctype html>'
    """

    def __init__(
        self,
        model: "str | Path | Studio | None",
        text: str,
        *,
        lang: str = "en",
        work: Work | None = None,
    ) -> None:
        self._say, self._text = Say(lang), text
        studio = _studio(model)
        # Stored weights are refused here, rather than by an empty page.
        if studio.subject.kind == "weights":
            raise Refusal(
                f"a report takes the folder of a run or a model, and {studio.subject.name} holds "
                f"weights alone: open it by glasshead studio."
            )
        folder = studio.subject.folder
        if folder is not None:
            require_for_model(folder, "a report of a model")
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
        self.tokens = _tokens(self._answers, content.name)

    def html(self) -> str:
        """Return the page as self-contained HTML."""
        held = self._answers.json(self._words["report.missing"])
        return document(held, self._title, self._say.language, self._words["report.noscript"])

    def save(self, file: str | Path) -> None:
        """Write the page to a file atomically.

        Errors: an OSError where it cannot be written.
        """
        with whole_file(Path(file)) as beside:
            beside.write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return framed(self.html(), self._title)

    def __repr__(self) -> str:
        begin = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        return f"Report of {begin!r} in {self._say.language}"


def _studio(model: "str | Path | Studio | None") -> Studio:
    """Return a studio of the same subject with the limits of a report."""
    if not isinstance(model, Studio):
        return Studio(None if model is None else Path(model), Limits(**_LIMITS))
    studio = Studio(model.subject.folder, replace(model.limits, **_LIMITS))
    studio.subject = model.subject
    return studio


def _title(studio: Studio) -> str:
    name = _name(studio)
    return "glasshead" if name is None else f"{name} · glasshead"


def _name(studio: Studio) -> str | None:
    """Return the folder's base name; its path is private to the report's author."""
    folder = studio.subject.folder
    return None if folder is None else printable(folder.resolve().name)


def _answers_of(content: ReportContent, spoken: dict[str, str]) -> tuple[Answers, dict[str, str]]:
    """Collect the answers of the shell and of each view, and the reasons of refused views.

    Errors: a `Refusal` where all views of the model are refused.
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
                views[view], refused[view] = str(error), error
    of_the_model = [view for view in (*notes, *refused) if view != _WITHOUT_A_MODEL]
    if of_the_model and all(view in refused for view in of_the_model):
        raise refused[of_the_model[0]]
    answers.hold(f"texts/{content.name}", {}, {"text": content.text[:_CHARACTERS]})
    answers.hold("about", {}, _about(description, content, views, notes))
    answers.hold("words", {"lang": content.lang}, spoken)
    return answers, {view: str(error) for view, error in refused.items()}


def _tokens(answers: Answers, text: str) -> dict[str, tuple[int, int]]:
    """Return the number of tokens that each view shows, and of the text."""
    heads = answers.told.get(key_of("heads/reading", {"text": text}))
    atlas = answers.told.get(key_of("atlas/read", {}))
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
        "subject": {**description["subject"], "name": _name(content.studio)},
        "views": views,
        "notes": notes,
        "text": content.name,
        "samples": dict.fromkeys(description["samples"], content.text[:_CHARACTERS]),
        "languages": {content.lang: LANGUAGES[content.lang]},
        "icon": icon(),
    }
