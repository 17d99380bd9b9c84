"""Explanation: an attention trace explained step by step, in five languages.

Names are fetched when they are used, so that a language can be checked without torch.
"""

from glasshead.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
