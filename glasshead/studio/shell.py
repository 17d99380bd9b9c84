"""Parts that all views share: common strings, the description of the studio, and texts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from glasshead import __version__
from glasshead.drawing.page import LEVELS, hexadecimal, paint
from glasshead.explanation.translations import Say
from glasshead.message import _
from glasshead.studio import stored_answers
from glasshead.studio.page import document, icon
from glasshead.studio.parameters import HAS_A_WORD, Language, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.subject import Kind, StudioSubject
from glasshead.studio.tour import built_in
from glasshead.studio.views.table import VIEWS
from glasshead.tasks.run_folder import RunFolder

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes

_LONGEST_TITLE = 500
WORDS = {
    "shell.title": _("glasshead studio"),
    "shell.views": _("Views"),
    "shell.intent.learn": _("Learn"),
    "shell.intent.text": _("Text"),
    "shell.intent.training": _("Training"),
    "shell.language": _("Language"),
    "shell.nothing": _("no model: the worked example"),
    "shell.model": _("{name}, {layers} × {heads} heads, {parameters} parameters"),
    "shell.model.both": _("{name}, {layers} + {decoder} layers × {heads} heads"),
    "shell.model.plain": _("{name}, {parameters} parameters"),
    "shell.model.none": _("{name}, not loaded"),
    "shell.kind.weights": _("Stored weights"),
    "shell.kind.classify": _("Classifier"),
    "shell.kind.translate": _("Translator"),
    "shell.kind.write": _("Language model"),
    "shell.kind.model": _("Model"),
    "shell.kind.vision": _("Vision model"),
    "shell.hidden": _("gray: hidden by the mask"),
    "shell.colors": _("Colors"),
    "shell.linear": _("linear"),
    "shell.log": _("logarithmic"),
    "shell.zoom": _("Zoom"),
    "shell.nearer": _("Zoom in"),
    "shell.farther": _("Zoom out"),
    "shell.all": _("All"),
    "share.title": _("Share"),
    "share.png": _("Picture (PNG)"),
    "share.svg": _("Picture (SVG)"),
    "share.card": _("Card for a post, 1200 × 630"),
    "share.link": _("Copy link"),
    "share.file": _("Page that works offline (HTML)"),
    "share.saved": _("Saved as {file}."),
    "share.copied": _(
        "The link is copied. It opens this view wherever this studio can be reached."
    ),
    "share.copy": _("Copy the link. It opens this view wherever this studio can be reached."),
    "share.missing": _(
        "This file does not contain that. Start the studio with the model to see it."
    ),
    "shell.gone": _(
        "The studio does not answer. If it was stopped, start it again; this page then "
        "continues by itself."
    ),
    "shell.back": _("The studio is back."),
    "shell.fault": _("Something went wrong on this page ({error}). Please report it."),
    "shell.how": _("These commands train a small translator, and open it here:"),
    "shell.again": _("Try again"),
    "shell.choose": _("Choose a text"),
    "shell.text": _("Text, of any length"),
    "shell.file": _("or a text file"),
    "shell.read": _("Read"),
    "shell.origin.held_out": _("This text is from the held-out data of this training run."),
    "shell.origin.own": _("Example text"),
    "shell.origin.own.why": _(
        "This is an example text, because a model folder has no held-out data."
    ),
    "shell.origin.unreadable": _(
        "This is an example text, because the held-out data of this training run cannot be "
        "read: {why}"
    ),
    "shell.large": _(
        "A text must have at most {most} bytes, but this file has {size}. Choose a shorter text."
    ),
    # Separates the items of a list.
    "shell.comma": _(", "),
    # Stands between a name and its value.
    "shell.colon": _(": "),
    "shell.skip": _("Skip to the view"),
    "tour.title": _("Tour"),
    "tour.stop": _("Stop {stop} of {of}"),
    "tour.back": _("Previous stop"),
    "tour.on": _("Next stop"),
    "tour.end": _("End the tour"),
    "tour.bad": _(
        "{file} must be a tour, a JSON file of stops with a place and a sentence each, but "
        "{part} is missing or wrong."
    ),
    "tour.away": _("The tour {file} cannot be loaded. Put it next to the page."),
    "present.title": _("Present"),
    "present.keys": _(
        "The arrow keys show the next or the previous step or panel. Esc ends the presentation."
    ),
    "present.stops": _(
        "The arrow keys show the next or the previous stop. Esc ends the presentation."
    ),
    "present.alone": _("Esc ends the presentation."),
    "present.panel": _("Panel {at} / {of}"),
    "present.back": _("Previous step or panel"),
    "present.on": _("Next step or panel"),
    "present.end": _("End the presentation"),
}


def words(lang: str) -> dict[str, str]:
    """Return the page's strings by name, in a language.

    Errors: a ValueError if the language is unknown.

    >>> words("es")["shell.language"]
    'Idioma'
    """
    say = Say(lang).translate
    of_views = (panel.words for view in VIEWS for panel in view.panels)
    every = (WORDS, *of_views, stored_answers.WORDS)
    return {name: say(sentence) for part in every for name, sentence in part.items()}


LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}


def why_not(view: str, kind: Kind | None) -> str | None:
    """Return the name of the string that says why a view is unavailable; None if it is available.

    >>> why_not("alignment", "write"), why_not("steps", None)
    ('alignment.none', None)
    """
    (found,) = (each for each in VIEWS if each.name == view)
    return None if kind in found.kinds else f"{view}.none"


def first_view(subject: StudioSubject, kind: Kind | None) -> str:
    """Return the view that a page opens with: a prompt, and the heads of the model that reads it.

    >>> first_view(StudioSubject(), None)
    'prompt'
    """
    if kind is None or subject.folder is None:
        return "prompt"
    if kind in ("weights", "vision"):
        return "atlas" if kind == "weights" else "picture"
    # A run that has not validated yet has no model to read with.
    return "prompt" if kind == "model" or RunFolder(subject.folder).weights.exists() else "training"


def about(studio: Studio, say: Say | None = None) -> dict[str, Any]:
    """Describe a studio as JSON: its subject, views, limits, languages and colors.

    `models` are the names of all models, if there are several;
    `views` maps each view to None, or to the name of the string that says why it is unavailable;
    `first` is the view that the page opens with;
    `tour` is "own" if the page is to begin with a tour that was given;
    `problem` says what is wrong with the folder, in the language of `say`.

    >>> told = about(Studio())
    >>> told["subject"], told["views"]["steps"], told["views"]["training"]
    ({'name': None, 'path': None, 'kind': None, 'problem': None}, None, 'training.none')
    """
    subject, kind, problem = studio.subject, None, None
    try:
        kind = subject.kind
    except (ValueError, OSError) as error:
        problem = str(error) if say is None else say.translated(error)
    return {
        "version": __version__,
        "id": studio.id,
        "subject": {
            "name": subject.label,
            "path": subject.name,
            "kind": kind,
            "problem": problem,
        },
        "models": _labels([subject, *studio.others]) if studio.others else [],
        "views": {view.name: why_not(view.name, kind) for view in VIEWS},
        "first": first_view(subject, kind),
        "limits": asdict(studio.limits),
        "languages": LANGUAGES,
        "palette": palette(),
        "tour": "built_in" if studio.tour is None else "own",
    }


def _labels(subjects: Sequence[StudioSubject]) -> list[str]:
    """Return the labels of models; where several are alike, their paths."""
    labels = [str(each.label) for each in subjects]
    return [
        label if labels.count(label) == 1 else str(each.name)
        for label, each in zip(labels, subjects, strict=True)
    ]


def palette() -> dict[str, list[str]]:
    """Return the color map of weights, from 0 to the largest, for light and dark pages."""
    return {
        paper: [hexadecimal(paint(place, dark=paper == "dark")) for place in range(LEVELS + 1)]
        for paper in ("light", "dark")
    }


def shell_routes(routes: "Routes") -> None:
    """Add the routes that all views share."""
    studio = routes.studio
    # A character takes at least a byte; the exact size in bytes is checked on arrival.
    described = {"minLength": 1, "pattern": HAS_A_WORD, "maxLength": studio.limits.text}

    @routes.at_once("/about")
    def description(say: Say) -> dict[str, Any]:
        """Describe the studio: its subject, views, limits, languages and colors."""
        return about(studio, say)

    @routes.json("/sample")
    def sample() -> dict[str, str]:
        """Return the text that a view of the model begins with, and where it is from.

        Of a run: from its held-out part. 404 if there is no model.
        """
        return asdict(studio.subject.sample())

    @routes.at_once("/tour")
    def tour() -> dict[str, Any]:
        """Return the tour of the page: stops, each with a place and a sentence."""
        return studio.tour or built_in()

    @routes.at_once("/file")
    def file(
        title: Annotated[str, {"max_length": _LONGEST_TITLE}], lang: Language = "en"
    ) -> dict[str, str]:
        """Return the page as one HTML file, whose answers `{}` are for the page to fill in."""
        say = Say(lang)
        sentence = stored_answers.WORDS["report.noscript"]
        return {"page": document("{}", title, say.language, say(sentence)), "icon": icon()}

    @routes.at_once("/health")
    def health() -> dict[str, str]:
        """Return the identifier of this start of the studio."""
        return {"id": studio.id}

    @routes.at_once("/words")
    def spoken(lang: Language = "en") -> dict[str, str]:
        """Return the page's strings in a language: en, tr, es, zh-Hant or zh-Hans."""
        return words(lang)

    @routes.at_once("/texts", method="POST")
    def add_text(text: Annotated[str, {"json_schema_extra": described}]) -> dict[str, str]:
        """Store a text and return its name, by which views refer to it.

        413 if it has too many bytes in UTF-8.
        """
        return {"id": studio.texts.add(text)}

    @routes.at_once("/texts/{name}")
    def text(name: TextName) -> dict[str, str]:
        """Return a stored text; 410 if it is no longer stored."""
        return {"text": studio.texts[name]}
