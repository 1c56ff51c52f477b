"""The `specdec` command line: one module per command, and shared options.

The console script calls `main`. Commands import their heavy dependencies only when they run.
"""

import sys


def main() -> int:
    """Run the command line; exits with 2 and one sentence if its extra is not installed."""
    try:
        from specdec.tools.cli.app import app

        app()
    except ModuleNotFoundError as error:
        # The operator's image has the package without the extra `client`.
        sys.stderr.write(
            f"specdec: {error.name} is not installed; run in the checkout: "
            "pip install '.[client]'\n"
        )
        return 2
    return 0
