"""Options that the commands about a running cluster share, and their checks."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.client.errors import BadRequestError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

KubeContext = Annotated[
    str | None, typer.Option("--context", help="Of the kubeconfig; default: its current one.")
]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Default: the context's own.")
]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Of every namespace.")]


def scope(given: Mapping[str, Any], place: str) -> str | None:
    """The namespace to read, or None for every one."""
    return None if given["all_namespaces"] else place


def checked(given: Mapping[str, Any]) -> None:
    """What becomes part of an address has to be a name."""
    for what, found in (("NAME", given["name"]), ("--namespace", given["namespace"])):
        if found is not None and not _NAME.fullmatch(found):
            raise BadRequestError(f"{what} is {found!r}; write a name as kubectl shows it")
    if given["all_namespaces"] and (given["name"] or given["namespace"]):
        raise BadRequestError("--all-namespaces goes without NAME and --namespace")
