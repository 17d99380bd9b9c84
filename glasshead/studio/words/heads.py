"""The words of the view `heads`."""

from glasshead.studio.words.marking import _

WORDS = {
    "heads.title": _("Heads"),
    "heads.none": _("Heads belong to a model: start the studio with the folder of one."),
    # Text
    "heads.opening": _("Loading the model…"),
    "heads.encoding": _("Cutting the text into tokens…"),
    "heads.reading": _("The model is reading…"),
    "heads.naming": _("Finding the roles of the heads…"),
    "heads.storing": _("Storing the maps…"),
    "heads.said": _("Tokens: {tokens}. Layers: {layers}. Heads: {heads}."),
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
        "A head has a role if, over this text, the mean weight that it gives to the keys of that"
        " role is at least halfway from the weight that uniform attention would give them to 1. "
        "The table shows the scores of the open head, and how many of all heads have each role."
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
    "heads.means.previous": _("looks at the token before the query"),
    "heads.means.first": _("looks at the first token, the sink for attention that is left over"),
    "heads.means.induction": _(
        "looks at the token that followed another occurrence of the query’s token"
    ),
    "heads.means.duplicate": _("looks at another occurrence of the query’s token"),
    "heads.means.local": _("looks at tokens at most four positions away"),
    "heads.means.broad": _("looks at all tokens alike: its entropy is close to the maximum"),
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
