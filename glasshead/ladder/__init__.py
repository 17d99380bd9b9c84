"""The ladder: attention in ten steps, each one idea more than the last, each one file.

Names are fetched when they are used, so that the worked example can be read without torch.
"""

from glasshead.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
