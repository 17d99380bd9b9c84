"""Analytics: published measures of attention, computed from the result of a watch."""

from glasshead.watching.analytics.components import Component
from glasshead.watching.analytics.eviction import eviction_scores
from glasshead.watching.analytics.head_card import HeadCard
from glasshead.watching.analytics.head_cards import HeadCards, head_cards
from glasshead.watching.analytics.head_writes import HeadWrites, head_writes
from glasshead.watching.analytics.logit_parts import LogitParts, logit_parts
from glasshead.watching.analytics.patch_part import PatchPart
from glasshead.watching.analytics.prompt_maps import PromptMaps, prompt_maps, prompt_tokens
from glasshead.watching.analytics.role_scores import HeadRoles
from glasshead.watching.analytics.roles import head_roles, repeated_random_tokens
from glasshead.watching.analytics.rollout import (
    cross_gradient_rollout,
    flow,
    gradient_rollout,
    rollout,
    rollout_factors,
)
from glasshead.watching.analytics.score_parts import ScoreParts, score_parts
from glasshead.watching.analytics.sparse_patterns import Pattern, Patterns, patterns
from glasshead.watching.analytics.speech import (
    AlignmentHead,
    SpokenWord,
    alignment_heads,
    token_timestamps,
    word_timestamps,
)
from glasshead.watching.analytics.trace_back import Cause, TraceBack, trace_back
