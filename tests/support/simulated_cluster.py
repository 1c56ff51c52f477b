"""The simulated cluster of `specdec plan`, with resources, results and failures for tests.

It only simulates how the API server stores objects. Other tests use a real API server.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import override

from specdec.api import names
from specdec.backends.facts import Images
from specdec.pipeline.observed import Neighbours, Observed
from specdec.tools.dry_run import simulated_cluster
from specdec.tools.dry_run.simulated_cluster import NOW, STAMP, Json
from specdec.tools.dry_run.simulated_cluster import ended_pod_status as ended
from specdec.tools.dry_run.simulated_cluster import measurement_result as measured
from specdec.tools.dry_run.simulated_cluster import merge_metadata as merge

__all__ = [
    "FACTS",
    "IMAGES",
    "NOW",
    "STAMP",
    "World",
    "ended",
    "fetched",
    "limits",
    "measured",
    "merge",
]
__all__ += ["resource", "settled", "source", "waiting"]

IMAGES = Images(operator="example.com/specdec/operator:1", reference="example.com/specdec/ref:1")
FACTS: Json = {
    "architecture": "LlamaForCausalLM",
    "vocabSize": 1024,
    "hiddenSize": 256,
    "layers": 4,
    "heads": 4,
    "kvHeads": 2,
    "maxPosition": 4096,
    "dtype": "float16",
    "tokenizer": "0123456789ab",
    "eos": 0,
    "bos": None,
}


def resource(method: str = "DraftTarget", **spec: Any) -> Json:
    """Return a small valid resource; `spec` replaces whole blocks of its spec."""
    speculation: Json = {"method": method}
    if method == "DraftTarget":
        draft = {"source": source("draft"), "limits": limits()}
        speculation |= {"maxDraftTokens": 8, "draftTokens": 4, "draftTarget": {"draft": draft}}
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": "pair", "namespace": "demo", "uid": "uid-pair", "generation": 1},
        "spec": {
            "runtime": {"backend": "Reference"},
            "target": {"source": source("target"), "limits": limits()},
            "speculation": speculation,
            "storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
            **spec,
        },
    }


def source(role: str) -> Json:
    """Return a source: a checkpoint on a claim."""
    return {"pvc": {"claimName": "reference-pair", "path": role}}


def limits(**changed: int) -> Json:
    """Return small engine limits."""
    return {"maxBatchSize": 16, "maxInputLen": 256, "maxSeqLen": 512, **changed}


def fetched(target: Json | None = None, draft: Json | None = None, **result: Any) -> Json:
    """Return a fetch Job's result for a pair; `target` and `draft` replace facts in FACTS."""
    models = {
        role: {
            "digest": letter * 64,
            "revision": letter * 12,
            "bytes": 1_000_000,
            "facts": FACTS | (facts or {}),
        }
        for role, letter, facts in (("target", "a", target), ("draft", "b", draft))
    }
    return {"models": models, "engines": [], **result}


class World(simulated_cluster.SimulatedCluster):
    """A resource and its cluster, with the methods that only tests need."""

    def __init__(self, cr: Json) -> None:
        super().__init__(cr, IMAGES)
        self.logs: dict[str, str] = {}
        # Other resources of the namespace.
        self.others: list[Json] = []

    @override
    def observed(self) -> Observed:
        live = replace(super().observed(), logs=self.logs)
        if not self.cr.get("status", {}).get("unused"):
            return live
        workloads = tuple(self.deployments.values())
        return replace(live, neighbours=Neighbours((self.cr, *self.others), workloads))

    def write_log(self, job: str, log: str, **spec: Any) -> None:
        """Add a running pod of a Job, whose log is `log`."""
        self.pod(job, {"phase": "Running", "startTime": STAMP}, **spec)
        self.logs[self.pods[-1]["metadata"]["name"]] = log

    def condition(self, kind: str) -> Json:
        """Return a condition of the status."""
        return next(c for c in self.cr["status"]["conditions"] if c["type"] == kind)

    def job(self, component: str) -> str:
        """Return the name of the only Job of a component (fetch, engine, publish)."""
        (name,) = self.named(component)
        return name

    def named(self, component: str) -> list[str]:
        """Return the names of the Jobs of a component."""
        return [
            name
            for name, job in self.jobs.items()
            if job["metadata"]["labels"][names.COMPONENT] == component
        ]

    def fail(self, job: str, message: str, reason: str = "BackoffLimitExceeded") -> None:
        """End a Job with failure; `message` is its pod's termination message."""
        self.pod(job, ended(message, code=1))
        self._end(job, "Failed", reason)

    @override
    def settle(self, result: Callable[[str], Json] | None = None) -> None:
        """Let Jobs and pods succeed until nothing is left to do; `result` gives a Job's result."""
        super().settle(result or (lambda component: fetched() if component == "fetch" else {}))


def settled(cr: Json) -> World:
    """Return the cluster of a resource, after everything has succeeded."""
    world = World(cr)
    world.settle()
    return world


def waiting(reason: str, message: str, image: str = "example.com/x:1") -> Json:
    """Return the status of a pod whose container cannot start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"image": image, "state": state}]}
