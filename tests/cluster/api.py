"""A small client of the API server that uses only the standard library.

The tool waits for its cluster and creates a few objects. Starting kubectl for each of these calls
would take longer than the call.
"""

import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
# The API server closes a connection that is idle for 90 seconds.
_IDLE_SECONDS = 30.0


class Api:
    """Calls one API server as the user of one kubeconfig that this tool wrote.

    It reuses connections: tests poll, and opening a connection costs both sides more than a call.
    """

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._server: str = urlsplit(cluster["server"]).netloc
        self._token: str = document["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        # Idle connections with the time of their last use. A call removes its connection.
        self._idle: list[tuple[float, HTTPSConnection]] = []

    def __del__(self) -> None:
        for _, connection in getattr(self, "_idle", ()):
            connection.close()

    def call(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        """Make one call and return its JSON answer.

        Raises:
            RefusedError: the API server refused the call; carries its message.
            OSError: the API server could not be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._answer(method, path, 30, data, content) as answer:
            text = answer.read()
        if answer.status >= 300:
            reason = text.decode(errors="replace")
            message = f"{method} {path} was refused ({answer.status}): {reason}"
            raise RefusedError(message, answer.status)
        parsed: Object = json.loads(text or b"{}")
        return parsed

    def stream(self, path: str) -> Iterator[Object]:
        """Yield the events of a watch until the API server ends it.

        Raises:
            OSError: the connection broke.
        """
        with self._answer("GET", path, 330) as answer:
            if answer.status >= 300:
                raise OSError(f"GET {path} was refused ({answer.status})")
            for line in answer:
                yield json.loads(line)

    def apply(self, body: Object) -> Object:
        """Create or change a cluster-wide object by server-side apply."""
        path = f"{_COLLECTIONS[body['kind']]}/{body['metadata']['name']}"
        return self.call("PATCH", f"{path}?fieldManager=local-cluster&force=true", body, APPLY)

    def healthy(self) -> bool:
        """Return whether the API server reports that it is ready."""
        try:
            with self._answer("GET", "/readyz", 5) as answer:
                return answer.status < 300
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Return whether a GET of the object at path succeeds."""
        try:
            self.call("GET", path)
        except (ClusterError, OSError):
            return False
        return True

    @contextlib.contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        seconds: float,
        body: bytes | None = None,
        content: str = "application/json",
    ) -> Iterator[HTTPResponse]:
        """Yield the response to one request; keep the connection if the caller reads all of it."""
        connection = self._taken(seconds)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        whole = False
        try:
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
            except ConnectionError:
                # The server may have restarted since the connection was last used.
                if method != "GET":
                    raise
                connection.close()
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
            with answer:
                yield answer
                whole = answer.isclosed() and not answer.will_close
        except HTTPException as error:
            raise OSError(f"{method} {path} of {self._server} broke off: {error!r}") from error
        finally:
            if whole:
                self._idle.append((time.monotonic(), connection))
            else:
                connection.close()

    def _taken(self, seconds: float) -> HTTPSConnection:
        with contextlib.suppress(IndexError):
            while True:
                used, connection = self._idle.pop()
                if time.monotonic() - used < _IDLE_SECONDS:
                    assert connection.sock is not None
                    connection.sock.settimeout(seconds)
                    return connection
                connection.close()
        return HTTPSConnection(self._server, timeout=seconds, context=self._tls)
