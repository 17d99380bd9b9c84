"""Watching: the attentions of any PyTorch model, observed while it runs as it is."""

from glasshead.watching.ablating import ablate
from glasshead.watching.refusing import BudgetError, UnseenError
from glasshead.watching.seen import Seen
from glasshead.watching.watched import Call, Watched
from glasshead.watching.watching import watch

__all__ = ["BudgetError", "Call", "Seen", "UnseenError", "Watched", "ablate", "watch"]
