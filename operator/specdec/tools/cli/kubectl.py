"""The commands of kubectl that reach a resource, `specm/NAME` in addresses."""

import shutil
from collections.abc import Mapping
from typing import Any

PREFIX = "specm/"


def command(params: Mapping[str, Any], verb: str, *arguments: str) -> list[str]:
    """A command for the namespace and the context of a command's options."""
    place = [f"--namespace={params['namespace']}"] if params["namespace"] else []
    place += [f"--context={params['kube_context']}"] if params["kube_context"] else []
    return [shutil.which("kubectl") or "kubectl", verb, *place, *arguments]
