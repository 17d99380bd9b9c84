"""Keys: which of them belong to a role, for each query of a text."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# The roles that are a mass on some keys, in the order of `keys_of_roles`.
OF_KEYS = ("previous", "first", "induction", "duplicate", "local")
ROLES = (*OF_KEYS, "broad")


def keys_of_roles(
    tokens: Int[Tensor, "batch length"],
    queries: range,
    keys: range,
    near: int,
    first: Int[Tensor, "batch 1 1"] | int = 0,
) -> Bool[Tensor, "batch roles queries keys"]:
    """Which keys belong to each of `OF_KEYS`, of queries and keys that are counted in the text.

    Whether a query sees them is not asked here. `first` is the place of the first token of each
    text, where others before it are padding.

    >>> tokens = torch.tensor([[7, 8, 7, 8]])
    >>> for role, belongs in zip(OF_KEYS, keys_of_roles(tokens, range(2, 4), range(4), 1)[0]):
    ...     print(f"{role:9}", belongs.int().tolist())
    previous  [[0, 1, 0, 0], [0, 0, 1, 0]]
    first     [[1, 0, 0, 0], [1, 0, 0, 0]]
    induction [[0, 1, 0, 0], [0, 0, 1, 0]]
    duplicate [[1, 0, 0, 0], [0, 1, 0, 0]]
    local     [[0, 1, 1, 1], [0, 0, 1, 1]]
    """
    i = torch.arange(queries.start, queries.stop, device=tokens.device)[:, None]
    j = torch.arange(keys.start, keys.stop, device=tokens.device)
    own = tokens[:, queries.start : queries.stop, None]  # [batch, queries, 1]
    at, before = (tokens[:, None, place] for place in (j, (j - 1).clamp(min=0)))
    back = i - j
    roles = (
        back == 1,
        (j == first) & (i > first),
        (before == own) & (j > 0) & (back != 0) & (back != -1),
        (at == own) & (back != 0),
        back.abs() <= near,
    )
    shape = (len(tokens), len(queries), len(keys))
    return torch.stack([one.expand(shape) for one in roles], 1)
