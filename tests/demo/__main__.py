"""The command line of the demo."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from demo import story, vllm
from demo.errors import DemoError
from demo.machine import machine
from demo.screen import Screen
from specdec.client import ClientError

# Columns of a recording: wide enough for the conditions' messages, small enough to be read.
_WIDTH = 112


def main() -> int:
    """Run or remove the demo; 0 done, 1 failed, 2 the machine lacks something it needs."""
    parser = argparse.ArgumentParser(prog="make demo", description=main.__doc__)
    parser.add_argument("--cluster", choices=("node", "kind"), default="node")
    parser.add_argument("--backend", choices=("Reference", "VLLM"), default="Reference")
    parser.add_argument("--down", action="store_true", help="remove the cluster")
    parser.add_argument("--record", type=Path, metavar="SVG", help="draw what the screen showed")
    options = parser.parse_args()
    recorded = Console(highlight=False, soft_wrap=True, record=True, width=_WIDTH)
    screen = Screen(recorded if options.record else None)
    place = machine(options.cluster, screen.report)
    try:
        if options.down:
            place.down()
        else:
            script = vllm if options.backend == "VLLM" else story
            script.run(place, screen)
            if options.record:
                options.record.write_text(screen.picture("make demo"), encoding="utf-8")
            script.show_next_steps(place, screen)
    except (DemoError, ClientError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        sys.stderr.write("demo: stopped; `make demo` continues\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
