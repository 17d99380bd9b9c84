"""The words around all views."""

from glasshead.studio.words.marking import _

WORDS = {
    "shell.title": _("glasshead studio"),
    "shell.views": _("Views"),
    "shell.language": _("Language"),
    "shell.nothing": _("no model: the worked example"),
    "shell.save": _("Save the picture"),
    "shell.png": _("PNG"),
    "shell.svg": _("SVG"),
    "shell.gone": _(
        "The studio does not answer. Perhaps it was stopped: start it again, and this page will "
        "continue by itself."
    ),
    "shell.back": _("The studio is back."),
    "shell.fault": _("The page has a fault here ({error}): please report it."),
    "shell.how": _("These commands train a small translator, and open it here:"),
    "shell.again": _("Try again"),
    "shell.choose": _("Choose a text"),
    "shell.text": _("Text, of any length"),
    "shell.file": _("or a text file"),
    "shell.read": _("Read"),
    "shell.large": _("A text takes at most {most} bytes, and this file has {size}: take a part."),
    # Between the parts of a list.
    "shell.comma": _(", "),
    "shell.skip": _("Skip to the view"),
}
