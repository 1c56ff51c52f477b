"""Simulates the Jobs of a resource: ends them with the results that programs would report."""

import copy
from typing import Any

from controlplane.operating import Lab, Object, until
from specdec.api import names
from specdec.tools.dry_run.simulated_cluster import measurement_result

LIMITS = {"maxBatchSize": 16, "maxInputLen": 256, "maxSeqLen": 512, "maxNumTokens": 4096}
FACTS = {
    "architecture": "LlamaForCausalLM",
    "vocabSize": 1024,
    "hiddenSize": 128,
    "layers": 4,
    "heads": 4,
    "kvHeads": 4,
    "maxPosition": 1024,
    "dtype": "float32",
    "tokenizer": "0123456789ab",
    "eos": 0,
}


def resource(name: str, **changes: Any) -> Object:
    """Return a DraftTarget pair with its own claim; `changes` replace blocks of the spec."""
    source = {"pvc": {"claimName": "pair", "path": "target"}}
    draft = {"pvc": {"claimName": "pair", "path": "draft"}}
    spec: Object = {
        "runtime": {"backend": "Reference"},
        "target": {"source": source, "limits": dict(LIMITS), "gpu": {"deviceIds": [0]}},
        "speculation": {
            "method": "DraftTarget",
            "maxDraftTokens": 8,
            "draftTokens": 4,
            "draftTarget": {
                "draft": {"source": draft, "limits": dict(LIMITS), "gpu": {"deviceIds": [1]}}
            },
        },
        "storage": {"size": "1Gi", "accessMode": "ReadWriteMany"},
        "serving": {
            # The API server writes these quantities in another form.
            "resources": {
                "requests": {"cpu": "0.1", "memory": "1024Mi"},
                "limits": {"memory": "2048Mi"},
            },
            "drain": {"timeoutSeconds": 5},
        },
    }
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": name},
        "spec": {**spec, **copy.deepcopy(changes)},
    }


def claim(name: str) -> Object:
    """Return a claim that one of the cluster's volumes satisfies."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def fetched(lab: Lab, known: tuple[str, ...] = (), **members: Any) -> str:
    """End the fetch Job with success; return its name."""
    job = lab.job("fetch", known)
    lab.finish(job, {**fetch_result(), **members})
    return job


def fetch_result() -> Object:
    models = {
        role: {
            "digest": names.digest(role),
            "revision": "",
            "bytes": 1000,
            "facts": FACTS,
        }
        for role in ("target", "draft")
    }
    return {"models": models, "engines": []}


def two(jobs: list[str]) -> list[str] | None:
    """Return the Jobs if there are two, else None: the operator creates them one by one."""
    return jobs if len(jobs) == 2 else None


def built(lab: Lab, job: str) -> None:
    """End a build Job with success."""
    engine = {"key": "0" * 64, "bytes": 1000, "seconds": 1.5, "maxDraftLen": 8, "vocabSize": 1024}
    lab.finish(job, {"engine": engine})


def published(lab: Lab, known: tuple[str, ...] = ()) -> str:
    """End the publish Job with success; return its name."""
    job = lab.job("publish", known)
    end_publish(lab, job)
    return job


def end_publish(lab: Lab, job: str) -> None:
    """End this publish Job with success."""
    lab.finish(job, {"repository": {"hash": "0" * 64, "files": 20}})


def verified(lab: Lab, known: tuple[str, ...] = (), **members: Any) -> str:
    """End the verification Job with the results of a good service; return its name."""
    job = lab.job("verify", known)
    body = lab.get("job", job)
    assert body is not None
    lab.finish(job, {"verification": {**measurement_result(body)["verification"], **members}})
    return job


def serve(lab: Lab, name: str, **changes: Any) -> Object:
    """Apply a resource and end its Jobs until it is Ready and verified; return it."""
    lab.apply(claim("pair"), resource(name, **changes))
    fetched(lab)
    lab.wait(name, "Compatible")
    lab.wait(name, "EnginesReady", "False", "Building")
    for job in lab.jobs("engine"):
        built(lab, job)
    published(lab)
    lab.wait(name)
    verified(lab)
    lab.wait(name, "OutputEquivalent")
    body = lab.get("specm", name)
    assert body is not None
    return body


def at_rest(lab: Lab) -> tuple[float, float]:
    """Wait until reconciles and writes have stayed the same for four seconds; return both."""
    seen: list[tuple[float, float]] = []

    def still() -> tuple[float, float] | None:
        seen.append(lab.operator.done())
        last = seen[-20:]  # five checks a second
        return last[0] if len(last) == 20 and len(set(last)) == 1 else None

    return until(still, lambda: f"an operator at rest: {seen[-3:]} {lab.operator.log_tail()}")


def unwritten(lab: Lab, name: str) -> None:
    """Annotate a resource, and check that the operator reconciles it and writes nothing."""
    reconciles, writes = at_rest(lab)
    before = lab.get("specm", name)
    assert before is not None
    lab.kubectl("annotate", "specm", name, "test/touched=1")
    until(lambda: lab.operator.reconciles() > reconciles, "a reconcile of the touched resource")
    more = at_rest(lab)[1] - writes
    after = lab.get("specm", name)
    assert after is not None
    assert after["status"] == before["status"]
    assert more == 0, f"{more} writes for an unchanged resource: {lab.operator.log_tail()}"
