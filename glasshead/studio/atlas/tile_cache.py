"""Tiles that were computed, for those who ask again."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from torch import Tensor

from glasshead.recipe.validation import whole_number
from glasshead.studio.atlas.refusing import Cancel, stop_if

# How often who waits for another's work looks whether it is still wanted, in seconds.
_LOOK = 0.02


class TileCache:
    """Keeps tiles of any number of atlases, within so many bytes; the longest unused goes first.

    Any number of threads may ask. What is asked for while it is being computed is waited for, and
    not computed twice.

    Args:
        limit: The bytes that tiles may take, 64 MiB if not given.

    Errors: a TypeError or ValueError where the limit is not a whole number of at least 0.

    >>> import torch
    >>> cache = TileCache(limit=100)
    >>> for name in "aba":
    ...     tile = cache.get(name, lambda: print("computed", name) or torch.zeros(5, 5))
    computed a
    computed b
    computed a
    >>> cache.bytes, len(cache)
    (100, 1)
    """

    def __init__(self, limit: int = 2**26) -> None:
        self.limit = whole_number(limit, "TileCache(limit)")
        self._tiles: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """How many bytes the tiles take that are kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._tiles)

    def get(self, key: Hashable, make: Callable[[], Tensor], cancelled: Cancel = None) -> Tensor:
        """The tile of a key, which `make()` computes where it is not kept.

        An error of `make` is raised to who had it computed, and who waited tries again.

        Errors: `Cancelled` where `cancelled()` says so while another computes the tile.
        """
        while True:
            with self._lock:
                if key in self._tiles:
                    self._tiles.move_to_end(key)
                    return self._tiles[key]
                others = self._making.get(key)
                if others is None:
                    self._making[key] = threading.Event()
                    break
            while not others.wait(_LOOK):
                stop_if(cancelled)
        try:
            tile = make()
            self._keep(key, tile)
        finally:
            with self._lock:
                self._making.pop(key).set()
        return tile

    def _keep(self, key: Hashable, tile: Tensor) -> None:
        size = tile.numel() * tile.itemsize
        if size > self.limit:
            return
        with self._lock:
            self._tiles[key] = tile
            self._bytes += size
            while self._bytes > self.limit:
                _, oldest = self._tiles.popitem(last=False)
                self._bytes -= oldest.numel() * oldest.itemsize
