"""The words of the view `heads`."""

from glasshead.studio.words.marking import _

WORDS = {
    "heads.title": _("Heads"),
    "heads.none": _("Heads are seen of a model: start the studio with the folder of one."),
    # Text
    "heads.opening": _("The model is loaded …"),
    "heads.encoding": _("The text is cut into tokens …"),
    "heads.reading": _("The model reads …"),
    "heads.naming": _("The roles of the heads are found …"),
    "heads.storing": _("The maps are stored …"),
    "heads.said": _("{tokens} tokens, {layers} layers, {heads} heads."),
    "heads.cut": _("The text is cut: the model read {tokens} of its {of} tokens."),
    # Controls
    "heads.scale": _("Colour"),
    "heads.linear": _("linear"),
    "heads.log": _("logarithmic"),
    "heads.sink": _("With the first token"),
    # Grid
    "heads.grid": _("All heads, a row a layer"),
    "heads.layer": _("layer"),
    "heads.head": _("head"),
    "heads.one": _("Layer {layer}, head {head}: {role}, mean entropy {entropy} nats"),
    "heads.absent": _("This file does not hold the whole map of this head."),
    "heads.under": _(
        "A row of a map is a query, a column a key. Below it stand the head's role and the mean "
        "entropy of its queries in nats. Arrow keys go from map to map, Enter opens one."
    ),
    # Roles
    "heads.roles": _("Roles"),
    "heads.roles_told": _(
        "A head has a role where the mean weight on its keys lies at least half of the way from "
        "what an even look would give to 1, over this text. Below are the scores of the open head, "
        "and how many of all heads have the role."
    ),
    "heads.role": _("Role"),
    "heads.score": _("Score"),
    "heads.having": _("Heads"),
    "heads.role.none": _("no role"),
    "heads.role.previous": _("previous"),
    "heads.role.first": _("first"),
    "heads.role.induction": _("induction"),
    "heads.role.duplicate": _("duplicate"),
    "heads.role.local": _("local"),
    "heads.role.broad": _("broad"),
    "heads.means.previous": _("looks at the token before its own"),
    "heads.means.first": _("looks at the first token, the sink of what is left over"),
    "heads.means.induction": _("looks at what followed another place of its token"),
    "heads.means.duplicate": _("looks at another place of its token"),
    "heads.means.local": _("looks at tokens at most four away"),
    "heads.means.broad": _("looks at all alike: its entropy is nearly the largest"),
    # One head
    "heads.open": _("The head that is open"),
    "heads.named": _("Layer {layer}, head {head}"),
    "heads.map": _(
        "Map of the head, a row a query, a column a key: arrow keys, Home, End, Page up and Page "
        "down move the cross-hair"
    ),
    "heads.pooled": _("Each pixel shows the largest of the weights in it."),
    "heads.readout": _("Under the cross-hair"),
    "heads.query": _("Query"),
    "heads.key": _("Key"),
    "heads.weight": _("Weight"),
    "heads.rank": _("Rank among its keys"),
    "heads.of": _("{rank} of {count}"),
    "heads.entropy": _("Entropy"),
    "heads.distance": _("Mean distance"),
    "heads.received": _("Mass the key receives"),
    "heads.nats": _("in nats"),
    "heads.tokens": _("in tokens"),
    "heads.text": _("The text as the query sees it"),
    "heads.text_told": _(
        "Each token is shaded by its weight for the framed one, the query. Point at a token to "
        "make it the query; the key is underlined."
    ),
}
