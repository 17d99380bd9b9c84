"""Statistics of attention weights, computed without materializing the matrix.

Names are fetched when they are used, so that their spellings can be read without torch.
"""

from glasshead.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
