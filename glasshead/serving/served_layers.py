"""The attention layers of an engine that a watch selects, or one sentence why it cannot."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import causal, window
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Tile
from glasshead.serving.cache_layout import CacheLayout
from glasshead.watching.captured_call import problem_from_inputs
from glasshead.watching.layer_patterns import Layers

# The implementations whose inputs are those of `ServedLayer`, by name; all but the first have not
# been run.
_KNOWN = ("CPUAttentionBackendImpl", "FlashAttentionImpl", "TritonAttentionImpl")


class RefusalError(ValueError):
    """An engine that cannot be watched; the message says why, and what to do."""


class Slopes(Bias):
    """The linear bias of a model with slopes of its own: b_ij = -slope · |i + offset - j|.

    Args:
        slopes: A slope for each head.
    """

    hides = False
    by_distance = True
    saved = ("slopes",)

    def __init__(self, slopes: Tensor) -> None:
        super().__init__()
        self.register_buffer("slopes", slopes.detach().clone())

    def forward(self, tile: Tile) -> Tensor:
        slopes = self.get_buffer("slopes").to(tile.device, tile.dtype)
        return -slopes[:, None, None] * tile.distance().abs()


@dataclass(frozen=True, eq=False)
class ServedLayer:
    """An attention layer of vLLM.

    Attributes:
        name: The name of its module, as `watch` names it.
        layer: The layer of vLLM.
        group: The number of the group of layers that share block tables.
        blocks: How many of the cache's blocks are one of the block table's.
        layout: Where its cache holds each number.
        rank, ranks: Which part of the heads this worker computes, and of how many.
    """

    name: str
    layer: Any
    group: int
    blocks: int
    layout: CacheLayout
    rank: int
    ranks: int

    @property
    def cache(self) -> Tensor:
        """The paged cache of its keys and values."""
        return self.layer.kv_cache

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.layer.impl.num_heads

    @property
    def dim(self) -> int:
        """The numbers of a query of one head."""
        return self.layer.impl.head_size

    @cached_property
    def before(self) -> int | None:
        """How many keys before its own a query sees; None: all."""
        size = self.layer.impl.sliding_window
        if isinstance(size, tuple):
            size = size[0] + 1
        return size - 1 if size is not None and size > 0 else None

    @property
    def softcap(self) -> float | None:
        """The softcap of the scores."""
        return self.layer.impl.logits_soft_cap or None

    @property
    def sinks(self) -> Tensor | None:
        """The sink of each head."""
        sinks = getattr(self.layer.impl, "sinks", None)
        return None if sinks is None else sinks.detach().float()

    @property
    def slopes(self) -> Tensor | None:
        """The slope of each head's linear bias."""
        given = self.layer.impl.alibi_slopes
        return None if given is None else torch.as_tensor(given, dtype=torch.float32)

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """A value that is equal for layers that can be computed together."""
        impl, slopes = self.layer.impl, self.slopes
        own = self.name if self.sinks is not None else None
        sizes = impl.num_heads, impl.num_kv_heads, impl.head_size, float(impl.scale)
        rule = self.before, self.softcap, None if slopes is None else tuple(slopes.tolist()), own
        return *sizes, *rule, self.group, self.blocks, self.cache.dtype, id(self.layout)

    def block_table(self, request: Any) -> Tensor:
        """Return the numbers of the cache's blocks of a request of the model runner."""
        table = torch.tensor(request.block_ids[self.group], dtype=torch.long)
        if self.blocks == 1:
            return table
        return (table[:, None] * self.blocks + torch.arange(self.blocks)).flatten()

    def problem(self, query: Tensor, key: Tensor, value: Tensor, position: int) -> Problem:
        """Build the problem of some queries on all keys so far.

        Args:
            query: `[..., heads, queries, dim]`.
            key, value: `[..., kv_heads, keys, dim]`.
            position: That of the first query.
        """
        slopes, sinks = self.slopes, self.sinks
        return problem_from_inputs(
            query,
            key,
            value,
            scale=float(self.layer.impl.scale),
            offset=position,
            mask=causal() if self.before is None else window(before=self.before),
            softcap=self.softcap,
            bias=None if slopes is None else Slopes(slopes),
            sinks=None if sinks is None else sinks.to(query.device),
        )


def served_layers(runner: Any, patterns: str | list[str] | None) -> dict[str, ServedLayer]:
    """Return the layers of a model runner that patterns select, by name, in order.

    Errors: a `RefusalError` if the engine, or a selected layer, cannot be watched; a TypeError or
    ValueError if the patterns are invalid.
    """
    _check_runner(runner)
    config = runner.vllm_config
    context = config.compilation_config.static_forward_context
    attentions = {
        _public(name): (name, layer)
        for name, layer in context.items()
        if hasattr(layer, "impl") and hasattr(layer.impl, "num_heads")
    }
    modules = [name for name, _ in runner.get_model().named_modules()]
    layers = Layers(patterns, [*modules, *attentions])
    selected = {name: one for name, one in attentions.items() if name in layers}
    layers.check_seen(selected, attentions)
    for name, (_, layer) in selected.items():
        _check_layer(name, layer)
    layouts: dict[Any, CacheLayout] = {}
    groups = {
        name: (number, group.kv_cache_spec.block_size)
        for number, group in enumerate(runner.kv_cache_config.kv_cache_groups)
        for name in group.layer_names
    }
    parallel = config.parallel_config
    found = {}
    for name, (own, layer) in selected.items():
        cache, impl = layer.kv_cache, layer.impl
        number, size = groups[own]
        known = cache.shape, cache.stride(), cache.dtype, impl.num_kv_heads, impl.head_size
        blocks = runner.kv_cache_config.num_blocks
        if known not in layouts:
            layouts[known] = _layout(layer, blocks)
        found[name] = ServedLayer(
            name,
            layer,
            number,
            size // layouts[known].size,
            layouts[known],
            getattr(parallel, "rank", 0) % parallel.tensor_parallel_size,
            parallel.tensor_parallel_size,
        )
    return found


def _layout(layer: Any, blocks: int) -> CacheLayout:
    """Find the layout of a cache, whose blocks may be parts of the block table's."""
    for count in layer.kv_cache.shape:
        if count >= blocks and count % blocks == 0:
            return CacheLayout(layer, count)
    raise RefusalError(
        f"watch_vllm needs a cache of {blocks} blocks, got {list(layer.kv_cache.shape)} of "
        f"{layer.layer_name!r}. Omit it with layers=."
    )


def _public(name: str) -> str:
    """Return the name of the module whose attention a layer of vLLM computes."""
    return name.removesuffix(".attn")


def _check_runner(runner: Any) -> None:
    """Raise a `RefusalError` if what an engine does cannot be followed."""
    config = runner.vllm_config
    if not hasattr(getattr(runner, "input_batch", None), "req_ids") or not hasattr(
        runner, "requests"
    ):
        raise RefusalError(
            f"watch_vllm needs vLLM's model runner V1, got {type(runner).__module__}. Start the "
            "engine with VLLM_USE_V2_MODEL_RUNNER=0."
        )
    if config.speculative_config is not None:
        raise RefusalError(
            "watch_vllm needs decoding without drafts, as rejected ones are not followed. Start "
            "the engine without speculative_config."
        )
    parallel = config.parallel_config
    contexts = "decode_context_parallel_size", "prefill_context_parallel_size"
    if any(getattr(parallel, name, 1) > 1 for name in contexts):
        raise RefusalError(
            "watch_vllm needs all keys of a head on one worker. Start the engine without context "
            "parallel."
        )
    graphs = config.compilation_config.cudagraph_mode
    is_full = getattr(graphs, "has_full_cudagraphs", bool)()
    if is_full and config.device_config.device_type != "cpu":
        raise RefusalError(
            "watch_vllm needs attention that Python calls, but full CUDA graphs replay it. Start "
            "the engine with compilation_config={'cudagraph_mode': 'PIECEWISE'}."
        )


def _check_layer(name: str, layer: Any) -> None:
    """Raise a `RefusalError` if the attention of a layer is of another kind."""
    for why, refused in _reasons(layer):
        if refused:
            raise RefusalError(f"watch_vllm needs {why} of {name!r}. Omit it with layers=.")
    dtype = str(getattr(layer.impl, "kv_cache_dtype", "auto"))
    if dtype.startswith(("fp8", "int8", "nv")):
        raise RefusalError(
            f"watch_vllm needs a cache in the model's own dtype, got {dtype} of {name!r}. Start "
            "the engine with kv_cache_dtype='auto'."
        )


def _reasons(layer: Any) -> Iterable[tuple[str, bool]]:
    """Yield what a layer needs, got what, and whether it is refused."""
    impl = layer.impl
    kind = type(impl).__name__
    yield (
        "keys and values for each head, got the latent vectors of MLA",
        "MLA" in (type(layer).__name__ + kind),
    )
    attention = str(getattr(impl, "attn_type", "decoder")).rpartition(".")[2].lower()
    yield f"causal self-attention, got {attention} attention", attention != "decoder"
    chunked = "Chunked" in type(layer).__name__ or getattr(impl, "chunk_lookback", -1) > -1
    yield "attention to all keys or a window of them, got chunks", chunked
    yield "causal attention, got a prefix that is not", bool(getattr(layer, "use_mm_prefix", False))
    yield f"one of {', '.join(_KNOWN)}, got {kind}", kind not in _KNOWN
