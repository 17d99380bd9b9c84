"""The words of the view `alignment`."""

from glasshead.studio.words.marking import _

WORDS = {
    "alignment.title": _("Alignment"),
    "alignment.none": _(
        "An alignment needs a translator: start the studio with the folder of a run of glasshead"
        " train translate."
    ),
    "alignment.sentence": _("A sentence to translate"),
    "alignment.translate": _("Translate"),
    "alignment.beam": _("Width of the beam"),
    "alignment.layer": _("Layer of the decoder"),
    "alignment.head": _("Head"),
    "alignment.mean": _("mean"),
    "alignment.candidates": _("What the beam found"),
    "alignment.candidate": _("Translation"),
    "alignment.score": _("Score"),
    "alignment.ln_p": _("ln p"),
    "alignment.ranked": _(
        "By score: ln p of the whole translation, in nats, divided by "
        "((5 + tokens) / 6)^{penalty}, its end counted among the tokens."
    ),
    "alignment.cut_off": _("cut off"),
    "alignment.empty": _("(nothing)"),
    "alignment.picture": _("What each word of the translation looked at"),
    "alignment.source": _("Words of the sentence"),
    "alignment.target": _("Words of the translation"),
    "alignment.hint": _(
        "Point at a word, or move among the words with the arrow keys, to read its weights; Esc "
        "lets go."
    ),
    "alignment.took": _("“{word}” took {weights}."),
    "alignment.gave": _("“{word}” gave {weights}."),
    "alignment.from": _("{weight} from “{word}”"),
    "alignment.to": _("{weight} to “{word}”"),
    "alignment.table": _(
        "The weights, a row for each word of the translation; each row sums to 1: {what}."
    ),
    "alignment.mean_of.layer": _("mean of all layers"),
    "alignment.mean_of.head": _("mean of all heads"),
    "alignment.one.layer": _("layer {layer}"),
    "alignment.one.head": _("head {head}"),
    "alignment.nothing": _("This translation has no words, so nothing looked at the sentence."),
}
