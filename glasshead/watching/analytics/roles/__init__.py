"""Roles: what each head of a model looks at, by the published scores, and what it is called."""

from glasshead.watching.analytics.roles.finding import head_roles
from glasshead.watching.analytics.roles.repeating import repeated_random_tokens
from glasshead.watching.analytics.roles.result import HeadRoles

__all__ = ["HeadRoles", "head_roles", "repeated_random_tokens"]
