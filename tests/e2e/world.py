"""The actions of an end-to-end test on the cluster, and the state that it reads."""

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
from controlplane.reading import Reader
from demo.errors import DemoError
from demo.kubectl import Kubectl, wait
from demo.progress import why_not
from e2e.polling import listens, repeating, whole
from specdec.client import Client, ClientError, Request

Object = dict[str, Any]

PAIR = "reference-pair"
SHARED = "models"
# A state that does not come at all; one that comes may take minutes beside the other test lanes.
DEADLINE_SECONDS = 300.0
# What a speculation without a draft model leaves out of the base of `model`.
NO_DRAFT = {"draftTarget": None, "draftTokens": None, "maxDraftTokens": None}


def model(name: str, claim: str | None = SHARED, **spec: Any) -> Object:
    """A DraftTarget resource on the pair; `spec` is merged into it, None removes a field."""
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
            # Pods without a request get next to no processor beside those that have one.
            "resources": {"requests": {"cpu": "100m"}},
        },
        # Only one test is about it; its requests and pods would disturb the others.
        "verification": {"mode": "Disabled"},
    }
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": name},
        "spec": merged(base, spec),
    }


def source(path: str) -> Object:
    """A checkpoint on the claim of the pair."""
    return {"pvc": {"claimName": PAIR, "path": path}}


def merged(base: Object, change: Mapping[str, Any]) -> Object:
    """`base` with `change` laid over it; None removes."""
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
    """Whether a pod answers its probes; a new pod has no conditions yet."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@dataclass
class World:
    """A node with the operator on it, and a namespace there, which `kubeconfig` has as default."""

    node: Node
    kubectl: Kubectl
    kubeconfig: Path
    namespace: str = "default"
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = Reader(self.node.kubeconfig, self.namespace)

    def apply(self, body: Object, *, keep: bool = False) -> str:
        """Apply a resource and return its name; the test's end deletes it unless kept."""
        name: str = body["metadata"]["name"]
        if not keep and name not in self.made:
            self.made.append(name)
        self.kubectl("apply", "-f", "-", given=json.dumps(body))
        return name

    def patch(self, name: str, spec: Object) -> None:
        """Merge into the spec of a resource."""
        self.kubectl("patch", "specm", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def clean(self) -> None:
        """Delete what a test has made."""
        if self.made:
            self.kubectl(
                "delete", "specm", *self.made, "--ignore-not-found", timeout=DEADLINE_SECONDS
            )
        self.made.clear()

    def get(self, name: str) -> Object:
        """The resource as it is."""
        live = self.find("specm", name)
        assert live is not None, f"{name} is missing"
        return live

    def find(self, kind: str, name: str) -> Object | None:
        """An object of the namespace, or None."""
        return self._reader.get(kind, name)

    def condition(self, name: str, kind: str) -> Object:
        """One condition of the newest generation; empty until the operator has written it."""
        body = self.get(name)
        for condition in body.get("status", {}).get("conditions", []):
            current = condition["observedGeneration"] == body["metadata"]["generation"]
            if condition["type"] == kind and current:
                return dict(condition)
        return {}

    def until(
        self, name: str, kind: str, reason: str, seconds: float = DEADLINE_SECONDS
    ) -> Object:
        """Wait for a condition to carry a reason, and return it."""
        self.wait(
            lambda: self.condition(name, kind).get("reason") == reason,
            seconds,
            lambda: f"{kind} of {name} is not {reason}: {why_not(self.get(name))}",
        )
        return self.condition(name, kind)

    def ready(self, name: str, seconds: float = DEADLINE_SECONDS) -> Object:
        """Wait until a resource is served, and return it.

        The node learns the endpoints of the Service a moment after the API server.
        """
        self.until(name, "Ready", "Serving", seconds)
        url = self.address(name)
        self.wait(
            lambda: listens(url), DEADLINE_SECONDS, lambda: f"{url} of {name} takes no connection"
        )
        return self.get(name)

    def wait(self, true: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
        """Poll; a call that a restarting API server refuses counts as false."""

        def tried() -> bool:
            try:
                return true()
            except (DemoError, ClusterError, OSError):
                return False

        wait(tried, seconds, what)

    def listed(self, kind: str, selector: str = "") -> list[Object]:
        """The objects of a kind in the namespace."""
        return self._reader.all(kind, selector)

    def pods(self, name: str) -> list[Object]:
        """The serving pods of a resource that are not on their way out."""
        selector = f"specdec.dev/model={name},app.kubernetes.io/component=server"
        return [
            pod
            for pod in self._reader.all("pods", selector)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def left(self, name: str, count: int, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until only so many serving pods of a resource exist; one that ends counts too."""
        selector = f"specdec.dev/model={name},app.kubernetes.io/component=server"
        self.wait(
            lambda: len(self._reader.all("pods", selector)) == count,
            seconds,
            lambda: f"{name} does not come to {count} pods",
        )

    def replaced(self, name: str, uid: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until another pod than the one with this uid answers its probes."""
        self.wait(
            lambda: any(answers(p) for p in self.pods(name) if p["metadata"]["uid"] != uid),
            seconds,
            lambda: f"no new pod of {name} is ready",
        )

    def build_jobs(self, name: str | None = None) -> dict[str, str]:
        """Names and uids of the build Jobs, of one resource or of all."""
        selector = "app.kubernetes.io/component=engine"
        if name:
            selector += f",models.specdec.dev/{name}"
        return {j["metadata"]["name"]: j["metadata"]["uid"] for j in self.listed("jobs", selector)}

    def address(self, name: str) -> str:
        """The gRPC endpoint of a resource's Service, reachable from here."""
        service = self.find("service", name)
        assert service is not None, f"no Service {name}"
        return f"{service['spec']['clusterIP']}:8001"

    def text(self, name: str, prompt: str, **request: Any) -> str:
        """The continuation of a prompt."""
        with Client(self.address(name), timeout=60) as client:
            return client.ask(Request(prompt, **request)).text

    def folder(self, claim: str) -> Path:
        """Where the files of a claim lie on this machine."""
        live = self.find("pvc", claim)
        assert live is not None, f"no claim {claim}"
        return self.node.volume(live["spec"]["volumeName"])

    def unfinished(self, claim: str) -> list[str]:
        """Directories under a final name that are not whole; there must never be one."""
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
        """Check for unfinished directories repeatedly; the list collects them."""
        return repeating(lambda: self.unfinished(claim))

    def probed(self, name: str) -> AbstractContextManager[list[str]]:
        """Send requests to the Service repeatedly; the list collects the failures."""
        url = self.address(name)

        def ask() -> list[str]:
            try:
                with Client(url, timeout=30) as client:
                    client.ask(Request("def f(", max_tokens=4))
            except ClientError as error:
                return [f"{time.strftime('%X')} {error}"]
            return []

        return repeating(ask)
