"""The words of a report, beside those of its views."""

from glasshead.studio.words.marking import _

WORDS = {
    "report.missing": _("This report does not hold that: the studio, with the model, shows it."),
    "report.noscript": _("This page needs JavaScript, all of which is in the file itself."),
    "report.sentence": _(
        "Of the text, these are the first {count} words and marks: the studio takes any sentence."
    ),
    "report.heads": _(
        "To keep the file small, it holds the whole maps of {kept} of the {of} heads: the studio "
        "shows all."
    ),
    "report.sentences": _(
        "Of the text, these are the first sentences, {count} in all: the studio takes any."
    ),
}
