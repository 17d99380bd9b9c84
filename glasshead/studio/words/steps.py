"""The words of the view `steps`."""

from glasshead.studio.words.marking import _

WORDS = {
    "steps.title": _("Steps"),
    "steps.sentence": _("A sentence of your own"),
    "steps.show": _("Show"),
    "steps.example": _("The worked example"),
    "steps.choices": _("Choices"),
    "steps.beta": _("Sharpness β, from soft to hard"),
    "steps.mask": _("Mask"),
    "steps.mask.none": _("none"),
    "steps.mask.causal": _("causal"),
    "steps.mask.window": _("window"),
    "steps.normalizer": _("Normalizer"),
    "steps.heads": _("Heads"),
    "steps.head": _("Head shown, from 0"),
    "steps.query": _("Explained word"),
    "steps.matrices": _("The matrices, in the order in which they are computed"),
    "steps.queries": _("Queries"),
    "steps.keys": _("Keys"),
    "steps.values": _("Values"),
    "steps.scores": _("Scores"),
    "steps.scaled": _("Scaled"),
    "steps.masked": _("Masked"),
    "steps.weights": _("Weights"),
    "steps.context": _("Context"),
    "steps.sum": _("The sum that made the cell"),
    "steps.full": _("in full"),
    "steps.hint": _(
        "Point at a cell, or walk with Tab and the arrow keys; Enter explains the word of the row."
    ),
    "steps.words": _("In words"),
    "steps.legend": _("How the colours are read"),
    "steps.positive": _("full: above 0"),
    "steps.negative": _("hollow: below 0"),
    "steps.hidden": _("hatched: hidden"),
    "steps.made": _("framed: what the cell is made of"),
    "steps.of.queries": _("Number {number} of the query of “{word}”"),
    "steps.of.keys": _("Number {number} of the key of “{word}”"),
    "steps.of.values": _("Number {number} of the value of “{word}”"),
    "steps.of.scores": _("Score: how well the key of “{key}” fits the query of “{query}”"),
    "steps.of.scaled": _("Scaled score of “{query}” and “{key}”"),
    "steps.of.masked": _("Score of “{query}” and “{key}” behind the mask"),
    "steps.of.weights": _("Weight: how much “{query}” takes of “{key}”"),
    "steps.of.context": _("Number {number} of the context of “{word}”"),
    "steps.embedding": _("It is number {number} of the embedding x of the word, as it is."),
    "steps.seen": _("The mask lets “{query}” see “{key}”: the score stays as it is."),
    "steps.seen.none": _("There is no mask: the score stays as it is."),
    "steps.hides.causal": _(
        "“{key}” comes after “{query}”, and the causal mask hides what comes later."
    ),
    "steps.hides.window": _(
        "“{key}” is more than one word away from “{query}”, and the window ends there."
    ),
    "steps.nothing": _("The key is hidden, and what is hidden gets no weight."),
    "steps.largest": _("The score is the largest of the row, so its key gets all the weight."),
    "steps.first": _("Of equal scores the first one wins, so its key gets all the weight."),
    "steps.second": _("An equal score stands before it and wins, so this key gets nothing."),
    "steps.smaller": _("A larger score stands in the row, so this key gets nothing."),
    "steps.sparse": _("τ is chosen so that the weights of the row add up to 1."),
    "steps.sink": _("The first term of Σ is the sink, which takes weight and gives no value."),
    "steps.shifted": _(
        "The largest score m = {largest} is subtracted from each score, which changes nothing."
    ),
    "steps.hard": _("β = ∞ gives all the weight to the largest score, as HardMax does."),
}
