"""Reviews: short ones of films, made up, in which a negation decides what is meant."""

from glasshead.tasks.reviews.telling import Review, held_out, reviews
