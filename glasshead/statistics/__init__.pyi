from glasshead.statistics.base import Statistic as Statistic
from glasshead.statistics.base import normalize_statistics as normalize_statistics
from glasshead.statistics.maps import DistanceHistogram as DistanceHistogram
from glasshead.statistics.maps import PooledMap as PooledMap
from glasshead.statistics.maps import Received as Received
from glasshead.statistics.per_query import ArgMax as ArgMax
from glasshead.statistics.per_query import Entropy as Entropy
from glasshead.statistics.per_query import LogSumExp as LogSumExp
from glasshead.statistics.per_query import MassOn as MassOn
from glasshead.statistics.per_query import MaxScore as MaxScore
from glasshead.statistics.per_query import MaxWeight as MaxWeight
from glasshead.statistics.per_query import MeanDistance as MeanDistance
from glasshead.statistics.per_query import TopK as TopK
from glasshead.statistics.per_query import TopKeys as TopKeys

__all__: list[str]
