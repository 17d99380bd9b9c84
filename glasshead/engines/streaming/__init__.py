"""The streaming engine: compiled blocks of queries on every core, in O(T) memory."""

from glasshead.engines.streaming.engine import STREAMING, Streaming

__all__ = ["STREAMING", "Streaming"]
