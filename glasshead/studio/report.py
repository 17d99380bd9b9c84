"""Reports: the studio's views of one text in a single HTML file that opens offline."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.explanation.translations import Say
from glasshead.files import whole_file
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.page import document, framed, icon
from glasshead.studio.shell import LANGUAGES, about, words
from glasshead.studio.stored_answers import ReportContent, StoredAnswers, key_of
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.subject import Sample
from glasshead.studio.tour import built_in
from glasshead.studio.views.table import VIEWS
from glasshead.tasks.run_folder import RunFolder, require_for_model

HOLDING = {view.name: view.export for view in VIEWS if view.export is not None}
"""The export of each view: adds its answers, and returns notes on the parts left out."""


_SHOWN = 40
# Tokens whose maps fit into a file, and tokens that are read in a reasonable time.
_LIMITS = {"heads": 256, "atlas": 2**14}
# The view of a report without a model. Its vectors are generated, so that it would contradict the
# maps of a model.
_WITHOUT_A_MODEL = "steps"
# Characters of the text that are shown and stored.
_CHARACTERS = 2000


class Report:
    """The studio's views of one text in a single HTML file, for sharing and for notebooks.

    It opens on the model's heads. It contains the heads and the atlas of as many of the text's
    tokens as a small file has room for, and, of a translator, the alignment; without a model, the
    steps of the text's first sentence. Each number is as the library computes it. The page states
    which parts of the text it omits, and why a view is missing; if no view of the model is
    possible, an error is raised.

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
                "a report needs the folder of a run or a model, but {name} has only weights. "
                "Open it with glasshead studio.",
                name=studio.subject.name,
            )
        folder = studio.subject.folder
        if folder is not None:
            require_for_model(folder, "a report of a model")
        elif text is None:
            raise Refusal("a report without a model needs a text, got none. Name one.")
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


def _answers_of(
    content: ReportContent, spoken: dict[str, str]
) -> tuple[StoredAnswers, dict[str, str]]:
    """Collect the answers of the shell and of each view, and the reasons of refused views.

    Errors: a `Refusal` if all views of the model are refused.
    """
    answers, description = StoredAnswers(), about(content.studio)
    views: dict[str, str | None] = {
        view: description["views"][view]
        for view in HOLDING
        if view != _WITHOUT_A_MODEL or content.studio.subject.folder is None
    }
    notes: dict[str, list[str]] = {}
    refused: dict[str, Refusal] = {}
    for view, why in list(views.items()):
        if why is None:
            try:
                notes[view] = HOLDING[view](answers, content)
            except Refusal as error:
                sentence = Say(content.lang).translated(error)
                views[view] = without_places(sentence, private_places(content.studio))
                refused[view] = error
    of_the_model = [view for view in (*notes, *refused) if view != _WITHOUT_A_MODEL]
    if of_the_model and all(view in refused for view in of_the_model):
        raise refused[of_the_model[0]]
    answers.hold(f"texts/{content.name}", {}, {"text": content.text[:_CHARACTERS]})
    # The tour walks through the worked example.
    if _WITHOUT_A_MODEL in notes:
        answers.hold("tour", {}, built_in())
    answers.hold("about", {}, _about(description, content, views, notes))
    answers.hold("words", {"lang": content.lang}, spoken)
    return answers, {view: views[view] or "" for view in refused}


def _tokens(answers: StoredAnswers, text: str) -> dict[str, tuple[int, int]]:
    """Return the number of tokens that each view shows, and of the text."""
    heads = answers.by_key.get(key_of("heads/reading", {"text": text}))
    atlas = answers.by_key.get(key_of("atlas/read", {"text": text}))
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
        "tour": "built_in" if _WITHOUT_A_MODEL in notes else None,
        "notes": notes,
        "text": content.name,
        "first": next((view for view in ("heads", *views) if views[view] is None), "steps"),
        "languages": {content.lang: LANGUAGES[content.lang]},
        "icon": icon(),
    }
