"""Runs commands of the guides as printed, with a login to the node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster import binaries
from cluster.processes import DEADLINE_SECONDS
from e2e.world import World
from support.quickstarts import ROOT

Done = subprocess.CompletedProcess[str]


def as_printed(
    world: World,
    command: list[str],
    *,
    login: Path | None = None,
    folder: Path = ROOT,
    given: str | None = None,
) -> Done:
    """Run a command until it ends, check that it succeeds, and return its output."""
    process = started(world, command, login=login, folder=folder)
    # The command itself may wait for a state.
    output, errors = process.communicate(given, timeout=2 * DEADLINE_SECONDS)
    assert process.returncode == 0, (command, output, errors)
    return Done(command, 0, output, errors)


def first_line(world: World, command: list[str], *, login: Path, folder: Path) -> str:
    """Return the first line of a command that only Ctrl-C ends, and end the command."""
    process = started(world, command, login=login, folder=folder)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode in (0, 130), (command, line, errors)
    return line


def started(
    world: World, command: list[str], *, login: Path | None, folder: Path
) -> "subprocess.Popen[str]":
    """Start a command with kubectl and specdec on its path, and return the process."""
    programs = (Path(sys.executable).parent, binaries.path("kubectl").parent)
    environment = {
        "KUBECONFIG": str(login or world.kubeconfig),
        "PATH": os.pathsep.join((*map(str, programs), os.environ["PATH"])),
    }
    # A process group in the background ignores SIGINT, and its children inherit that.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, previous)
