"""What the forward kernel says of each row: the places of these numbers among all."""

(
    LOG_SUM,
    MAX_SCORE,
    MAX_WEIGHT,
    ENTROPY,
    SCORES,
    DISTANCES,
    FACTOR,
    KEY,
    MANY_KEYS,
) = range(9)

# How many they are.
SAID = 9
# A float32 counts no further than 2^24: the key of the maximum is MANY_KEYS · MANY + KEY.
MANY = 2**20
