"""How much a run tries: few random examples in a quick one (`make unit`), else all of them.

`--hypothesis-profile=quick` chooses it, for Hypothesis and for loops of a test's own.
"""

from hypothesis import settings

QUICK = "quick"
THOROUGH = "thorough"
# A quick run tries one of so many examples, and never fewer than the floor.
_SHARE = 20
_FLOOR = 5


def register() -> None:
    """Make both profiles known, and the thorough one the default."""
    # An example that is slow on a busy machine is no failure; benchmarks hold the limits.
    settings.register_profile(THOROUGH, deadline=None)
    settings.register_profile(QUICK, deadline=None, max_examples=settings().max_examples // _SHARE)
    settings.load_profile(THOROUGH)


def examples(count: int) -> int:
    """How many of `count` random examples this run tries."""
    if settings.get_current_profile_name() != QUICK:
        return count
    return min(count, max(_FLOOR, count // _SHARE))
