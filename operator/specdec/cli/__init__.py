"""The `specdec` command."""

import sys


def main() -> int:
    """Run the command line; 2 with one sentence where the extra it needs is not installed."""
    try:
        from specdec.cli.app import app

        app()
    except ModuleNotFoundError as missing:
        # The operator's image carries the package without its clients.
        sys.stderr.write(
            f"specdec: {missing.name} is not installed; run: pip install 'specdec[client]'\n"
        )
        return 2
    return 0
