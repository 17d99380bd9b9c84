"""Scripts: the page's own modules as one."""

from functools import cache

from glasshead.studio.page import modules
from glasshead.studio.report.linker import linked

_ENTRY = "app.js"


@cache
def script() -> str:
    """What the studio's page runs, as one script."""
    return linked(modules(), _ENTRY)
