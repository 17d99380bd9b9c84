"""The ladder: attention in sixteen steps, each one idea more, each one file.

Names are fetched when they are used, so that the worked example can be read without torch.
"""

from glasshead.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
