"""A few calls to the API server with nothing but the standard library.

The tool waits for its cluster and creates a handful of objects; starting kubectl for each would
cost more than the call.
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError, RefusedError

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
_COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
}


class Api:
    """Speaks to one API server as the user of one kubeconfig that this tool wrote."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._token: str = document["users"][0]["user"]["token"]
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        # The address is local: a proxy of the environment must not see these calls.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def call(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        """Make one call and return its JSON answer.

        Raises:
            RefusedError: the API server refused, with its own words.
            OSError: it could not be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        request = self._request(path, data=data, method=method, content=content)
        try:
            with self._opener.open(request, timeout=30) as answer:
                parsed: Object = json.loads(answer.read() or b"{}")
                return parsed
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            sentence = f"{method} {path} was refused ({error.code}): {words}"
            raise RefusedError(sentence, error.code) from error

    def stream(self, path: str) -> Iterator[Object]:
        """Yield the events of a watch until the API server ends it.

        Raises:
            OSError: the connection broke.
        """
        with self._opener.open(self._request(path), timeout=330) as answer:
            for line in answer:
                yield json.loads(line)

    def apply(self, body: Object) -> Object:
        """Create or change a cluster-wide object by server-side apply."""
        path = f"{_COLLECTIONS[body['kind']]}/{body['metadata']['name']}"
        return self.call("PATCH", f"{path}?fieldManager=local-cluster&force=true", body, APPLY)

    def healthy(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            with self._opener.open(self._request("/readyz"), timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Whether the object at path is there."""
        try:
            self.call("GET", path)
        except (ClusterError, OSError):
            return False
        return True

    def _request(
        self,
        path: str,
        *,
        data: bytes | None = None,
        method: str = "GET",
        content: str = "application/json",
    ) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        return urllib.request.Request(
            self._server + path, data=data, method=method, headers=headers
        )
