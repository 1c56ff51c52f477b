"""Actions of an end-to-end test on the cluster, and the cluster state that it reads."""

import copy
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import ClusterError
from cluster.handle import Node
from cluster.processes import DEADLINE_SECONDS
from controlplane.reading import Reader
from demo.errors import DemoError
from demo.kubectl import Kubectl, wait
from demo.progress import why_not
from e2e.polling import listens, repeating, whole
from specdec.client import Client, ClientError, Request

Object = dict[str, Any]

NAMESPACE = "default"
PAIR = "reference-pair"
SHARED = "models"
# Merged into `speculation` of `model`, this removes the fields for a draft model.
NO_DRAFT = {"draftTarget": None, "draftTokens": None, "maxDraftTokens": None}


def model(name: str, claim: str | None = SHARED, **spec: Any) -> Object:
    """Return a DraftTarget resource on the pair, merged with `spec`; None removes a field."""
    storage = {"existingClaim": claim} if claim else {"size": "1Gi", "accessMode": "ReadWriteOnce"}
    limits = {"maxBatchSize": 8, "maxInputLen": 128, "maxSeqLen": 256, "maxNumTokens": 2048}
    base: Object = {
        "runtime": {"backend": "Reference"},
        "target": {"source": source("target"), "limits": limits},
        "speculation": {
            "method": "DraftTarget",
            "maxDraftTokens": 8,
            "draftTokens": 4,
            "draftTarget": {"draft": {"source": source("draft"), "limits": dict(limits)}},
        },
        "storage": storage,
        "serving": {
            "sharedMemory": "256Mi",
            "drain": {"timeoutSeconds": 10},
            # Beside pods with CPU requests, a pod without a request gets almost no processor time.
            "resources": {"requests": {"cpu": "100m"}},
        },
        # Most tests do not need verification; its requests and pods would disturb them.
        "verification": {"mode": "Disabled"},
    }
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": name},
        "spec": merged(base, spec),
    }


def length_limit(tokens: int) -> Object:
    """Return a spec with this sequence limit for target and draft, which needs new engines."""
    limits = {"maxSeqLen": tokens}
    return {
        "target": {"limits": limits},
        "speculation": {"draftTarget": {"draft": {"limits": limits}}},
    }


def source(path: str) -> Object:
    """Return a source: a checkpoint on the claim of the pair."""
    return {"pvc": {"claimName": PAIR, "path": path}}


def merged(base: Object, change: Mapping[str, Any]) -> Object:
    """Return `base` merged with `change`; None removes a field."""
    result = copy.deepcopy(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def answers(pod: Object) -> bool:
    """Return whether a pod is ready; a new pod has no conditions yet."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@dataclass
class World:
    """A node with the operator; its resources are in the namespace `default`."""

    node: Node
    kubectl: Kubectl
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = Reader(self.node.kubeconfig, NAMESPACE)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.node.kubeconfig

    def apply(self, body: Object, *, keep: bool = False) -> str:
        """Apply a resource and return its name; `clean` deletes it, except with `keep`."""
        name: str = body["metadata"]["name"]
        if not keep and name not in self.made:
            self.made.append(name)
        self.kubectl("apply", "-f", "-", given=json.dumps(body))
        return name

    def patch(self, name: str, spec: Object) -> None:
        """Merge `spec` into the spec of a resource."""
        self.kubectl("patch", "specm", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def clean(self) -> None:
        """Delete the resources that a test has applied."""
        if self.made:
            self.kubectl("delete", "specm", *self.made, "--ignore-not-found")
        self.made.clear()

    def get(self, name: str) -> Object:
        """Return the live resource."""
        live = self.find("specm", name)
        assert live is not None, f"{name} is missing"
        return live

    def find(self, kind: str, name: str) -> Object | None:
        """Return an object of the namespace, or None if it is missing."""
        return self._reader.get(kind, name)

    def condition(self, name: str, kind: str) -> Object:
        """Return a condition of the newest generation; empty until the operator writes it."""
        body = self.get(name)
        for condition in body.get("status", {}).get("conditions", []):
            current = condition["observedGeneration"] == body["metadata"]["generation"]
            if condition["type"] == kind and current:
                return dict(condition)
        return {}

    def until(self, name: str, kind: str, reason: str) -> Object:
        """Wait until a condition has a reason, and return the condition."""
        self.wait(
            lambda: self.condition(name, kind).get("reason") == reason,
            lambda: f"{kind} of {name} is not {reason}: {why_not(self.get(name))}",
        )
        return self.condition(name, kind)

    def ready(self, name: str) -> Object:
        """Wait until a resource is served, and return it.

        The Service accepts connections only when the node has its endpoints, a moment after the
        API server.
        """
        self.until(name, "Ready", "Serving")
        service = self._service(name)
        url = f"{service['clusterIP']}:{service['ports'][0]['port']}"
        self.wait(lambda: listens(url), lambda: f"{url} of {name} takes no connection")
        return self.get(name)

    def wait(self, true: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until `true` returns true; a call that a restarting API server refuses is false."""

        def tried() -> bool:
            try:
                return true()
            except (DemoError, ClusterError, OSError):
                return False

        wait(tried, what)

    def listed(self, kind: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind in the namespace."""
        return self._reader.all(kind, selector)

    def pods(self, name: str) -> list[Object]:
        """Return the serving pods of a resource, except terminating pods."""
        selector = f"specdec.dev/model={name},app.kubernetes.io/component=server"
        return [
            pod
            for pod in self._reader.all("pods", selector)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def left(self, name: str, count: int) -> None:
        """Wait until a resource has exactly `count` serving pods, including terminating pods."""
        selector = f"specdec.dev/model={name},app.kubernetes.io/component=server"
        self.wait(
            lambda: len(self._reader.all("pods", selector)) == count,
            lambda: f"{name} does not come to {count} pods",
        )

    def replaced(self, name: str, uid: str) -> None:
        """Wait until a pod with another uid is ready."""
        self.wait(
            lambda: any(answers(p) for p in self.pods(name) if p["metadata"]["uid"] != uid),
            lambda: f"no new pod of {name} is ready",
        )

    def build_jobs(self, name: str | None = None) -> dict[str, str]:
        """Return names and uids of the build Jobs of a resource, or of all resources."""
        selector = "app.kubernetes.io/component=engine"
        if name:
            selector += f",models.specdec.dev/{name}"
        return {j["metadata"]["name"]: j["metadata"]["uid"] for j in self.listed("jobs", selector)}

    def address(self, name: str) -> str:
        """Return the gRPC endpoint of a resource's Service, which this machine can reach."""
        return f"{self.host(name)}:8001"

    def host(self, name: str) -> str:
        """Return the address of a resource's Service."""
        host: str = self._service(name)["clusterIP"]
        return host

    def _service(self, name: str) -> Object:
        service = self.find("service", name)
        assert service is not None, f"no Service {name}"
        spec: Object = service["spec"]
        return spec

    def text(self, name: str, prompt: str, **request: Any) -> str:
        """Return the continuation of a prompt."""
        with Client(self.address(name), timeout=DEADLINE_SECONDS) as client:
            return client.ask(Request(prompt, **request)).text

    def folder(self, claim: str) -> Path:
        """Return the folder on this machine that holds the files of a claim."""
        live = self.find("pvc", claim)
        assert live is not None, f"no claim {claim}"
        return self.node.volume(live["spec"]["volumeName"])

    def unfinished(self, claim: str) -> list[str]:
        """Return directories with a final name but missing files; none may ever exist."""
        root = self.folder(claim)
        return [
            str(entry)
            for kind in ("engines", "repositories", "checkpoints")
            for entry in self._entries(root / kind)
            if not whole(kind, entry)
        ]

    @staticmethod
    def _entries(folder: Path) -> list[Path]:
        if not folder.is_dir():
            return []
        return [e for e in folder.iterdir() if not e.name.startswith(".")]

    def watched(self, claim: str) -> AbstractContextManager[list[str]]:
        """Check for unfinished directories repeatedly; the yielded list collects them."""
        return repeating(lambda: self.unfinished(claim))

    def probed(self, name: str) -> AbstractContextManager[list[str]]:
        """Send requests to the Service repeatedly; the yielded list collects the failures."""
        url = self.address(name)

        def ask() -> list[str]:
            try:
                with Client(url, timeout=DEADLINE_SECONDS) as client:
                    client.ask(Request("def f(", max_tokens=4))
            except ClientError as error:
                return [f"{time.strftime('%X')} {error}"]
            return []

        return repeating(ask)
