"""Command line: `PYTHONPATH=tests python -m pair_training [--help]`."""

import sys

from pair_training.cli import main

sys.exit(main())
