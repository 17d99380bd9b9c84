"""Report: the views of one text as one file that opens offline."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from glasshead.drawing import printable
from glasshead.explanation.language import Say
from glasshead.studio.about import LANGUAGES, about
from glasshead.studio.limits import Limits
from glasshead.studio.refusals import Refusal
from glasshead.studio.report.answers import Answers, key_of
from glasshead.studio.report.document import document, framed, icon
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.views import HOLDING
from glasshead.studio.studio import Studio
from glasshead.studio.words import words
from glasshead.studio.work import Work
from glasshead.whole_file import whole_file

_SHOWN = 40
# Tokens whose maps a file has room for, and those that are read in a time that one waits.
_LIMITS = {"heads": 256, "atlas": 2**14}
# The view of a sentence by itself.
_WITHOUT_A_MODEL = "steps"
# The rest of a text is not shown, and is not held.
_CHARACTERS = 2000


class Report:
    """What the studio shows of a text, as one file that opens offline, and in a notebook.

    It holds the steps of the text's first sentence, the heads and the atlas of as many of its
    tokens as a small file has room for, and, of a translator, the alignment; each number as the
    library computes it. A page says what of the text it leaves out, and why a view is not there;
    where the model can be shown in none, there is no report.

    Attributes:
        tokens: How many tokens of the text are shown, and of how many, by view.
        refused: Why a view that the model has is not there, by view.

    Args:
        model: The folder of a run or of a model of Hugging Face, or a `Studio`; None: only what
            needs no model.
        text: What is read.
        lang: In which language the page speaks, as of `explain`.
        work: Is told how far it is; where it is cancelled, `Cancelled` is raised.

    Errors: a ValueError where the text has no word, the language is not there, the model cannot be
    loaded, or its attention cannot be seen; an OSError where there is no such folder.

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
        # What is no run is told here, and not by a page.
        if studio.subject.kind == "weights":
            raise Refusal(
                f"a report takes the folder of a run or a model, and {studio.subject.name} holds "
                f"weights alone: open it by glasshead studio."
            )
        asked = Asked(
            studio=studio,
            text=text,
            name=studio.texts.add(text),
            lang=self._say.language,
            work=work or Work(),
        )
        self._words = words(asked.lang)
        self._title = _title(studio)
        self._answers, self.refused = _answered(asked, self._words)
        self.tokens = _tokens(self._answers, asked.name)

    def html(self) -> str:
        """The whole page, which loads nothing."""
        held = self._answers.json(self._words["report.missing"])
        return document(held, self._title, self._say.language, self._words["report.noscript"])

    def save(self, file: str | Path) -> None:
        """Write the page, whole or not at all.

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
    """A studio of the same subject, whose limits are those of a file."""
    if not isinstance(model, Studio):
        return Studio(None if model is None else Path(model), Limits(**_LIMITS))
    studio = Studio(model.subject.folder, replace(model.limits, **_LIMITS))
    studio.subject = model.subject
    return studio


def _title(studio: Studio) -> str:
    name = _name(studio)
    return "glasshead" if name is None else f"{name} · glasshead"


def _name(studio: Studio) -> str | None:
    """The folder's own name: where it lies is nobody's business who gets the file."""
    folder = studio.subject.folder
    return None if folder is None else printable(folder.resolve().name)


def _answered(asked: Asked, spoken: dict[str, str]) -> tuple[Answers, dict[str, str]]:
    """What the page is told first, and what each view asks for; and the views that are refused.

    Errors: a `Refusal` where all views of the model are refused.
    """
    answers, told = Answers(), about(asked.studio)
    views: dict[str, str | None] = {view: told["views"][view] for view in HOLDING}
    notes: dict[str, list[str]] = {}
    refused: dict[str, Refusal] = {}
    for view, hold in HOLDING.items():
        if views[view] is None:
            try:
                notes[view] = hold(answers, asked)
            except Refusal as error:
                views[view], refused[view] = str(error), error
    of_the_model = [view for view in (*notes, *refused) if view != _WITHOUT_A_MODEL]
    if of_the_model and all(view in refused for view in of_the_model):
        raise refused[of_the_model[0]]
    answers.hold(f"texts/{asked.name}", {}, {"text": asked.text[:_CHARACTERS]})
    answers.hold("about", {}, _about(told, asked, views, notes))
    answers.hold("words", {"lang": asked.lang}, spoken)
    return answers, {view: str(error) for view, error in refused.items()}


def _tokens(answers: Answers, text: str) -> dict[str, tuple[int, int]]:
    """How many tokens each view shows, and how many the text has."""
    heads = answers.told.get(key_of("heads/reading", {"text": text}))
    atlas = answers.told.get(key_of("atlas/read", {}))
    shown = {} if heads is None else {"heads": (len(heads["tokens"]), heads["of"])}
    return shown if atlas is None else shown | {"atlas": (atlas["length"], atlas["of"])}


def _about(
    told: dict[str, Any],
    asked: Asked,
    views: dict[str, str | None],
    notes: dict[str, list[str]],
) -> dict[str, Any]:
    return {
        **told,
        "subject": {**told["subject"], "name": _name(asked.studio)},
        "views": views,
        "notes": notes,
        "text": asked.name,
        "samples": dict.fromkeys(told["samples"], asked.text[:_CHARACTERS]),
        "languages": {asked.lang: LANGUAGES[asked.lang]},
        "icon": icon(),
    }
