"""Analytics: what the literature asks of attention, each a small use of what was watched."""

from glasshead.watching.analytics.evicting import eviction_scores
from glasshead.watching.analytics.flowing import flow
from glasshead.watching.analytics.pattern import Pattern, Patterns
from glasshead.watching.analytics.roles import HeadRoles, head_roles, repeated_random_tokens
from glasshead.watching.analytics.rolling_out import rollout
from glasshead.watching.analytics.vertical_slash import patterns
