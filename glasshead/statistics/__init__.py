"""Statistics of attention weights, computed without materializing the matrix."""

from glasshead.statistics.base import Statistic, normalize_statistics
from glasshead.statistics.maps import DistanceHistogram, PooledMap, Received
from glasshead.statistics.per_query import (
    ArgMax,
    Entropy,
    LogSumExp,
    MassOn,
    MaxScore,
    MaxWeight,
    MeanDistance,
    TopK,
    TopKeys,
)

__all__ = [
    "ArgMax",
    "DistanceHistogram",
    "Entropy",
    "LogSumExp",
    "MassOn",
    "MaxScore",
    "MaxWeight",
    "MeanDistance",
    "PooledMap",
    "Received",
    "Statistic",
    "TopK",
    "TopKeys",
    "normalize_statistics",
]
