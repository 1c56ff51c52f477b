"""A cluster in memory. It keeps applied objects, so that the pipeline can run to the end.

`plan` and the tests of the pipeline use it. It does the API server's bookkeeping and nothing else;
the caller decides when Jobs end and pods become ready.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from specdec import servers
from specdec.api import conditions, names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.desired import measurement
from specdec.pipeline.adjustments import with_replaced_pods
from specdec.pipeline.decide import Decision, decide
from specdec.pipeline.observed import Observed
from specdec.pipeline.stages.optional_objects import UNKNOWN_REQUEUE
from specdec.tools.dry_run.other_resources import baseline, other_resource

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05Z"
# More reconciles than a resource needs until it serves.
MAX_RECONCILES = 16
Json = dict[str, Any]


class SimulatedCluster:
    """One resource and everything around it."""

    def __init__(self, cr: Json, images: Images) -> None:
        self.cr = copied(cr)
        self.images = images
        self.claim: Json | None = None
        self.jobs: dict[str, Json] = {}
        self.pods: list[Json] = []
        self.config_maps: dict[str, Json] = {}
        self.deployments: dict[str, Json] = {}
        self.services: dict[str, Json] = {}
        self.group: Json | None = None
        self.optional_objects: dict[tuple[str, str], Json] = {}
        # The other resources are ready, because everything in this cluster succeeds.
        self.peer: Json | None = other_resource(ready=True)
        self.baseline: Json | None = baseline(self.cr)
        self.ever_applied: dict[tuple[str, str], Json] = {}
        self.last: Decision | None = None

    @property
    def spec(self) -> Json:
        """The resource's spec, which callers may change in place."""
        spec: Json = self.cr["spec"]
        return spec

    @property
    def deployment(self) -> Json | None:
        """The Deployment of the target's server."""
        return self.deployments.get(self.cr["metadata"]["name"])

    def model(self) -> SpeculativeModel:
        """The resource as the operator parses it."""
        return SpeculativeModel.parse(self.cr)

    def observed(self) -> Observed:
        """The snapshot that a reconcile would read."""
        model = self.model()
        servers = {role: names.server_name(model, role) for role in names.SERVERS}
        return Observed(
            NOW,
            self.claim,
            self.jobs,
            tuple(self.pods),
            self.config_maps,
            {role: self.deployments[n] for role, n in servers.items() if n in self.deployments},
            self.services,
            group=self.group,
            optional_objects=self.optional_objects,
            peer=self.peer,
            baseline=self.baseline,
        )

    def step(self) -> Decision:
        """One reconcile: decide, apply, write the status, delete what it reports."""
        decision = decide(self.model(), self.observed(), self.images)
        before = self._pod_templates()
        for obj in decision.apply:
            self._apply(copied(dict(obj)))
        after = self._pod_templates()
        replaced = [name for name in before if before[name] != after[name]]
        decision = with_replaced_pods(decision, replaced)
        for ref in decision.delete:
            self.delete(ref.kind, ref.name)
        old = self.cr.get("status", {}).get("conditions", [])
        merged = conditions.merge(old, decision.conditions, 1, STAMP)
        self.cr["status"] = json.loads(json.dumps({**decision.status, "conditions": merged}))
        for ref in decision.delete_last:
            self.delete(ref.kind, ref.name)
        self.last = decision
        return decision

    def delete(self, kind: str, name: str) -> None:
        """Delete an object; a Job together with its pods."""
        stores: Mapping[str, dict[str, Json]] = {
            "Job": self.jobs,
            "ConfigMap": self.config_maps,
            "Service": self.services,
            "Deployment": self.deployments,
        }
        if kind == names.GROUP_KIND:
            self.group = None
            return
        if kind in OPTIONAL_KINDS:
            del self.optional_objects[kind, name]
            return
        stores[kind].pop(name)
        if kind == "Job":
            label = "batch.kubernetes.io/job-name"
            self.pods = [p for p in self.pods if p["metadata"]["labels"].get(label) != name]

    def bind(self, uid: str = "uid-claim", size: str = "1Gi") -> None:
        """Bind the claim to a volume; `uid` distinguishes it from other claims of its name."""
        name = names.claim_name(self.model())
        spec = {
            "accessModes": [self.model().access_mode],
            "resources": {"requests": {"storage": size}},
        }
        metadata = {"name": name, "uid": uid}
        self.claim = {"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}

    def pod(self, job: str, status: Json, **spec: Any) -> None:
        """Create a Job's newest pod."""
        number = len(self.pods)
        template = self.jobs[job]["spec"]["template"]
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": job}
        timestamp = f"2026-01-02T03:04:{number:02d}Z"
        metadata = {"name": f"{job}-{number}", "labels": labels, "creationTimestamp": timestamp}
        pod = {"metadata": metadata, "spec": {**template["spec"], **spec}, "status": status}
        for own, item in zip(
            pod["spec"]["containers"], status.get("containerStatuses", ()), strict=False
        ):
            item.setdefault("name", own["name"])
        self.pods.append(pod)

    def finish(self, job: str, result: Json) -> None:
        """Complete a Job with a result."""
        self.pod(job, ended_pod_status(json.dumps(result)))
        self._end(job, "Complete", "CompletionsReached")

    def serve(self) -> None:
        """Make all pods of the current revision ready."""
        for deployment in self.deployments.values():
            count = deployment["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), count)
            generation = deployment["metadata"]["generation"]
            deployment["status"] = {"observedGeneration": generation, **counts}
        if self.group is not None:
            count = self.group["spec"]["replicas"]
            self.group["status"] = dict.fromkeys(
                ("replicas", "updatedReplicas", "readyReplicas"), count
            )

    def settle(self, result: Callable[[str], Json]) -> None:
        """Reconcile and let everything succeed until nothing is left to do.

        Args:
            result: returns the result of a Job by its component.

        Raises:
            RuntimeError: decisions never settle, which is a bug of the operator.
        """
        for _ in range(MAX_RECONCILES):
            self.step()
            if self.claim is None:
                self.bind()
            for name, job in list(self.jobs.items()):
                if "status" not in job:
                    component = job["metadata"]["labels"][names.COMPONENT]
                    self.finish(name, measurement_result(job) or result(component))
            self.serve()
            # Other controllers are not simulated, so optional objects stay pending.
            if self.last is not None and self.last.requeue_after in (None, UNKNOWN_REQUEUE):
                self.step()
                return
        raise RuntimeError(f"still busy: {self.cr['status']}")

    def _end(self, job: str, kind: str, reason: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason}
        self.jobs[job]["status"] = {"conditions": [condition]}

    def _apply(self, obj: Json) -> None:
        kind, name = obj["kind"], obj["metadata"]["name"]
        if "spec" in obj or "data" in obj:
            self.ever_applied[kind, name] = obj
        if kind == names.GROUP_KIND:
            status = {} if self.group is None else {"status": self.group.get("status", {})}
            self.group = copied(obj) | status
        if kind == "Deployment":
            self._deploy(copied(obj))
            return
        stores: Mapping[str, dict[str, Json]] = {
            "Job": self.jobs,
            "ConfigMap": self.config_maps,
            "Service": self.services,
        }
        if kind == "Job" and name in self.jobs:
            merge_metadata(self.jobs[name]["metadata"], obj["metadata"])
        elif kind in stores:
            stores[kind][name] = copied(obj)
        elif kind in OPTIONAL_KINDS:
            old = self.optional_objects.get((kind, name), {})
            status = {"status": old["status"]} if old.get("status") else {}
            self.optional_objects[kind, name] = copied(obj) | status

    def _pod_templates(self) -> dict[str, Json]:
        """The pod template of each Deployment by the Deployment's name."""
        return {name: live["spec"]["template"] for name, live in self.deployments.items()}

    def _deploy(self, obj: Json) -> None:
        """Store a Deployment and keep its old status.

        As in the API server, a change of the spec or of an annotation makes a new generation.
        """
        name = obj["metadata"]["name"]
        live = self.deployments.get(name)
        obj["metadata"]["generation"] = 1
        if live is not None:
            changed = (live["spec"], live["metadata"].get("annotations")) != (
                obj["spec"],
                obj["metadata"].get("annotations"),
            )
            obj["metadata"]["generation"] = live["metadata"]["generation"] + changed
            obj |= {key: live[key] for key in ("status",) if key in live}
        self.deployments[name] = obj


def merge_metadata(live: Json, intent: Json) -> None:
    """Server-side apply by a second field manager: labels merge, owners are added by uid."""
    live["labels"] = live.get("labels", {}) | intent["labels"]
    known = {owner["uid"] for owner in live["ownerReferences"]}
    live["ownerReferences"] += [o for o in intent["ownerReferences"] if o["uid"] not in known]


def measurement_result(job: Json) -> Json:
    """The result of a successful verification or benchmark Job; empty for any other Job."""
    component = job["metadata"]["labels"][names.COMPONENT]
    if component not in (measurement.VERIFY, measurement.BENCHMARK):
        return {}
    plan = json.loads(job["spec"]["template"]["spec"]["containers"][0]["command"][-1])
    result: Json = {
        "planHash": plan["planHash"],
        "draftTokens": plan["draftTokens"],
        "measuredAt": STAMP,
    }
    if component == measurement.BENCHMARK:
        levels = [{"concurrency": n, "speedupPercent": 150} for n in plan["concurrency"]]
        return {"benchmark": {**result, "message": "1.50 times as fast", "levels": levels}}
    count = plan["maxPrompts"]
    result |= {"prompts": count, "failed": 0, "active": True, "rounds": count}
    result |= {"tokensPerRound": "2.00"}
    if not plan["compares"] and servers.kind(plan["kind"]).counters.engine:
        del result["draftTokens"]
        return {"verification": result}
    counts = {"draftedTokens": 2 * count, "acceptedTokens": count, "acceptancePercent": 50}
    return {"verification": {**result, **counts, "matched": count, "speedupPercent": 150}}


def ended_pod_status(message: str, code: int = 0, **terminated: Any) -> Json:
    """The status of a pod whose container has ended."""
    state = {"exitCode": code, "message": message, **terminated}
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"state": {"terminated": state}}],
    }


def copied(value: Any) -> Any:
    """A deep copy of a JSON value; `copy.deepcopy` takes many times as long."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value
