"""Watching: observe the attention of any PyTorch model while it runs unchanged."""

from glasshead.watching.errors import BudgetError, UnseenError
from glasshead.watching.layer_record import Call, Watched
from glasshead.watching.seen import Seen
from glasshead.watching.watch_and_ablate import ablate, watch

__all__ = ["BudgetError", "Call", "Seen", "UnseenError", "Watched", "ablate", "watch"]
