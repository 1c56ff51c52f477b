"""An API server whose operator follows a script; each read of a resource is a step."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from support.fake_api import MODELS, Api, pod
from unit.certify.bodies import alone, load, served

Json = dict[str, Any]
NAMESPACE = "/namespaces/lab"
RESOURCES = f"{MODELS}{NAMESPACE}/speculativemodels"
CLAIMS = f"/api/v1{NAMESPACE}/persistentvolumeclaims"
JOBS = f"/apis/batch/v1{NAMESPACE}/jobs"
PODS = f"/api/v1{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1{NAMESPACE}/events"
OPERATOR_PODS = "/api/v1/namespaces/specdec-system/pods"
LOG = "server ready\nHF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaaaaaaaaaa in the log\n"
METRICS = """
specdec_rounds_total{model="tensorrt_llm_bls"} 20
specdec_draft_tokens_total{model="tensorrt_llm_bls"} 80
specdec_accepted_tokens_total{model="tensorrt_llm_bls"} 60
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1234"} 12884901888
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1234"} 85520809984
"""
Script = list[Json]


def with_status(body: Json, source: Json) -> Json:
    """Return the stored resource with the status of another resource."""
    status = copy.deepcopy(source.get("status", {}))
    if "benchmark" not in body["spec"]:
        status.pop("benchmark", None)
    return {**body, "status": status}


@dataclass
class FakeOperator(Api):
    """Stores written objects; each read of a resource takes the next step of its script.

    Attributes:
        scripts: statuses of a resource by its name; the last status repeats. Without a script
            a resource serves at once.
        results: result of the load test by the name of the resource.
        writes: method and path of every write.
        rejected: HTTP status and message of writes, by path.
        flaky: number of reads of existing resources that fail before one succeeds.
        on_read: called with the name of a resource before each read of it.
    """

    scripts: dict[str, Script] = field(default_factory=dict)
    results: dict[str, Json] = field(default_factory=dict)
    writes: list[tuple[str, str]] = field(default_factory=list)
    rejected: dict[str, tuple[int, str]] = field(default_factory=dict)
    flaky: int = 0
    on_read: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.store: dict[str, Json] = {}
        self.count = 0
        for path in (RESOURCES, JOBS, PODS, EVENTS, OPERATOR_PODS):
            self.objects.setdefault(path, self._list(path))
        self.objects[EVENTS] = [event("certify-baseline"), event("another")]

    def created(self, kind: str = RESOURCES) -> list[str]:
        """Return the names of the applied and created objects, in order."""
        return [
            path.rpartition("/")[2]
            for method, path in self.writes
            if method in ("PATCH", "POST") and path.startswith(kind)
        ]

    @override
    def write(self, method: str, address: str, body: Json) -> tuple[int, bytes]:
        path = urlsplit(address).path
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        self.writes.append((method, path))
        if path in self.rejected:
            code, message = self.rejected[path]
            return code, json.dumps({"kind": "Status", "message": message}).encode()
        if method == "DELETE":
            self._delete(path)
            return 200, b"{}"
        if method == "POST" and path in self.store:
            return 409, json.dumps({"kind": "Status", "message": "exists"}).encode()
        return 200, json.dumps(self._save(path, body)).encode()

    def _save(self, path: str, body: Json) -> Json:
        self.count += 1
        meta = {
            "uid": f"{self.count:08d}-0000",
            "creationTimestamp": "2026-01-02T03:00:00Z",
            "generation": 1,
            **self.store.get(path, {}).get("metadata", {}),
            **body["metadata"],
            "resourceVersion": str(self.count),
        }
        stored = {**body, "metadata": meta}
        self.store[path] = stored
        self.objects[path] = lambda _: self._read(path)
        if path.startswith(RESOURCES) and not body["spec"].get("suspend"):
            self._children(stored)
        if path.startswith(JOBS):
            self._finish(path, stored)
        return stored

    def _children(self, resource: Json) -> None:
        """Add a Job with the operator's image and a serving pod."""
        name = resource["metadata"]["name"]
        labels = {"specdec.dev/model": name, "app.kubernetes.io/component": "publish"}
        image = {"spec": {"containers": [{"name": "publish", "image": "operator:1"}]}}
        job = {
            "metadata": {
                "name": f"{name}-publish-1",
                "namespace": "lab",
                "labels": labels,
                "uid": f"{name}-publish",
                "creationTimestamp": "2026-01-02T03:00:00Z",
            },
            "spec": {"template": image},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        }
        self.store[f"{JOBS}/{name}-publish-1"] = job
        server = pod(f"{name}-0", "server", labels={"specdec.dev/model": name})
        server["status"]["containerStatuses"] = [{"name": "server", "restartCount": 0}]
        self.store[f"{PODS}/{name}-0"] = server
        self.objects[f"{PODS}/{name}-0/log"] = LOG
        self.objects[f"{PODS}/{name}-0:8002/proxy/metrics"] = METRICS

    def _finish(self, path: str, job: Json) -> None:
        """End a Job with the result for its owner."""
        name = job["metadata"]["name"]
        owner = job["metadata"]["ownerReferences"][0]["name"]
        result = self.results.get(owner, {"throughput": load()})
        failed = "error" in result
        kind = "Failed" if failed else "Complete"
        job["status"] = {"conditions": [{"type": kind, "status": "True"}]}
        state = {"terminated": {"message": json.dumps(result)}}
        body = pod(f"{name}-x", "throughput", "Succeeded", labels={})
        body["metadata"]["labels"] = {"batch.kubernetes.io/job-name": name}
        body["status"]["containerStatuses"] = [{"name": "throughput", "state": state}]
        self.store[f"{PODS}/{name}-x"] = body

    def _delete(self, path: str) -> None:
        self.store.pop(path, None)
        self.objects.pop(path, None)
        name = path.rpartition("/")[2]
        if path.startswith(RESOURCES):
            for child in [p for p in self.store if p.rpartition("/")[2].startswith(f"{name}-")]:
                del self.store[child]

    def _read(self, path: str) -> Json | None:
        body = self.store.get(path)
        if body is None or not path.startswith(RESOURCES):
            return body
        name = body["metadata"]["name"]
        self.on_read(name)
        plain = alone() if body["spec"]["speculation"]["method"] == "None" else served()
        script = self.scripts.get(name, [plain])
        step = script.pop(0) if len(script) > 1 else script[0]
        return with_status(body, step)

    def _list(self, path: str) -> Callable[[str], list[Json]]:
        def items(selector: str) -> list[Json]:
            listed = [
                body
                for key, body in self.store.items()
                if key.startswith(f"{path}/") and key.count("/") == path.count("/") + 1
            ]
            return [body for body in listed if _matches(body, selector)]

        return items

    @override
    def respond(self, address: str) -> tuple[int, bytes]:
        # The request of a log must limit its lines; the query of a list is its selector.
        parts = urlsplit(address)
        if parts.path.endswith("/log"):
            assert "tailLines" in parse_qs(parts.query)
        if self.flaky and parts.path.startswith(f"{RESOURCES}/") and parts.path in self.store:
            self.flaky -= 1
            return 503, json.dumps({"kind": "Status", "message": "overloaded"}).encode()
        return super().respond(address)


def _matches(body: Json, selector: str) -> bool:
    labels = body["metadata"].get("labels", {})
    terms = [term.partition("=") for term in selector.split(",") if "=" in term]
    bare = [term for term in selector.split(",") if term and "=" not in term]
    return all(labels.get(key) == value for key, _, value in terms) and all(
        key in labels for key in bare
    )


def event(name: str) -> Json:
    return {
        "metadata": {"name": f"{name}.1", "namespace": "lab"},
        "regarding": {"kind": "SpeculativeModel", "name": name},
        "reason": "EnginesReady",
        "note": "all engines are built",
        "type": "Normal",
        "eventTime": "2026-01-02T03:12:00Z",
    }
