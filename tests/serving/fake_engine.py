"""An engine of two lines: what a watch reads of vLLM's model runner, with a paged cache of its own.

Keys of a block lie transposed, values as they came, as vLLM's do on a processor with AVX-512.
"""

from types import SimpleNamespace

import torch
from torch import nn

from glasshead.serving import plugin


class CPUAttentionBackendImpl:
    """Causal attention to a paged cache, `[blocks, kv_heads, tokens, 2 · dim]`."""

    axis = 0

    def __init__(self, heads, kv_heads, dim, *, window=None, softcap=0, slopes=None, sinks=None):
        self.num_heads, self.num_kv_heads, self.head_size = heads, kv_heads, dim
        self.scale, self.logits_soft_cap = dim**-0.5, softcap
        self.sliding_window = -1 if window is None else window
        self.alibi_slopes, self.sinks = slopes, sinks
        self.attn_type, self.kv_cache_dtype = "decoder", "auto"

    def cache_of(self, blocks, size):
        return torch.full((blocks, self.num_kv_heads, size, 2 * self.head_size), torch.nan)

    def do_kv_cache_update(self, layer, key, value, cache, slots):
        blocks, heads, size, wide = cache.shape
        parts = cache.view(blocks, heads, 2 * size, wide // 2)
        for token, slot in enumerate(slots.tolist()):
            block, place = divmod(slot, size)
            parts[block, :, :size].view(heads, wide // 2, size)[:, :, place] = key[token]
            parts[block, :, size + place] = value[token]

    def read(self, cache, table, end):
        _, heads, size, wide = cache.shape
        parts = cache[table].view(len(table), heads, 2 * size, wide // 2)
        key = parts[:, :, :size].reshape(len(table), heads, wide // 2, size).mT
        joined = (x.transpose(0, 1).flatten(1, 2)[:, :end] for x in (key, parts[:, :, size:]))
        return tuple(joined)

    def forward(self, layer, query, key, value, cache, metadata, output):
        for first, last, position, table in metadata.rows:
            end = position + last - first
            k, v = self.read(cache, table, end)
            group = self.num_heads // self.num_kv_heads
            k, v = (x.double().repeat_interleave(group, 0) for x in (k, v))
            scores = query[first:last].double().transpose(0, 1) @ k.mT * self.scale
            if self.logits_soft_cap:
                scores = self.logits_soft_cap * torch.tanh(scores / self.logits_soft_cap)
            i, j = (torch.arange(*ends, device=scores.device) for ends in ((position, end), (end,)))
            i = i[:, None]
            if self.alibi_slopes is not None:
                slopes = self.alibi_slopes.to(scores)
                scores -= slopes[:, None, None] * (i - j).abs()
            hidden = j > i
            if self.sliding_window > 0:
                hidden |= j <= i - self.sliding_window
            scores = scores.masked_fill(hidden, -torch.inf)
            lse = scores.logsumexp(-1)
            if self.sinks is not None:
                lse = torch.logaddexp(lse, self.sinks.to(lse)[:, None])
            found = (scores - lse[..., None]).exp() @ v
            output[first:last] = found.transpose(0, 1).to(output.dtype)


class FlashAttentionImpl(CPUAttentionBackendImpl):
    """The same with a cache as a GPU has it: keys before values, in memory head by head.

    Its axes are `[2, blocks, tokens, kv_heads, dim]`.
    """

    axis = 1

    def cache_of(self, blocks, size):
        shape = 2, blocks, self.num_kv_heads, size, self.head_size
        return torch.full(shape, torch.nan).transpose(2, 3)

    def do_kv_cache_update(self, layer, key, value, cache, slots):
        places = slots // cache.shape[2], slots % cache.shape[2]
        for part, given in zip(cache, (key, value), strict=True):
            part[places] = given

    def read(self, cache, table, end):
        return tuple(part[table].flatten(0, 1)[:end].transpose(0, 1) for part in cache)


class FakeRunner:
    """A model runner whose layers get random queries, keys and values of each token.

    Args:
        impls: The implementation of each layer.
        records: Whether `given` is kept.

    Attributes:
        given: Queries and keys of each layer and request, as they were made.
    """

    def __init__(
        self, impls, *, blocks=23, size=32, dtype=torch.float32, records=True, device="cpu"
    ):
        self.size, self.dtype, self.given, self._records = size, dtype, {}, records
        self._device = device
        self._random = torch.Generator().manual_seed(3)
        context, model = {}, nn.Module()
        model.layers = nn.ModuleList()
        for number, impl in enumerate(impls):
            cache = impl.cache_of(blocks, size).to(device, dtype)
            name = f"layers.{number}.self_attn.attn"
            layer = SimpleNamespace(impl=impl, kv_cache=cache, layer_name=name)
            context[name] = layer
            holder = nn.Module()
            holder.self_attn = nn.Module()
            model.layers.append(holder)
        self._model, self.layers = model, context
        group = SimpleNamespace(
            layer_names=[*context], kv_cache_spec=SimpleNamespace(block_size=size)
        )
        self.kv_cache_config = SimpleNamespace(num_blocks=blocks, kv_cache_groups=[group])
        self.vllm_config = SimpleNamespace(
            speculative_config=None,
            parallel_config=SimpleNamespace(tensor_parallel_size=1, rank=0),
            compilation_config=SimpleNamespace(static_forward_context=context, cudagraph_mode=None),
            device_config=SimpleNamespace(device_type="cpu"),
        )
        self.requests, self._free = {}, [*range(1, blocks)]
        self.input_batch = SimpleNamespace(req_ids=[], num_computed_tokens_cpu=[])

    def get_model(self):
        return self._model

    def step(self, counts, *, finished=(), preempted=()):
        """Run a step: so many tokens of each request, by name."""
        scheduled = SimpleNamespace(
            num_scheduled_tokens=counts,
            finished_req_ids=set(finished),
            preempted_req_ids=set(preempted),
        )
        # As a scheduler does, blocks are given to others before workers hear of it.
        for name in (*finished, *preempted):
            self._free = self.requests[name].block_ids[0] + self._free
        new = {}
        for name, count in counts.items():
            state = self.requests.get(name)
            if state is None or name in preempted:
                params = SimpleNamespace(extra_args=None)
                state = SimpleNamespace(block_ids=([],), computed=0, sampling_params=params)
            new[name] = state
            while len(state.block_ids[0]) * self.size < state.computed + count:
                state.block_ids[0].append(self._free.pop(0))
        scheduled.new = new
        return self.execute_model(scheduled)

    def execute_model(self, scheduled):
        for name in (*scheduled.finished_req_ids, *scheduled.preempted_req_ids):
            del self.requests[name]
        self.requests |= scheduled.new
        counts = scheduled.num_scheduled_tokens
        self._overwrite_passed([self.requests[name] for name in counts])
        states = [self.requests[name] for name in counts]
        self.input_batch.req_ids = [*counts]
        self.input_batch.num_computed_tokens_cpu = [one.computed for one in states]
        first, rows, slots = 0, [], []
        for name, state in zip(counts, states, strict=True):
            last, table = first + counts[name], torch.tensor(state.block_ids[0])
            rows.append((first, last, state.computed, table))
            places = torch.arange(state.computed, state.computed + counts[name])
            slots.append(table[places // self.size] * self.size + places % self.size)
            first = last
        metadata = SimpleNamespace(rows=rows, causal=True)
        for layer in self.layers.values():
            self._attend(layer, first, rows, torch.cat(slots), metadata)
        for name, state in zip(counts, states, strict=True):
            state.computed += counts[name]

    def _overwrite_passed(self, states):
        """Give the blocks that no later query of a window sees to another request."""
        for layer in self.layers.values():
            window = layer.impl.sliding_window
            for state in states if window > 0 else ():
                passed = max(0, state.computed - window + 1) // self.size
                layer.kv_cache.movedim(layer.impl.axis, 0)[state.block_ids[0][:passed]] = 1e3

    def _attend(self, layer, tokens, rows, slots, metadata):
        impl = layer.impl
        query, key, value = (
            torch.randn(tokens, heads, impl.head_size, generator=self._random).to(
                self._device, self.dtype
            )
            for heads in (impl.num_heads, impl.num_kv_heads, impl.num_kv_heads)
        )
        named = zip(rows, self.input_batch.req_ids, strict=True)
        for (first, last, position, _), name in named if self._records else ():
            known = self.given.setdefault((layer.layer_name, name), [])
            # What is computed again after a preemption replaces nothing that was seen.
            known.append((position, query[first:last].cpu().clone(), key[first:last].cpu().clone()))
        slots = slots.to(self._device)
        impl.do_kv_cache_update(layer, key, value, layer.kv_cache, slots)
        output = torch.empty_like(query)
        impl.forward(layer, query, key, value, layer.kv_cache, metadata, output)
        # A compiled model writes over what it no longer needs.
        query.fill_(torch.nan)
        output.fill_(torch.nan)


class FakeLLM:
    """An engine whose only worker has this model runner."""

    def __init__(self, runner):
        self.worker = SimpleNamespace(model_runner=runner)

    def collective_rpc(self, method, args=()):
        return [getattr(plugin, method)(self.worker, *args)]
