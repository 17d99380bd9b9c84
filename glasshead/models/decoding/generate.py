"""The two verbs of decoding: all texts at once, or token by token."""

from collections.abc import Iterator, Sequence

from jaxtyping import Int
from torch import Tensor

from glasshead.models.decoding.request import Chosen, Generated, Steps, requested
from glasshead.models.decoding.strategies import Strategy


def generate(
    steps: Steps,
    prompt: Int[Tensor, "rows length"],
    strategy: Strategy,
    *,
    max_tokens: int,
    end: int | Sequence[int] | None = None,
    never: Sequence[int] = (),
    rows: Sequence[int] | None = None,
    padding: Sequence[int] | Int[Tensor, " rows"] | None = None,
) -> Generated:
    """A text for each row of the prompt.

    The steps are fed the whole prompt, and then what was chosen, one token at a time. A row that
    ended leaves the batch: the others go on alone, and give what they give without it. Scores are
    of the model as it is, log softmax of its logits, whatever the strategy or `never` leave out or
    make less likely.

    Args:
        steps: The model, which remembers nothing yet.
        prompt: The beginning of each text, padded at the left where they are of unequal lengths;
            the steps know by themselves what is padding.
        strategy: `Greedy()`, `Sampling(…)` or `Beam(width)`.
        max_tokens: How many tokens are chosen for a text at most, its end with them.
        end: The token after which a text is over, or several of them; without one each text has
            `max_tokens` tokens.
        never: Tokens that are not to be chosen, such as those of padding.
        rows: The number of each row, for `Sampling`; 0, 1, … if not given. A row draws the same in
            any batch in which it has the same number.
        padding: How many tokens at the left of each row are padding, which repeats nothing; asked
            by a `repetition_penalty` alone.

    Errors: a TypeError or ValueError for arguments that do not fit, and where the steps give
    logits that leave no token to choose: NaN, +inf, or nothing but -inf and what is never chosen.

    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> from glasshead.models.decoding.chain import Chain
    >>> chain = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> generated = generate(chain, torch.tensor([[0], [1]]), Greedy(), max_tokens=3, end=2)
    >>> generated.tokens, generated.ended                        # 0 → 1 → 2 and 1 → 2
    ([[1], []], [True, True])
    >>> [f"{score:.4f}" for score in generated.scores]           # ln(0.5 · 0.6) and ln 0.6
    ['-1.2040', '-0.5108']
    """
    request = requested(
        steps, prompt, max_tokens=max_tokens, end=end, never=never, rows=rows, padding=padding
    )
    return _checked(strategy).decode(request)


def stream(
    steps: Steps,
    prompt: Int[Tensor, "rows length"],
    strategy: Strategy,
    *,
    max_tokens: int,
    end: int | Sequence[int] | None = None,
    never: Sequence[int] = (),
    rows: Sequence[int] | None = None,
    padding: Sequence[int] | Int[Tensor, " rows"] | None = None,
) -> Iterator[Chosen]:
    """The tokens of `generate` as they come: the next one of each row, then again.

    The model works when a token is asked for. The end is not among the tokens; a row that has no
    more of them has ended, or has `max_tokens`.

    Args:
        steps, prompt, strategy, max_tokens, end, never, rows, padding: As for `generate`.

    Errors: as for `generate`, and a ValueError for a beam, which cannot stream.

    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> from glasshead.models.decoding.chain import Chain
    >>> chain = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> for row, token, _ in stream(chain, torch.tensor([[0], [1]]), Greedy(), max_tokens=2):
    ...     print(row, token)
    0 1
    1 2
    0 2
    1 0
    """
    request = requested(
        steps, prompt, max_tokens=max_tokens, end=end, never=never, rows=rows, padding=padding
    )
    turns = _checked(strategy).turns(request)
    chosen = (Chosen(*one) for turn in turns for one in zip(*turn, strict=True))
    return (one for one in chosen if one.token not in request.ends)


def _checked(strategy: Strategy) -> Strategy:
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        raise TypeError(
            f"strategy takes an object such as Greedy(), and got the class {strategy.__name__}: "
            f"write {strategy.__name__}(…)."
        )
    raise TypeError(
        f"strategy takes Greedy(), Sampling(…) or Beam(width), and got {type(strategy).__name__}."
    )
