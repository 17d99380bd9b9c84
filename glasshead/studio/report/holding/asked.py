"""Asked: what a report is of."""

from dataclasses import dataclass

from glasshead.studio.studio import Studio
from glasshead.studio.work import Work


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What each view is to tell of.

    Attributes:
        studio: Whose subject it is.
        text: What is read.
        name: What the studio calls the text.
        lang: In which language.
        work: Is told how far it is.
    """

    studio: Studio
    text: str
    name: str
    lang: str
    work: Work
