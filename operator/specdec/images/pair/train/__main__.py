"""Command line: `python -m specdec.images.pair.train [--help]`."""

import sys

from .cli import main

sys.exit(main())
