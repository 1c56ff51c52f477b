"""The number of random examples: few in a quick run (`make unit`), all in other runs.

`--hypothesis-profile=quick` selects a quick run, for Hypothesis and for loops in tests.
"""

from hypothesis import settings

QUICK = "quick"
THOROUGH = "thorough"
# A quick run tries one in _SHARE examples, and at least _FLOOR.
_SHARE = 20
_FLOOR = 5


def register() -> None:
    """Register both profiles, and make the thorough profile the default."""
    # A slow example is no failure, because machines are busy; benchmarks check time limits.
    settings.register_profile(THOROUGH, deadline=None)
    settings.register_profile(QUICK, deadline=None, max_examples=settings().max_examples // _SHARE)
    settings.load_profile(THOROUGH)


def examples(count: int) -> int:
    """Return how many of `count` random examples this run tries."""
    if settings.get_current_profile_name() != QUICK:
        return count
    return min(count, max(_FLOOR, count // _SHARE))
