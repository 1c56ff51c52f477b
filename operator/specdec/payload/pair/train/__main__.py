"""Command line: `python -m specdec.payload.pair.train [--help]`."""

import sys

from .cli import main

sys.exit(main())
