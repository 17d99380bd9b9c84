"""Layers: what the transformer is built of."""

from glasshead.layers.caching import (
    H2O,
    TOVA,
    EvictingCache,
    KeyValueCache,
    KVCache,
    Policy,
    Sinks,
    SnapKV,
)
from glasshead.layers.decoder_block import DecoderBlock
from glasshead.layers.encoder_block import EncoderBlock
from glasshead.layers.feed_forward import FeedForward, GatedFeedForward
from glasshead.layers.multi_head_attention import MultiHeadAttention
from glasshead.layers.positions import Learned, Rotary, Sinusoidal
from glasshead.layers.residual import PostNorm, PreNorm
