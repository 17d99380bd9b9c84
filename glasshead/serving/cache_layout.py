"""Where an attention of vLLM puts each number of a block of its paged cache."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

# bfloat16 holds whole numbers up to 256: a place is stored as two digits.
_BASE = 128


class Strides(NamedTuple):
    """Places of a block that are a sum of steps: those of heads, tokens and features."""

    first: int
    head: int
    token: int
    feature: int


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
        order: The place of each number of keys and of values, `[heads, tokens, features]`.
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
        """Copy the keys of some tokens of a request, `[kv_heads, tokens, dim]`.

        Args:
            cache: The cache of a layer.
            blocks: The numbers of the request's blocks, in order.
            first, last: The first token, and the one after the last.
        """
        return self._read(cache, blocks, first, last, 0)

    def values(self, cache: Tensor, blocks: Tensor, first: int, last: int) -> Tensor:
        """Copy the values of some tokens of a request, `[kv_heads, tokens, dim]`."""
        return self._read(cache, blocks, first, last, 1)

    def _read(self, cache: Tensor, blocks: Tensor, first: int, last: int, which: int) -> Tensor:
        begin = first // self.size
        blocks = blocks[begin : -(-last // self.size)].to(cache.device, torch.long)
        cache, strides, order = self.blocks_of(cache), self.strides[which], self.order[which]
        if strides is None:
            found = cache[blocks].flatten(1)[:, order.flatten().to(cache.device)]
            found = found.view(-1, *order.shape)
        else:
            offset = cache.storage_offset() + strides.first
            shape = len(cache), *order.shape
            whole = cache.as_strided(shape, (cache.stride(0), *strides[1:]), offset)
            if len(blocks) == 1:
                # A view, of which no more is copied than is asked for.
                return whole[int(blocks), :, first % self.size : (last - 1) % self.size + 1]
            found = whole[blocks]
        found = found.transpose(0, 1).reshape(order.shape[0], -1, order.shape[2])
        return found[:, first - begin * self.size : last - begin * self.size]


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
    order[head[used], token[used], feature[used]] = used
    if len(used) != order.numel() or int(order.min()) < 0:
        raise ValueError(
            f"watch_vllm needs a cache that holds each number as it is, but that of "
            f"{layer.layer_name!r} does not. Start the engine with kv_cache_dtype='auto'."
        )
    return order


def _strides(order: Tensor) -> Strides | None:
    """Return the steps by which places are a sum; None if they are not."""
    first, steps = int(order[0, 0, 0]), []
    for axis, count in enumerate(order.shape):
        one = [1 if i == axis else 0 for i in range(3)]
        steps.append(int(order[tuple(one)]) - first if count > 1 else 0)
    grid = torch.full_like(order, first)
    for axis, (count, step) in enumerate(zip(order.shape, steps, strict=True)):
        grid += torch.arange(count).view([-1 if i == axis else 1 for i in range(3)]) * step
    return Strides(first, *steps) if torch.equal(grid, order) else None
