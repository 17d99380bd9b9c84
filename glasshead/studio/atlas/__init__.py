"""The attention of a long text as a pyramid of exact pooled tiles."""

from glasshead.studio.atlas.atlas import Atlas
from glasshead.studio.atlas.refusing import Cancelled, NotYetError
from glasshead.studio.atlas.tile_cache import TileCache

__all__ = ["Atlas", "Cancelled", "NotYetError", "TileCache"]
