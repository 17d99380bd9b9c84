"""The words of the view `atlas`."""

from glasshead.studio.words.marking import _

WORDS = {
    "atlas.title": _("Atlas"),
    "atlas.none": _(
        "The atlas is a map of the attention of a long text: start the studio with the folder of a "
        "model, or with a file of stored weights."
    ),
    "atlas.reading": _("Reading the text…"),
    "atlas.surveying": _("Going through every pair of tokens, once…"),
    "atlas.part": _("The model reads {length} of the text's {of} tokens, the first ones."),
    "atlas.layer": _("Layer"),
    "atlas.matrix": _("Matrix"),
    "atlas.head": _("Head"),
    "atlas.whose": _("layer {layer}, head {head}"),
    "atlas.whose_stored": _("matrix {layer}, head {head}"),
    "atlas.scale": _("Colours"),
    "atlas.log": _("logarithmic"),
    "atlas.linear": _("linear"),
    "atlas.top": _("Darkest from"),
    "atlas.zoom": _("Zoom"),
    "atlas.closer": _("Closer"),
    "atlas.further": _("Further away"),
    "atlas.all": _("All"),
    "atlas.whole": _("The whole map"),
    "atlas.legend": _("mean weight of one key"),
    "atlas.map": _("Map of the attention of {queries} queries, downwards, to {keys} keys"),
    "atlas.keys": _(
        "Drag or use the arrow keys to move the map, the wheel or + and − to zoom, Home for the "
        "whole; Shift and the arrow keys move the cross-hair by one cell."
    ),
    "atlas.query": _("Query {from}"),
    "atlas.key": _("Key {from}"),
    "atlas.queries": _("Queries {from} to {to}"),
    "atlas.keys_at": _("Keys {from} to {to}"),
    "atlas.single": _("the weight that query {query} gives to key {key}"),
    "atlas.mean": _("what a query gives to these {keys} keys, in the mean over {queries} queries"),
}
