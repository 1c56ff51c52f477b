"""The namespace of the kubeconfig's current context, for commands that contact no cluster.

`specdec plan` and `specdec render` complete a resource with it, as `kubectl apply` does.
"""

import os
from pathlib import Path
from typing import Any

import yaml

DEFAULT = "default"


def namespace() -> str:
    """The namespace that `kubectl apply` would use; `default` without a valid kubeconfig.

    Of several files in KUBECONFIG, the first one with a current context and the first one with
    that context decide, as with kubectl.
    """
    paths = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = [_read(Path(path).expanduser()) for path in paths.split(os.pathsep) if path]
    current = next((name for file in files if (name := file.get("current-context"))), None)
    for file in files:
        for item in file["contexts"] if isinstance(file.get("contexts"), list) else ():
            if isinstance(item, dict) and item.get("name") == current:
                context = item.get("context") or {}
                value = context.get("namespace") if isinstance(context, dict) else None
                return str(value or DEFAULT)
    return DEFAULT


def _read(path: Path) -> dict[str, Any]:
    """A kubeconfig; empty if it is missing or invalid."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
