"""Serving: exact statistics of attention of every request inside a running vLLM engine."""
