"""Entry point of `python -m specdec.tools.cli`."""

import sys

from specdec.tools.cli import main

sys.exit(main())
