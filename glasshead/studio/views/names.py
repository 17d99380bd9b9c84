"""Names: the views in their order, and of what each can be had."""

from typing import TYPE_CHECKING

from glasshead.tasks.data.sentences import HELD_OUT

if TYPE_CHECKING:
    from glasshead.studio.subject import Kind

VIEWS = ("steps", "heads", "alignment", "atlas", "training")
_OF: "dict[str, tuple[Kind | None, ...]]" = {
    "steps": (None, "classify", "translate", "write", "model", "weights"),
    "heads": ("classify", "translate", "write", "model"),
    "alignment": ("translate",),
    "atlas": ("classify", "translate", "write", "model", "weights"),
    "training": ("classify", "translate", "write"),
}
_STORY = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big red ball. She wanted to play with it, but it was too high."
)
_REVIEW = "The film was not bad at all. I would watch it again, and so would my sister."


def why_not(view: str, kind: "Kind | None") -> str | None:
    """The name of the sentence that says why there is no such view; None where there is one.

    >>> why_not("alignment", "write"), why_not("steps", None)
    ('alignment.none', None)
    """
    return None if kind in _OF[view] else f"{view}.none"


def samples(kind: "Kind | None") -> dict[str, str]:
    """What views show before anybody has written a text."""
    text = {"translate": HELD_OUT.german, "classify": _REVIEW}.get(kind or "", _STORY)
    return {"heads": text, "atlas": text, "alignment": HELD_OUT.german}
