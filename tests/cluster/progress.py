"""Lines of progress for whoever waits."""

import sys
from collections.abc import Callable

Say = Callable[[str], None]


def report(line: str) -> None:
    """Print a line of progress at once, apart from the results."""
    print(line, file=sys.stderr, flush=True)
