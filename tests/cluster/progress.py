"""Lines of progress for the person who waits."""

import sys
from collections.abc import Callable

Report = Callable[[str], None]


def report(line: str) -> None:
    """Print a line of progress at once, apart from the results."""
    print(line, file=sys.stderr, flush=True)
