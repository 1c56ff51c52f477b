"""A client of the API server for SpeculativeModels, which reports the causes of a refusal."""

import json
import ssl
import time
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cluster.processes import DEADLINE_SECONDS
from specdec.api import model

Object = dict[str, Any]


class RefusedError(Exception):
    """The API server refused a resource; the causes are pairs (field, message)."""

    def __init__(self, status: Object) -> None:
        super().__init__(status["message"])
        causes = status.get("details", {}).get("causes", [])
        pairs = [(c.get("field", "").removeprefix("."), c["message"]) for c in causes]
        # The server checks no rules while the schema is violated, and reports that as a cause.
        self.causes = [pair for pair in pairs if "were not checked because" not in pair[1]]
        if not pairs:
            self.causes = [("", str(status["message"]))]


class Resources:
    """The SpeculativeModels of a namespace; the server refuses unknown fields, as with kubectl."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._token = document["users"][0]["user"]["token"]
        self._path = f"/apis/{model.API_VERSION}/namespaces/{namespace}/{model.PLURAL}"
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        address = urlsplit(cluster["server"])
        self._http = HTTPSConnection(
            str(address.hostname), address.port, context=tls, timeout=DEADLINE_SECONDS
        )

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        return self._call("POST", "", body, dry_run)

    def replace(self, body: Object, *, dry_run: bool = False) -> Object:
        name = body["metadata"]["name"]
        version = self.get(name)["metadata"]["resourceVersion"]
        metadata = {**body["metadata"], "resourceVersion": version}
        return self._call("PUT", f"/{name}", {**body, "metadata": metadata}, dry_run)

    def scale(self, name: str, replicas: int) -> Object:
        """Set the replicas as `kubectl scale` does, whatever version the resource has."""
        scale = self._call("GET", f"/{name}/scale")
        del scale["metadata"]["resourceVersion"]
        return self._call("PUT", f"/{name}/scale", {**scale, "spec": {"replicas": replicas}})

    def get(self, name: str) -> Object:
        return self._call("GET", f"/{name}")

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self._call("GET", "")["items"]}

    def clear(self) -> None:
        self._call("DELETE", "")

    def close(self) -> None:
        self._http.close()

    def _call(
        self, method: str, name: str, body: Object | None = None, dry_run: bool = False
    ) -> Object:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "") if body else ""
        head = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        deadline = time.monotonic() + 60
        while True:
            self._http.request(method, self._path + name + query, text, head)
            answer = self._http.getresponse()
            value: Object = json.loads(answer.read())
            if answer.status < 300:
                return value
            # The server asks for a retry while it loads a changed definition.
            if answer.status != 429 or time.monotonic() > deadline:
                raise RefusedError(value)
            time.sleep(float(answer.headers["Retry-After"]))
