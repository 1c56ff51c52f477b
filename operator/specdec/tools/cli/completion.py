"""What the shell suggests for arguments, besides commands, options and files.

Typer calls these functions. They print nothing, and suggest nothing if the cluster does not answer
soon. Without a suggestion, the shell completes the names of files.
"""

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from specdec.tools.cli import kubectl
from specdec.tools.cli.kubectl import PREFIX

_KUBECTL_SECONDS = 3.0


def resources(context: typer.Context, incomplete: str) -> list[str]:
    """The SpeculativeModels of the namespace of the options."""
    return matching(_names(context.params), incomplete)


def addresses(context: typer.Context, incomplete: str) -> list[str]:
    """`specm/NAME` for each SpeculativeModel, once the text begins so."""
    if not PREFIX.startswith(incomplete) and not incomplete.startswith(PREFIX):
        return []
    names = _names(context.params) if incomplete.startswith(PREFIX) else [""]
    return matching((f"{PREFIX}{name}" for name in names), incomplete)


def backends(incomplete: str) -> list[str]:
    """The backends of `specdec certify`."""
    from specdec.api.matrix import Backend

    return matching(map(str, Backend), incomplete)


def entries(incomplete: str) -> list[str]:
    """The entries of the matrix of `specdec certify`, after those that are already in the list."""
    from specdec.tools.certify.matrix import NAMES

    before, comma, last = incomplete.rpartition(",")
    listed = set(before.split(","))
    return [f"{before}{comma}{name}" for name in matching(NAMES, last) if name not in listed]


def head_methods(incomplete: str) -> list[str]:
    """The methods of `specdec certify --heads METHOD=SOURCE`."""
    from specdec.tools.certify.request import HEADS

    return matching((f"{method}=" for method in HEADS), incomplete)


def _names(params: Mapping[str, Any]) -> list[str]:
    """The names of resources by kubectl; empty if it is missing or does not answer soon."""
    place = {"namespace": params.get("namespace"), "kube_context": params.get("kube_context")}
    command = kubectl.command(place, "get", "specm", "-o", "name", "--request-timeout=2s")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_KUBECTL_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    return [line.rpartition("/")[2] for line in done.stdout.split()]


def matching(values: Iterable[str], incomplete: str) -> list[str]:
    """The values that begin with the typed text."""
    return [value for value in values if value.startswith(incomplete)]
