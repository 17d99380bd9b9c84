"""The words of a report, beside those of its views."""

from glasshead.studio.words.marking import _

WORDS = {
    "report.missing": _("This report does not contain that: the studio shows it, given the model."),
    "report.noscript": _("This page needs JavaScript, all of which is in the file itself."),
    "report.sentence": _(
        "This is the beginning of the text (words and marks: {count}): the studio takes any "
        "sentence."
    ),
    "report.heads": _(
        "To keep the file small, it holds the whole maps of {kept} of the {of} heads: the studio "
        "shows all."
    ),
    "report.sentences": _(
        "This is the beginning of the text (sentences: {count}): the studio takes any sentence."
    ),
}
