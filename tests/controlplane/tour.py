"""A "tour": a run through all actions of a reconcile, which records every status.

Five resources run at once: a pair on two servers that merge into one, a service with all optional
objects, a group of pods on two nodes, a resource whose download fails, and one without a volume.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster.api import Api
from cluster.errors import RefusedError
from controlplane.audit import Log, Right
from controlplane.operating import POD_JOB, Lab, Object, until
from controlplane.pipeline import FACTS, LIMITS, claim
from specdec.api import names
from specdec.api.kinds import PLURALS
from specdec.api.model import API_VERSION, PLURAL
from specdec.cluster import path
from specdec.controller.drift import APPLIED
from specdec.tools.dry_run.simulated_cluster import measurement_result

# Checks of the states that a resource must reach, in order.
Way = Iterator[Callable[[], bool]]

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
PAIR, RICH, BIG, BROKEN, VAST, LATE = "two", "rich", "big", "broken", "vast", "late"
# The API server rejects the pods of its Jobs, whose events the operator then lists.
REJECTED = "rejected"
# A Job may end once its resource had one of these phases, so that the tour records them all.
PHASES = {
    "fetch": {"Fetching"},
    "engine": {"Building"},
    "publish": {"Publishing"},
    "verify": {"Verifying", "Serving"},
}
VERSIONS = {kind: version for version, kind in PLURALS}
PROGRESS = Right("get", "", "pods/log")
POLICY = {"mode": "Enabled", "from": [{"podSelector": {}}]}
BY_HPA = {
    "driver": "HPA",
    "minReplicas": 2,
    "maxReplicas": 3,
    "metrics": [{"type": "Pods", "name": "queue", "target": "2"}],
}
BY_KEDA = {
    "driver": "KEDA",
    "minReplicas": 1,
    "maxReplicas": 3,
    "metrics": [{"type": "Prometheus", "query": "sum(queue)", "target": "2"}],
    "prometheusAddress": "http://prometheus:9090",
}
INGRESS = {"hosts": ["llm.example.com"], "className": "none"}
GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["llm.example.com"]}


def resource(name: str, size: str = "1Gi", **spec: Any) -> Object:
    """Return a target-only resource, whose checkpoint is on a claim."""
    target = {"source": {"pvc": {"claimName": "source", "path": "target"}}, "limits": LIMITS}
    base = {
        "runtime": {"backend": "Reference"},
        "target": target,
        "speculation": {"method": "None"},
        "storage": {"size": size, "accessMode": "ReadWriteMany"},
    }
    meta = {"name": name}
    body = {"apiVersion": API_VERSION, "kind": "SpeculativeModel", "metadata": meta}
    return {**body, "spec": {**base, **spec}}


def pair() -> Object:
    """Return the sample of two servers, with GPUs that the test's cluster has."""
    body: Object = yaml.safe_load((SAMPLES / "tensorrt-two-servers.yaml").read_text())
    body["metadata"]["name"] = PAIR
    body["spec"]["storage"] = {"size": "1Gi", "accessMode": "ReadWriteMany"}
    body["spec"]["target"]["parallelism"] = {"tensor": 2}
    body["spec"]["serving"] = {"drain": {"timeoutSeconds": 5}}
    body["spec"]["verification"] = {"mode": "Gate"}
    return body


def rich() -> Object:
    """Return a service with an autoscaler, a disruption budget, an Ingress and a NetworkPolicy."""
    serving = {"replicas": 2, "drain": {"timeoutSeconds": 5}, "scaling": BY_HPA}
    networking = {"ingress": INGRESS, "networkPolicy": POLICY}
    return resource(RICH, serving=serving, networking=networking)


def big() -> Object:
    """Return a resource that uses every GPU of two nodes."""
    body = resource(BIG, serving={"nodesPerReplica": 2, "drain": {"timeoutSeconds": 5}})
    body["spec"]["runtime"] = {"backend": "TensorRT"}
    body["spec"]["gpu"] = pair()["spec"]["gpu"]
    body["spec"]["target"]["parallelism"] = {"tensor": 8, "pipeline": 2}
    return body


@dataclass
class Tour:
    """Ends Jobs in a namespace and records every status; `log` is the operator's audit log."""

    lab: Lab
    log: Log
    seen: list[Object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._api = Api(self.lab.plane.kubeconfig)
        self._newest: dict[str, tuple[int, str]] = {}

    def go(self) -> None:
        """Run the whole tour; the resources proceed independently."""
        bodies = (pair(), rich(), big(), resource(BROKEN), resource(VAST, "9Ti"))
        rejected = resource(REJECTED, jobs={"priorityClassName": "absent"})
        self.lab.apply(claim("source"), *bodies, rejected)
        ways = {PAIR: self._pair(), RICH: self._rich(), BIG: self._big(), BROKEN: self._rest()}
        due = {name: next(way) for name, way in ways.items()}

        def arrived() -> bool:
            for name in [name for name, check in due.items() if check()]:
                following = next(ways[name], None)
                if following is None:
                    del due[name]
                else:
                    due[name] = following
            return not due

        self.until(arrived, lambda: f"{sorted(due)} at the end")

    def _pair(self) -> Way:
        yield lambda: self.now(PAIR) == "Serving" and self.there(Service="two-draft")
        merged: Object = {"draftTarget": {"topology": "SingleServer", "placement": "Shared"}}
        change = {"speculation": merged, "verification": {"mode": "Report"}}
        self.lab.patch("specm", PAIR, {"spec": change})
        yield lambda: self.without(Deployment="two-draft", Service="two-draft")
        self.lab.patch("specm", PAIR, {"spec": {"suspend": True}})
        yield lambda: self.now(PAIR) == "Suspended"

    def _rich(self) -> Way:
        around = ("PodDisruptionBudget", "NetworkPolicy")
        first, second = ("HorizontalPodAutoscaler", "Ingress"), ("ScaledObject", "HTTPRoute")
        kinds = dict.fromkeys
        yield lambda: self.now(RICH) == "Serving" and self.there(**kinds(around + first, RICH))
        yield self._restored(
            **kinds((*around, *first, "Deployment", "Service"), RICH),
            PersistentVolumeClaim=f"{RICH}-models",
        )
        yield self._owned_again()
        networking = {"ingress": None, "gateway": GATEWAY}
        change: Object = {"serving": {"scaling": BY_KEDA}, "networking": networking}
        self.lab.patch("specm", RICH, {"spec": change})
        yield lambda: self.there(**kinds(second, RICH)) and self.without(**kinds(first, RICH))
        yield self._restored(**kinds(second, RICH))
        # The mode removes the budget for certain: a deleted autoscaler may still set replicas,
        # and several replicas would keep the budget.
        serving: Object = {"scaling": None, "replicas": 1, "disruption": {"mode": "Disabled"}}
        change = {"serving": serving, "networking": None}
        self.lab.patch("specm", RICH, {"spec": change})
        yield lambda: self.without(**kinds(around + second, RICH))

    def _big(self) -> Way:
        yield lambda: self.there(LeaderWorkerSet="big-group") and self.now(BIG) == "Starting"
        yield self._restored(LeaderWorkerSet="big-group")
        change = {"serving": {"nodesPerReplica": 1}, "target": {"parallelism": {"pipeline": 1}}}
        self.lab.patch("specm", BIG, {"spec": change})
        yield lambda: self.now(BIG) == "Serving" and self.without(LeaderWorkerSet="big-group")

    def _restored(self, **named: str) -> Callable[[], bool]:
        """Damage objects; return a check whether the operator has applied them again."""
        for kind, name in named.items():
            self.lab.patch(kind.lower(), name, {"metadata": {"annotations": {APPLIED: None}}})

        def applied(kind: str, name: str) -> bool:
            body = self.lab.get(kind.lower(), name) or {"metadata": {}}
            return APPLIED in body["metadata"].get("annotations", {})

        return lambda: all(applied(*item) for item in named.items())

    def _owned_again(self) -> Callable[[], bool]:
        """Take the owner from a Job and its ConfigMap; return a check whether both have it."""
        selector = f"{names.MODEL}={RICH},{names.COMPONENT}=publish"
        for kind in ("job", "configmap"):
            for body in self.lab.all(kind, selector):
                change = {"metadata": {"ownerReferences": None}}
                self.lab.patch(kind, body["metadata"]["name"], change)
        return lambda: all(
            "ownerReferences" in body["metadata"]
            for kind in ("job", "configmap")
            for body in self.lab.all(kind, selector)
        )

    def _rest(self) -> Way:
        yield lambda: self.now(VAST) == "Pending"
        yield lambda: self.now(BROKEN) == "Failed"

    def until(self, check: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Continue the tour until `check` is true; fail if a request lacks a permission."""

        def checked() -> bool:
            self._poll()
            refused = self.log.refused()
            assert not refused, "; ".join(refused)
            return check()

        def missing() -> str:
            return f"{what if isinstance(what, str) else what()}: {self.progress()}"

        until(checked, missing)

    def phases(self, name: str) -> set[str]:
        """Return all phases that the tour has recorded for a resource."""
        return {phase(body) for body in self.seen if body["metadata"]["name"] == name}

    def now(self, name: str) -> str:
        """Return the last phase of a resource; empty until its status is of the newest spec."""
        newest = [body for body in self.seen if body["metadata"]["name"] == name][-1:]
        return "".join(phase(body) for body in newest if current(body))

    def progress(self) -> str:
        """Return the phases and the end of the log, for a failed test."""
        phases = {body["metadata"]["name"]: phase(body) for body in self.seen}
        return f"{phases} {self.lab.operator.log_tail()}"

    def there(self, **named: str) -> bool:
        """Return whether an object exists for each kind and name."""
        return all(self._is_there(kind, name) for kind, name in named.items())

    def without(self, **named: str) -> bool:
        """Return whether none of these objects exists."""
        return not any(self._is_there(kind, name) for kind, name in named.items())

    def _is_there(self, kind: str, name: str) -> bool:
        return self._api.exists(path(VERSIONS[kind], kind, self.lab.namespace, name))

    def _poll(self) -> None:
        """Record new statuses, and end the Jobs that are due."""
        for body in self._list(f"/apis/{API_VERSION}", PLURAL):
            name = body["metadata"]["name"]
            if "status" in body and self._newest.get(name) != (newest := mark(body)):
                self._newest[name] = newest
                self.seen.append(body)
        jobs = {job["metadata"]["name"]: job for job in self._list("/apis/batch/v1", "jobs")}
        for pod in self._list("/api/v1", "pods"):
            job = jobs.get(pod["metadata"].get("labels", {}).get(POD_JOB, ""))
            if job is not None and pod["status"].get("phase") == "Running" and self._due(job):
                self._end(job, pod["metadata"]["name"])

    def _list(self, root: str, plural: str) -> list[Object]:
        answer = self._api.call("GET", f"{root}/namespaces/{self.lab.namespace}/{plural}")
        items: list[Object] = answer["items"]
        return items

    def _due(self, job: Object) -> bool:
        component, owner = whose(job)
        if owner == BROKEN and PROGRESS not in self.log.used():
            return False  # it may fail once the operator has read its progress
        return bool(PHASES[component] & self.phases(owner))

    def _end(self, job: Object, pod: str) -> None:
        component, owner = whose(job)
        message, code = result(component, owner) or measurement_result(job), 0
        if owner == BROKEN:
            message = {"error": {"reason": "AuthFailed", "message": "the hub wants a token"}}
            code = 2
        try:
            self.lab.plane.finish(
                self.lab.namespace, pod, message=json.dumps(message), exit_code=code
            )
        except RefusedError as error:
            if error.code != 404:  # the operator has replaced its Job
                raise


def whose(job: Object) -> tuple[str, str]:
    """Return the component of a Job, and the resource that owns it."""
    meta = job["metadata"]
    return meta["labels"][names.COMPONENT], meta["ownerReferences"][0]["name"]


def result(component: str, owner: str) -> Object:
    """Return the result of a Job's program; empty for a measurement."""
    roles = ("target", "draft") if owner == PAIR else ("target",)
    facts = {**FACTS, "heads": 16, "kvHeads": 16}
    models = {
        role: {"digest": names.digest(role), "revision": "", "bytes": 1000, "facts": facts}
        for role in roles
    }
    engine = {"key": "0" * 64, "bytes": 1000, "seconds": 1.5, "maxDraftLen": 10}
    results: dict[str, Object] = {
        "fetch": {"models": models, "engines": []},
        "engine": {"engine": {**engine, "vocabSize": FACTS["vocabSize"]}},
        "publish": {"repository": {"hash": "0" * 64, "files": 20}},
    }
    return results.get(component, {})


def phase(body: Object) -> str:
    value: str = body["status"].get("phase", "")
    return value


def current(body: Object) -> bool:
    """Return whether the status belongs to the newest spec."""
    return bool(body["status"].get("observedGeneration") == body["metadata"]["generation"])


def mark(body: Object) -> tuple[int, str]:
    """Return a value that differs between the statuses of a resource."""
    return body["metadata"]["generation"], json.dumps(body["status"], sort_keys=True)
