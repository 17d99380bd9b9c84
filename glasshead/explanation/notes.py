"""Notes: what an explanation must say about where its numbers come from."""

from glasshead.explanation.language import Say


def on_made_up_embeddings(say: Say, seed: int) -> str:
    """That the numbers of the words mean nothing."""
    return say(
        "The embeddings are made up from seed {seed} and mean nothing: what the words attend "
        "to here says nothing about the words. How it is computed is real.",
        seed=seed,
    )


def on_one_of_heads(say: Say, heads: int, head: int) -> str:
    """That what follows is one of several heads."""
    return say(
        "Each vector is cut into {heads} parts of equal width, one for each head. What follows "
        "shows the part of head {head}, counted from 0.",
        heads=heads,
        head=head,
    )


def on_made_up_score(say: Say, seed: int) -> str:
    """That nobody has learned the parameters of the additive score."""
    return say(
        "The parameters of the additive score are made up from seed {seed}; a model would "
        "learn them.",
        seed=seed,
    )
