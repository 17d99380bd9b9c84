"""Exercises of the view `steps`: weights to predict, and arrows to drag."""

from glasshead.message import _
from glasshead.studio.panel import Panel

WORDS = {
    "practice.title": _("What to do"),
    "practice.watch": _("Watch"),
    "practice.predict": _("Predict a weight"),
    "practice.drag": _("Drag the arrows"),
    "predict.none": _("Each query sees a single key, so there is no weight to predict."),
    "predict.round": _("Round {round} of {of}"),
    "predict.ask": _(
        "How much weight does “{query}” give to “{key}”? Its bar starts at an equal share. Drag it."
    ),
    "predict.guess": _("Your guess for “{key}”"),
    "predict.score": _("Show the score"),
    "predict.power": _("Show the power of e"),
    "predict.sum": _("Show the sum"),
    "predict.weight": _("Show the weight"),
    "predict.next": _("Next round"),
    "predict.result": _("Show the result"),
    "predict.says.score": _("The score says how well the key of “{key}” matches the query."),
    "predict.says.power": _(
        "The score becomes a power of e. If scores are far from 0, the largest is subtracted first."
    ),
    "predict.says.sum": _("The powers of all keys add up."),
    "predict.off": _("You guessed {guess}, and the weight is {weight}: the difference is {off}."),
    "predict.done": _(
        "Mean difference over {rounds} rounds: {mean}. Your best guess was “{query}” → “{key}”, "
        "with a difference of {least}."
    ),
    "predict.others": _("{count} other keys (sum)"),
    "predict.shares": _("Your guess, and how the other keys would share the rest"),
    "predict.pair": _("Query → key"),
    "predict.guessed": _("Guess"),
    "predict.difference": _("Difference"),
    "predict.again": _("More rounds"),
    "drag.says": _(
        "Drag the tip of an arrow. A score is |q|·r: the length of q times r, the signed length of "
        "the key's projection onto q. r is negative if the key points away from q."
    ),
    "drag.keyboard": _("The arrow keys move the arrow that is chosen."),
    "drag.none": _("Vectors of one number have no plane. Choose fewer heads."),
    "drag.unknown": _(
        "The weights of this head do not follow from its queries and keys alone, so its arrows "
        "cannot be dragged."
    ),
    "drag.scores": _(
        "This plane contains q, so each score is exact. It keeps {share}\u00a0% of the squared "
        "lengths of the keys that have an arrow."
    ),
    "drag.rest": _(
        "This plane shows two numbers of each vector. The formula adds the products of the other "
        "numbers after its plus sign."
    ),
    "drag.share": _("This plane keeps {share}\u00a0% of the squared length of c."),
    "drag.path": _("Dotted: the sum of the weighted values."),
    "drag.others": _("Gray dots: other keys."),
    "drag.keys": _("Query and keys"),
    "drag.values": _("Values and context"),
    "drag.plane": _("Numbers in the plane"),
    "drag.pair": _("{one} and {other}"),
    "drag.reset": _("Reset"),
    "drag.weight": _("weight {weight}"),
}

PANEL = Panel(words=WORDS)
