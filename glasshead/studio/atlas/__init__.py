"""The attention of a long text as a pyramid of exact pooled tiles."""

from glasshead.studio.atlas.atlas import Atlas
from glasshead.studio.atlas.tiles import Cancelled, NotYetError, TileCache

__all__ = ["Atlas", "Cancelled", "NotYetError", "TileCache"]
