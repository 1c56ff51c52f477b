"""The command line of the demo."""

import argparse
import sys

from demo.errors import DemoError
from demo.machine import machine
from demo.screen import Screen
from demo.story import run
from specdec.client import ClientError


def main() -> int:
    """Run or remove the demo; 0 done, 1 failed, 2 the machine lacks something it needs."""
    parser = argparse.ArgumentParser(prog="make demo", description=main.__doc__)
    parser.add_argument("--cluster", choices=("node", "kind"), default="node")
    parser.add_argument("--down", action="store_true", help="remove the cluster")
    options = parser.parse_args()
    screen = Screen()
    place = machine(options.cluster, screen.say)
    try:
        if options.down:
            place.down()
        else:
            run(place, screen)
    except (DemoError, ClientError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        sys.stderr.write("demo: stopped; `make demo` goes on where it was\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
