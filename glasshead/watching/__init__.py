"""Watching: observe the attention of any PyTorch model while it runs unchanged."""

from glasshead.watching.attention_map import AttentionMap
from glasshead.watching.errors import BudgetError, UnseenError
from glasshead.watching.layer_record import Watched
from glasshead.watching.mixers.weights import ImpliedWeights
from glasshead.watching.recorded_call import Call
from glasshead.watching.seen import Seen
from glasshead.watching.watch_and_intervene import ablate, intervene, watch

__all__ = [
    "AttentionMap",
    "BudgetError",
    "Call",
    "ImpliedWeights",
    "Seen",
    "UnseenError",
    "Watched",
    "ablate",
    "intervene",
    "watch",
]
