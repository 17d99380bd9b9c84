"""Analytics: published measures of attention, computed from the result of a watch."""

from glasshead.watching.analytics.eviction import eviction_scores
from glasshead.watching.analytics.role_scores import HeadRoles
from glasshead.watching.analytics.roles import head_roles, repeated_random_tokens
from glasshead.watching.analytics.rollout_and_flow import flow, rollout
from glasshead.watching.analytics.sparse_patterns import Pattern, Patterns, patterns
