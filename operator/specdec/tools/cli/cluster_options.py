"""Options of the commands about a running cluster, such as `status`, and their checks."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli.completion import resources

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

ResourceName = Annotated[str, typer.Argument(help="A SpeculativeModel.", autocompletion=resources)]
KubeContext = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; default: its current one."),
]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Default: that of the context.")
]
AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="Read all namespaces.")
]
OperatorNamespace = Annotated[
    str, typer.Option(help="Namespace of the operator's Deployment and pods.")
]


def scope(options: Mapping[str, Any], namespace: str) -> str | None:
    """The namespace to read, or None for all."""
    return None if options["all_namespaces"] else namespace


def check_name(option: str, value: str | None) -> None:
    """Raise BadRequestError for an invalid name of an object, because it becomes part of a URL."""
    if value is not None and not _NAME.fullmatch(value):
        raise BadRequestError(f"{option} is {value!r}; write a name as kubectl shows it")


def check_names(options: Mapping[str, Any]) -> None:
    """Raise BadRequestError for invalid names, because they become part of a URL."""
    for option, value in (("NAME", options["name"]), ("--namespace", options["namespace"])):
        check_name(option, value)
    if options["all_namespaces"] and (options["name"] or options["namespace"]):
        raise BadRequestError(
            "--all-namespaces excludes NAME and --namespace; leave one of them out"
        )
