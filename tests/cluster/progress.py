"""Lines of progress for the user."""

import sys
from collections.abc import Callable

Report = Callable[[str], None]


def report(line: str) -> None:
    """Print a line of progress to standard error, without a delay."""
    print(line, file=sys.stderr, flush=True)
