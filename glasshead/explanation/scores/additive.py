"""A score by a small network."""

import torch
from torch import Tensor

from glasshead.explanation.figures import products, short_vector
from glasshead.explanation.scores.telling import ScoreTelling, by_key
from glasshead.explanation.subject import Subject
from glasshead.recipe.scores import Additive


def tell_additive(subject: Subject) -> ScoreTelling:
    """The hidden layer h as a vector, then its product with v."""
    say, score = subject.say, subject.problem.score
    if not isinstance(score, Additive):
        raise TypeError(f"tell_additive takes an Additive score, and got {type(score).__name__}.")
    v = score.v.detach().cpu().tolist()

    def written(query: list[float], key: list[float]) -> str:
        hidden = _hidden(score, query, key).tolist()
        return f"v·tanh(…) = {products(v, hidden, say)}"

    return ScoreTelling(
        "s = v·tanh(W_query·q + W_key·k)",
        (f"v = {short_vector(v)}", "", *by_key(subject, written)),
        say(
            "Why a network: two matrices, W_query and W_key, bring query and key into one common "
            "space, tanh squeezes each number of their sum to between −1 and 1, and the vector v "
            "weighs these numbers. All three are learned, so the network itself finds out what "
            "fits what. The attention that first learned to translate worked this way (Bahdanau et "
            "al., 2015)."
        ),
    )


def _hidden(score: Additive, query: list[float], key: list[float]) -> Tensor:
    """tanh(W_query·q + W_key·k) for one pair."""
    with torch.no_grad():
        layers = score.W_query.weight.double().cpu(), score.W_key.weight.double().cpu()
        query_part, key_part = (
            layer @ torch.tensor(vector, dtype=torch.float64)
            for layer, vector in zip(layers, (query, key), strict=True)
        )
        return torch.tanh(query_part + key_part)
