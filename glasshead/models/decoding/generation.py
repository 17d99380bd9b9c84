"""Generation: all texts at once, or streamed token by token."""

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
    """Generate a text for each row of the prompt.

    The steps are fed the whole prompt, then the chosen tokens one at a time. A finished row leaves
    the batch, which changes nothing for the others. Scores are those of the unmodified model, log
    softmax of its logits, whatever tokens the strategy or `never` exclude or penalize.

    Args:
        steps: The model, as fresh decoding steps.
        prompt: Token ids of the prompts, padded on the left where they differ in length; the steps
            have their own record of the padding.
        strategy: `Greedy()`, `Sampling(…)` or `Beam(width)`.
        max_tokens: Maximum number of new tokens, the end token included.
        end: The end-of-sequence token, or several; without one each text has `max_tokens` tokens.
        never: Tokens to suppress, such as padding.
        rows: Row numbers, from which `Sampling` derives its random numbers; 0, 1, … if not given. A
            row draws the same in any batch in which it has the same number.
        padding: Number of padding tokens on the left of each row; used by `repetition_penalty`
            only.

    Errors: a TypeError or ValueError for invalid arguments, and where the logits leave no token to
    choose: NaN, +inf, or nothing but -inf and suppressed tokens.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
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
    """Stream the tokens of `generate`: the next one of each row, then again.

    The model runs when a token is requested. End tokens are not yielded; a row without further
    tokens has ended, or has `max_tokens`.

    Args:
        steps, prompt, strategy, max_tokens, end, never, rows, padding: See `generate`.

    Errors: as for `generate`, and a ValueError for a beam, which cannot stream.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import Greedy
    >>> p = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])     # a Markov chain
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
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
