"""Where an attention of vLLM puts each number of a block of its paged cache."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

# bfloat16 holds whole numbers up to 256: a place is stored as two digits.
_BASE = 128


class Strides(NamedTuple):
    """Places of a block that are a sum of steps, one of each digit of head, token and feature.

    Attributes:
        first: The place of the first number.
        sizes, steps: Of the digits of heads, then tokens, then features: of each of these the most
            significant first. In matrix tiles a token is a tile and a place in it.
    """

    first: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]


class CacheLayout:
    """The places of keys and values in a block, found by the engine's own writer.

    Layouts are private, and differ by processor and dtype: transposed, in pairs for matrix tiles,
    or as they came. The writer stores the number of each head, token and feature; where that is
    found again is its place, whatever the layout.

    Args:
        layer: An attention layer of vLLM, with its cache.
        blocks: The number of blocks in the cache.

    Attributes:
        size: The tokens of a block.
        order: Where each number of keys and of values lies in memory, counted from the beginning of
            its block, `[heads, tokens, features]`.
        strides: The same as sums of steps; None if they are not.

    Errors: a ValueError if the cache does not hold each number as it is.
    """

    def __init__(self, layer: Any, blocks: int) -> None:
        impl, cache = layer.impl, layer.kv_cache
        # A block may be an axis of keys and values, or come after it.
        self._axis = list(cache.shape).index(blocks)
        numbers = cache.numel() // blocks
        self.size = numbers // (2 * impl.num_kv_heads * impl.head_size)
        self.order = [_order(layer, self._axis, self.size, which) for which in range(2)]
        self.strides = [_strides(order) for order in self.order]

    def blocks_of(self, cache: Tensor) -> Tensor:
        """Return the cache with the blocks as its first axis."""
        return cache.movedim(self._axis, 0)

    def keys(self, cache: Tensor, blocks: Tensor, first: int, last: int) -> Tensor:
        """Copy the keys of some tokens of requests, `[..., kv_heads, tokens, dim]`.

        Args:
            cache: The cache of a layer.
            blocks: The numbers of each request's blocks, in order, `[..., blocks]`.
            first, last: The first token, and the one after the last.
        """
        return self._read(cache, blocks, first, last, 0)

    def values(self, cache: Tensor, blocks: Tensor, first: int, last: int) -> Tensor:
        """Copy the values of some tokens of requests, `[..., kv_heads, tokens, dim]`."""
        return self._read(cache, blocks, first, last, 1)

    def _read(self, cache: Tensor, blocks: Tensor, first: int, last: int, which: int) -> Tensor:
        begin = first // self.size
        blocks = blocks[..., begin : -(-last // self.size)].to(cache.device, torch.long)
        cache, strides, order = self.blocks_of(cache), self.strides[which], self.order[which]
        numbers = blocks.flatten()
        if strides is None:
            places = numbers[:, None] * cache.stride(0) + order.flatten().to(cache.device)
            found = cache.as_strided((cache.untyped_storage().nbytes() // cache.itemsize,), (1,), 0)
            found = found[cache.storage_offset() + places]
        else:
            offset = cache.storage_offset() + strides.first
            sizes, steps = (len(cache), *strides.sizes), (cache.stride(0), *strides.steps)
            found = cache.as_strided(sizes, steps, offset)[numbers]
        found = found.reshape(*blocks.shape, *order.shape).transpose(-4, -3).flatten(-3, -2)
        return found[..., first - begin * self.size : last - begin * self.size, :]


def _order(layer: Any, axis: int, size: int, which: int) -> Tensor:
    """Return the place of each number of keys, 0, or values, 1, in a block."""
    impl, cache = layer.impl, layer.kv_cache
    shape = size, impl.num_kv_heads, impl.head_size
    numbers = torch.zeros(3, cache.numel() // cache.shape[axis], dtype=torch.long)
    for place, digit in ((p, d) for p in range(3) for d in (1, _BASE)):
        counted = torch.arange(shape[place]) // digit % _BASE + 1
        counted = counted.view([-1 if i == place else 1 for i in range(3)]).expand(shape)
        counted = counted.to(cache.device, cache.dtype).contiguous()
        others = torch.zeros_like(counted)
        block = torch.zeros_like(cache.select(axis, 0)).unsqueeze(axis)
        key, value = (counted, others) if which == 0 else (others, counted)
        slots = torch.arange(size, device=cache.device)
        impl.do_kv_cache_update(layer, key, value, block, slots)
        # Where nothing was stored, -1 in the first digit is below all places.
        numbers[place] += (block.flatten().cpu().long() - 1) * digit
    token, head, feature = numbers
    used = (token >= 0).nonzero().squeeze(1)
    order = torch.full((shape[1], shape[0], shape[2]), -1)
    order[head[used], token[used], feature[used]] = _memory(cache.select(axis, 0))[used]
    if len(used) != order.numel() or int(order.min()) < 0:
        raise ValueError(
            f"watch_vllm needs a cache that holds each number as it is, but that of "
            f"{layer.layer_name!r} does not. Start the engine with kv_cache_dtype='auto'."
        )
    return order


def _memory(block: Tensor) -> Tensor:
    """Return where each number of a block lies in memory, in the order of its axes."""
    places = torch.tensor(0)
    for size, step in zip(block.shape, block.stride(), strict=True):
        places = places[..., None] + torch.arange(size) * step
    return places.flatten()


def _strides(order: Tensor) -> Strides | None:
    """Return the steps by which places are a sum; None if they are not."""
    first = int(order[0, 0, 0])
    lines = order[:, 0, 0], order[0, :, 0], order[0, 0, :]
    digits = [digit for line in lines for digit in _digits(line.tolist())]
    grid = torch.tensor(first)
    for size, step in digits:
        grid = grid[..., None] + torch.arange(size) * step
    if not torch.equal(grid.view(order.shape), order):
        return None
    return Strides(first, tuple(size for size, _ in digits), tuple(step for _, step in digits))


def _digits(places: list[int]) -> list[tuple[int, int]]:
    """Return the sizes and steps of the digits of a number, by the places of all its values.

    A digit is as large as one step allows: halves, and what is odd at last.
    """
    found, weight = list[tuple[int, int]](), 1
    while weight < len(places):
        size = 2 if len(places) // weight % 2 == 0 else len(places) // weight
        step = places[weight] - places[0]
        if found and step == found[0][0] * found[0][1]:
            found[0] = found[0][0] * size, found[0][1]
        else:
            found.insert(0, (size, step))
        weight *= size
    return found
