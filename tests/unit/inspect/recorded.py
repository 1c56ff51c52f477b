"""A recorded resource during a rebuild, with its Jobs and its pods."""

from typing import Any

from support.fake_api import MODELS, Api, pod

Json = dict[str, Any]
KEY = "3f" * 32
JOBS, PODS = "/apis/batch/v1/namespaces/lab/jobs", "/api/v1/namespaces/lab/pods"
RESOURCE = f"{MODELS}/namespaces/lab/speculativemodels/pair"
# The label of the Job selects the pod of a shared Job.
SHARED = "batch.kubernetes.io/job-name in (engine-3f3f-1)"


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 2,
        "lastTransitionTime": "2026-01-02T03:00:00Z",
    }


MEASURED = {
    "active": True,
    "draftTokens": 4,
    "acceptancePercent": 61,
    "tokensPerRound": "3.42",
    "speedupPercent": 187,
    "prompts": 16,
    "matched": 16,
    "failed": 0,
    "draftedTokens": 512,
    "acceptedTokens": 312,
    "rounds": 128,
    "measuredAt": "2026-01-02T02:00:00Z",
    "planHash": "abc",
    "stale": False,
}
STATUS: Json = {
    "observedGeneration": 2,
    "phase": "Building",
    "url": "http://pair.lab.svc:8000",
    "replicas": 1,
    "readyReplicas": 1,
    "conditions": [
        condition("Accepted", "True", "Valid", "the specification is valid"),
        condition("EnginesReady", "False", "Building", "Job engine-3f3f-1 builds: build 10 %"),
        condition("Ready", "False", "Building", "Job engine-3f3f-1 builds: build 10 %"),
    ],
    "engines": [
        {"role": "target", "key": KEY, "state": "Building", "job": "engine-3f3f-1", "percent": 10},
        {"role": "draft", "key": "4e" * 32, "state": "Built", "seconds": 31},
    ],
    "imageContract": {
        "image": "registry.example/tritonserver:25.05",
        "version": "0.19.0",
        "templates": 5,
        "flags": 31,
        "requestFields": {"minTokens": "min_tokens", "seed": "seed"},
        "warning": "the image differs from TensorRT-LLM 0.19.0",
    },
    "plan": {
        "backend": "TensorRT",
        "version": "0.19.0",
        "draftTokens": 4,
        "maxDraftTokens": 8,
        "gpusPerPod": 1,
        "gpuProduct": "NVIDIA-L4",
        "memory": {
            "devices": [
                {
                    "device": "target:0",
                    "gpuMiB": 23034,
                    "usedMiB": 20730,
                    "percent": 90,
                    "parts": {"target weights": 15316, "target cache": 3000},
                }
            ],
            "kvTokens": {"target": 24576},
        },
    },
    "speculation": {
        "stale": True,
        "measuredAt": MEASURED["measuredAt"],
        "planHash": "abc",
        "previous": MEASURED,
    },
    "benchmark": {
        "state": "Completed",
        "message": "1.80 times as fast",
        "levels": [{"concurrency": 8, "speedupPercent": 180, "speedupInterval": "165-192"}],
        "report": "reports/pair-lab/abc.json",
        "measuredAt": "2026-01-02T02:30:00Z",
        "stale": True,
    },
}
BODY: Json = {
    "apiVersion": "specdec.dev/v1alpha1",
    "kind": "SpeculativeModel",
    "metadata": {
        "name": "pair",
        "namespace": "lab",
        "uid": "uid-pair",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "runtime": {"backend": "TensorRT"},
        "speculation": {"method": "DraftTarget"},
        "serving": {"replicas": 1},
    },
    "status": STATUS,
}


def job(name: str, component: str, **status: Any) -> Json:
    labels = {"app.kubernetes.io/component": component}
    created = "2026-01-02T03:01:00Z" if component == "engine" else "2026-01-02T03:00:00Z"
    meta = {"name": name, "namespace": "lab", "uid": name, "labels": labels}
    return {"metadata": {**meta, "creationTimestamp": created}, "spec": {}, "status": status}


def record(api: Api) -> None:
    """Add the resource and its children to the table."""
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    building = pod(
        "engine-3f3f-1-x",
        "engine",
        labels={"batch.kubernetes.io/job-name": "engine-3f3f-1"},
    )
    ended = pod(
        "pair-fetch-1-x",
        "fetch",
        "Succeeded",
        labels={"batch.kubernetes.io/job-name": "pair-fetch-1"},
    )
    own = "specdec.dev/model=pair"
    jobs = {
        own: [job("pair-fetch-1", "fetch", completionTime="2026-01-02T03:00:30Z", **complete)],
        "models.specdec.dev/pair": [job("engine-3f3f-1", "engine", active=1, failed=1)],
    }
    pods = {own: [pod("pair-0", "server"), ended], SHARED: [building]}
    api.objects |= {
        RESOURCE: BODY,
        RESOURCE.rpartition("/")[0]: [BODY],
        JOBS: lambda selector: jobs[selector],
        PODS: lambda selector: pods[selector],
        f"{PODS}/engine-3f3f-1-x/log": "a line\nprogress phase=build percent=42\nanother line\n",
    }
