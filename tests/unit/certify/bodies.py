"""Requests, and resources as the API server stores them at several stages of an entry."""

import copy
import json
from pathlib import Path
from typing import Any

from specdec.api.matrix import Backend
from specdec.tools.certify.request import CertifyRequest

Json = dict[str, Any]
H100 = "NVIDIA-H100-80GB-HBM3"
TENSORRT, REFERENCE = Backend("TensorRT"), Backend("Reference")
PYTORCH, VLLM = Backend("PyTorch"), Backend("VLLM")
CREATED = "2026-01-02T03:00:00Z"
DIGESTS = ["aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "dddddddddd"]


def gpu(**changes: Any) -> CertifyRequest:
    return CertifyRequest(**{"backend": TENSORRT, "gpu_product": H100, **changes})


def cpu(**changes: Any) -> CertifyRequest:
    return CertifyRequest(**{"backend": REFERENCE, **changes})


def condition(
    kind: str, status: str = "True", reason: str = "Valid", message: str = "", at: str = CREATED
) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message or f"{kind} as expected",
        "observedGeneration": 1,
        "lastTransitionTime": at,
    }


# Type, reason and time of the conditions of a served and measured resource with a draft.
_SERVED = [
    ("Accepted", "Valid", "03:00:01"),
    ("StorageReady", "Bound", "03:00:05"),
    ("ModelsFetched", "Fetched", "03:02:00"),
    ("Compatible", "Compatible", "03:02:00"),
    ("MemoryFits", "Fits", "03:02:00"),
    ("EnginesReady", "Built", "03:12:00"),
    ("RepositoryReady", "Published", "03:12:10"),
    ("Available", "PodsReady", "03:13:10"),
    ("SpeculationActive", "DraftTokensObserved", "03:14:00"),
    ("OutputEquivalent", "Equivalent", "03:14:00"),
    ("SpeculationEffective", "Effective", "03:14:00"),
    ("BenchmarkCompleted", "Completed", "03:15:00"),
    ("Ready", "Serving", "03:13:10"),
]


_SPEC: Json = {
    "runtime": {"backend": "Reference"},
    "target": {"source": {"pvc": {"claimName": "pair", "path": "target"}}},
    "speculation": {
        "method": "DraftTarget",
        "maxDraftTokens": 8,
        "draftTokens": 4,
        "draftTarget": {"draft": {"source": {"pvc": {"claimName": "pair", "path": "draft"}}}},
    },
    "storage": {"existingClaim": "models"},
    "benchmark": {"mode": "OnReady"},
}
# The status without its conditions.
_STATUS: Json = {
    "observedGeneration": 1,
    "phase": "Serving",
    "engines": [{"role": "target", "key": "3f" * 32, "state": "Built", "seconds": 540}],
    "plan": {
        "backend": "Reference",
        "version": "0.19.0",
        "image": "reference:1",
        "memory": {
            "devices": [
                {
                    "device": "target:0",
                    "gpuMiB": 81559,
                    "usedMiB": 12000,
                    "percent": 15,
                    "parts": {"target weights": 3000},
                }
            ]
        },
    },
    "speculation": {
        "active": True,
        "prompts": 4,
        "matched": 4,
        "failed": 0,
        "draftedTokens": 80,
        "acceptedTokens": 60,
        "acceptancePercent": 75,
        "tokensPerRound": "3.40",
        "speedupPercent": 160,
    },
    "benchmark": {
        "state": "Completed",
        "levels": [
            {
                "concurrency": 1,
                "speedupPercent": 158,
                "speedupInterval": "150-166",
                "baseline": {"requests": 16, "errors": 0, "tokensPerSecond": "90.1"},
                "speculative": {
                    "requests": 16,
                    "errors": 0,
                    "tokensPerSecond": "142.4",
                    "latencyP50Ms": "20.5",
                },
            },
            {
                "concurrency": 8,
                "baseline": {"requests": 16, "errors": 0, "tokensPerSecond": "300.0"},
                "speculative": {"requests": 16, "errors": 0, "tokensPerSecond": "410.0"},
            },
        ],
    },
}


def served(**changes: Json | None) -> Json:
    """Return a resource that passes; `changes` replace conditions by type, None removes one."""
    conditions = {
        kind: condition(kind, "True", reason, at=f"2026-01-02T{at}Z")
        for kind, reason, at in _SERVED
    }
    conditions |= {kind: changed for kind, changed in changes.items() if changed is not None}
    for kind, changed in changes.items():
        if changed is None:
            del conditions[kind]
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {
            "name": "certify-draft-target-shared",
            "namespace": "lab",
            "uid": "11111111-2222",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": CREATED,
        },
        "spec": copy.deepcopy(_SPEC),
        "status": {**copy.deepcopy(_STATUS), "conditions": list(conditions.values())},
    }


def alone() -> Json:
    """Return a served resource without speculation."""
    body = served(
        SpeculationActive=condition("SpeculationActive", "False", "MethodNone"),
        OutputEquivalent=condition("OutputEquivalent", "Unknown", "MethodNone"),
        SpeculationEffective=condition("SpeculationEffective", "Unknown", "MethodNone"),
        BenchmarkCompleted=condition("BenchmarkCompleted", "Unknown", "NotRun"),
    )
    body["spec"]["speculation"] = {"method": "None"}
    del body["spec"]["benchmark"], body["status"]["speculation"], body["status"]["benchmark"]
    return body


def load(one: float = 100.0, eight: float = 400.0, **changes: Any) -> Json:
    """Return the result of a load test with these tokens per second at concurrency 1 and 8."""
    level = {"requests": 16, "failed": 0, "seconds": 2.0, "latencyP50Ms": 20.0}
    result = {
        "prompts": 4,
        "tokens": 64,
        "answers": list(DIGESTS),
        "levels": [
            {"concurrency": 1, "tokensPerSecond": one, **level},
            {"concurrency": 8, "tokensPerSecond": eight, **level},
        ],
    }
    return copy.deepcopy(result) | changes


def state(out: Path, name: str) -> Json:
    """Return the result.json of an entry in an output folder."""
    document: Json = json.loads((out / "entries" / name / "result.json").read_text())
    return document


def failing(reason: str = "InvalidSpec", message: str = "spec.x is 1: set it to 2") -> Json:
    """Return a resource that the operator does not accept."""
    first = condition("Accepted", "False", reason, message)
    return served(Accepted=first, Ready=condition("Ready", "False", reason, message))


def waiting(kind: str, reason: str) -> Json:
    """Return a resource that waits in the stage of this condition."""
    return served(
        **{
            kind: condition(kind, "False", reason, "wait"),
            "Ready": condition("Ready", "False", reason, "wait"),
        }
    )
