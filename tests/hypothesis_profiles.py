"""How many examples hypothesis draws: HYPOTHESIS_PROFILE is `quick`, `full` or `nightly`.

`make test` draws quickly, `make test-all` fully, and both draw the same examples each time. The
nightly profile draws others in each run.
"""

import os
from typing import Any

from hypothesis import settings

SHARES = {"quick": 0.2, "full": 1.0, "nightly": 20.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")


def examples(number: int = 100, **others: Any) -> settings:
    """Return settings that draw so many examples in the full profile, and their share in others."""
    return settings(max_examples=max(1, round(number * SHARES[PROFILE])), **others)


def load() -> None:
    """Make the profile that of tests without settings of their own."""
    if PROFILE not in SHARES:
        raise ValueError(f"HYPOTHESIS_PROFILE must be {', '.join(SHARES)}, got {PROFILE!r}.")
    settings.register_profile(
        PROFILE, examples(deadline=None, derandomize=PROFILE != "nightly", print_blob=True)
    )
    settings.load_profile(PROFILE)
