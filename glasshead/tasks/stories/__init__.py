"""Stories: little ones, made up, for a small model to learn from."""

from glasshead.tasks.stories.telling import held_out, stories
