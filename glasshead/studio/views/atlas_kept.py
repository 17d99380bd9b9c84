"""Kept maps: those that were looked at last, as long as what they are of is there."""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakKeyDictionary

import glasshead as gh
from glasshead.studio.atlas import Atlas, TileCache

# Each takes 21 MiB at most with its overview.
MOST = 16


class KeptMaps:
    """Maps of heads of whatever sources: a reading, or stored weights.

    A map goes with its source, and the one that was looked at longest ago goes first.
    """

    def __init__(self) -> None:
        self._lock, self._cache = threading.Lock(), TileCache()
        # The number of a source that has gone is never given again.
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._next = itertools.count()
        self._maps: OrderedDict[tuple[int, int, int], Atlas] = OrderedDict()

    def get(
        self, source: object, layer: int, head: int, weights: Callable[[], gh.Weights]
    ) -> Atlas:
        """The map of a head, the same for all who ask while it is kept.

        Args:
            source: What it is of; the map itself must not hold it.
            layer, head: Which head.
            weights: Gives those of the head, where there is no map of it yet.
        """
        with self._lock:
            if source not in self._numbers:
                self._numbers[source] = next(self._next)
            there = set(self._numbers.values())
            for gone in [place for place in self._maps if place[0] not in there]:
                del self._maps[gone]
            place = self._numbers[source], layer, head
            if place not in self._maps:
                self._maps[place] = Atlas(weights(), self._cache)
            self._maps.move_to_end(place)
            while len(self._maps) > MOST:
                self._maps.popitem(last=False)
            return self._maps[place]
