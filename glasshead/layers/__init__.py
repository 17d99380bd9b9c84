"""Layers of transformers."""

from glasshead.layers.blocks import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    PostNorm,
    PreNorm,
    ResPostNorm,
    SandwichNorm,
)
from glasshead.layers.eviction import H2O, TOVA, Policy, Sinks, SnapKV
from glasshead.layers.kv_cache import EvictingCache, KVCache
from glasshead.layers.layer_cache import KeyValueCache
from glasshead.layers.multi_head_attention import MultiHeadAttention, QueryKeyNorm
from glasshead.layers.positions import Learned, Rotary, Sinusoidal
