"""The words of the view `atlas`."""

from glasshead.studio.words.marking import _

WORDS = {
    "atlas.title": _("Atlas"),
    "atlas.none": _(
        "The atlas is a map of the attention of a long text: start the studio with the folder of a "
        "model, or with a file of stored weights."
    ),
    "atlas.reading": _("Reading the text…"),
    "atlas.surveying": _("Going once through every pair of tokens…"),
    "atlas.part": _("The model reads the beginning of the text: {length} of its {of} tokens."),
    "atlas.layer": _("Layer"),
    "atlas.matrix": _("Matrix"),
    "atlas.head": _("Head"),
    "atlas.whose": _("layer {layer}, head {head}"),
    "atlas.whose_stored": _("matrix {layer}, head {head}"),
    "atlas.scale": _("Colours"),
    "atlas.log": _("logarithmic"),
    "atlas.linear": _("linear"),
    "atlas.top": _("Top of the colour scale"),
    "atlas.zoom": _("Zoom"),
    "atlas.closer": _("Closer"),
    "atlas.further": _("Further away"),
    "atlas.all": _("All"),
    "atlas.whole": _("The whole map"),
    "atlas.legend": _("mean weight of one key"),
    "atlas.map": _(
        "Attention map: queries from top to bottom ({queries}), keys from left to right ({keys})"
    ),
    "atlas.keys": _(
        "Drag or use the arrow keys to move the map, the wheel or + and − to zoom, Home for the "
        "whole; Shift and the arrow keys move the cross-hair by one cell."
    ),
    "atlas.query": _("Query {from}"),
    "atlas.key": _("Key {from}"),
    "atlas.queries": _("Queries {from} to {to}"),
    "atlas.keys_at": _("Keys {from} to {to}"),
    "atlas.single": _("the weight that query {query} gives to key {key}"),
    "atlas.mean": _(
        "the weight that a query gives to all of these keys together, on average (queries: "
        "{queries}, keys: {keys})"
    ),
}
