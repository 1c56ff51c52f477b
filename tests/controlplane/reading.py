"""A client of the API server, for tests that read objects many times a second.

Starting kubectl for each read would take a hundred times as long, and the operator under test
runs on the same processors.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.api import APPLY, MERGE_PATCH, Api
from cluster.errors import ClusterError, RefusedError
from specdec.api.kinds import PLURALS
from specdec.api.model import KIND

Object = dict[str, Any]

_NAMESPACES = "/api/v1/namespaces"
# Further kinds that tests read, and the short names of kubectl.
_MORE = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("v1", "ResourceQuota"): "resourcequotas",
    ("v1", "LimitRange"): "limitranges",
}
_SHORT = {
    "hpa": "HorizontalPodAutoscaler",
    "pdb": "PodDisruptionBudget",
    "pvc": "PersistentVolumeClaim",
    "quota": "ResourceQuota",
    "specm": KIND,
}


class Reader:
    """Reads, applies and patches objects of one namespace, as kubectl does."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = Api(kubeconfig)
        self._namespace = namespace

    def open(self) -> None:
        """Create the namespace."""
        metadata = {"name": self._namespace}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._api.call("POST", _NAMESPACES, body)

    def close(self) -> None:
        """Delete the SpeculativeModels and the namespace, without waiting for the deletions."""
        _, _, path = self._place(KIND.lower())
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        for target in (path, f"{_NAMESPACES}/{self._namespace}"):
            self._api.call("DELETE", target, options)

    def get(self, kind: str, name: str) -> Object | None:
        """Return the object, or None when it does not exist."""
        _, _, path = self._place(kind)
        try:
            return _shown(self._api.call("GET", f"{path}/{name}"))
        except RefusedError as error:
            # If the server does not serve the kind, the 404 lacks the object's name.
            if error.code == 404 and f'"name":"{name}"' in str(error):
                return None
            raise

    def all(self, kinds: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind, or of several separated by commas, with the labels."""
        return [body for kind in kinds.split(",") for body in self._listed(kind, selector)]

    def apply(self, body: Object) -> None:
        """Create or change the object, as `kubectl apply --server-side` does."""
        _, _, path = self._place(body["kind"].lower())
        options = "fieldManager=kubectl&fieldValidation=Strict&force=true"
        self._api.call("PATCH", f"{path}/{body['metadata']['name']}?{options}", body, APPLY)

    def patch(self, kind: str, name: str, change: Object) -> None:
        """Apply a merge patch to the object."""
        _, _, path = self._place(kind)
        self._api.call("PATCH", f"{path}/{name}", change, MERGE_PATCH)

    def _listed(self, kind: str, selector: str) -> list[Object]:
        version, name, path = self._place(kind)
        answer = self._api.call("GET", f"{path}?labelSelector={quote(selector)}")
        # The items of a list lack the API version and kind.
        return [{"apiVersion": version, "kind": name, **_shown(body)} for body in answer["items"]]

    def _place(self, kind: str) -> tuple[str, str, str]:
        """Return API version, kind and path of a kind, which has any name that kubectl accepts."""
        for (version, name), plural in (PLURALS | _MORE).items():
            group = version.rpartition("/")[0]
            if kind in (name.lower(), plural, f"{plural}.{group}") or _SHORT.get(kind) == name:
                root = "apis" if group else "api"
                return version, name, f"/{root}/{version}/namespaces/{self._namespace}/{plural}"
        raise ClusterError(
            f"The reader does not know the kind {kind}: add it to controlplane/reading.py."
        )


def _shown(body: Object) -> Object:
    """Return the object without the fields that kubectl hides."""
    body["metadata"].pop("managedFields", None)
    return body
