"""Statistics: what can be known of attention weights without keeping them."""

from glasshead.statistics.asking import named
from glasshead.statistics.distance_histogram import DistanceHistogram
from glasshead.statistics.entropy import Entropy
from glasshead.statistics.log_sum_exp import LogSumExp
from glasshead.statistics.mass_on import MassOn
from glasshead.statistics.maxima import ArgMax, MaxScore, MaxWeight
from glasshead.statistics.mean_distance import MeanDistance
from glasshead.statistics.pooled_map import PooledMap
from glasshead.statistics.received import Received
from glasshead.statistics.statistic import Statistic
from glasshead.statistics.top_k import TopK, TopKeys

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
    "named",
]
