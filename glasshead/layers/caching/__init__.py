"""Caching: the keys and values of the tokens so far, and which of them are let go."""

from glasshead.layers.caching.evicting_cache import EvictingCache
from glasshead.layers.caching.h2o import H2O
from glasshead.layers.caching.key_value_cache import KeyValueCache
from glasshead.layers.caching.kv_cache import KVCache
from glasshead.layers.caching.policy import Policy
from glasshead.layers.caching.sinks import Sinks
from glasshead.layers.caching.snapkv import SnapKV
from glasshead.layers.caching.tova import TOVA
