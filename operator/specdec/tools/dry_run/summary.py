"""Summarize a plan as JSON, for `specdec plan --json` and for the file that `render` adds.

It is pure. Keys are stable. Values that only a cluster or a fetch Job knows are marked by `basis`.
"""

import hashlib
from collections.abc import Mapping

from specdec.api import names
from specdec.api.conditions import MEASURED, Type
from specdec.api.reasons import CommonReason, ReadyReason, VerificationReason
from specdec.desired.pod import GPU
from specdec.desired.serving import CONTAINER
from specdec.tools.dry_run.plan import CHECKED, LATER, PREBUILT, Json, ResourcePlan, pod_templates
from specdec.triton import start


def summary(plan: ResourcePlan, steps: Mapping[str, list[Json]] | None = None) -> Json:
    """The plan as JSON, without the texts of files and manifests.

    `steps` are those of the builds by role, from `build_commands`.
    """
    return {
        "resource": {"name": plan.name, "namespace": plan.namespace},
        "refused": plan.refusal,
        "stages": [_stage(plan, item) for item in plan.status["conditions"]],
        "plan": plan.status.get("plan", {}),
        "claim": plan.volume,
        "checkpoints": [
            {
                "role": model["role"],
                "digest": model["digest"],
                "basis": plan.checkpoints[model["role"]],
            }
            for model in plan.status.get("models", [])
        ],
        "engines": [
            {**_engine(plan, entry, build), "steps": (steps or {}).get(entry["role"], [])}
            for entry, build in plan.engines()
        ],
        "jobs": [_job(obj) for obj in plan.objects if obj["kind"] == "Job"],
        "repository": {
            "hash": plan.status.get("repository", {}).get("hash", ""),
            "files": [
                {
                    "path": path,
                    "bytes": len(text.encode()),
                    "sha256": hashlib.sha256(text.encode()).hexdigest(),
                }
                for path, text in plan.files.items()
            ],
        },
        "servers": [_server(name, obj) for name, obj in plan.servers.items()],
        "service": [
            {"name": obj["metadata"]["name"], "ports": obj["spec"]["ports"]}
            for obj in plan.of("network", "Service")
        ],
        "url": plan.status.get("url", ""),
        "endpoints": plan.status.get("endpoints", []),
        "pairs": [pair.shown() for pair in plan.pairs],
    }


def _stage(plan: ResourcePlan, condition: Json) -> Json:
    stage = {key: condition[key] for key in ("type", "status", "reason", "message")}
    basis = plan.basis(condition["type"])
    if basis == LATER and condition["status"] == "True":
        stage |= {
            "status": "Unknown",
            "reason": str(CommonReason.WAITING),
            "message": "known after fetch; --checkpoint ROLE=DIR checks a local folder",
        }
    if condition["type"] in MEASURED and _measured(condition):
        # The simulated results are not those of a real service.
        stage |= {
            "status": "Unknown",
            "reason": str(CommonReason.WAITING),
            "message": "measured by a Job once pods serve",
        }
    if condition["type"] == Type.READY and condition["status"] == "True":
        stage["message"] = "when every stage above is True"
    return {**stage, "basis": basis}


def _measured(condition: Json) -> bool:
    """Whether a condition is based on a measurement, not on the resource alone."""
    return condition["reason"] not in (
        VerificationReason.METHOD_NONE,
        VerificationReason.NOT_RUN,
        ReadyReason.SUSPENDED,
        CommonReason.WAITING,
    )


def _engine(plan: ResourcePlan, entry: Json, build: Json) -> Json:
    inputs = {k: v for k, v in build.items() if k not in ("key", "output", "role")}
    role = entry["role"]
    if not build:
        return {"role": role, "key": entry["key"], "basis": PREBUILT, "build": {}}
    # Heads are built into the target's engine.
    roles = {role, "heads"} if build.get("heads") else {role}
    basis = LATER if LATER in {plan.checkpoints[name] for name in roles} else CHECKED
    return {"role": role, "key": entry["key"], "basis": basis, "build": inputs}


def _job(job: Json) -> Json:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {
        "name": job["metadata"]["name"],
        "component": job["metadata"]["labels"][names.COMPONENT],
        "image": container["image"],
        "command": container["command"],
        "gpus": _gpus(container),
    }


def _server(name: str, server: Json) -> Json:
    templates = pod_templates(server)
    template = templates.get("leaderTemplate", templates)
    containers = {item["name"]: item for item in template["spec"]["containers"]}
    container, first = containers[CONTAINER], template["spec"].get("initContainers", [])
    # The others end before the server starts.
    sidecars = [item for item in first if item.get("restartPolicy") == "Always"]
    return {
        "kind": server["kind"],
        "name": name,
        "replicas": server["spec"]["replicas"],
        "podsPerReplica": templates.get("size", 1),
        "image": container["image"],
        "command": start.server(container["command"]),
        "env": {e["name"]: e["value"] for e in container.get("env", []) if "value" in e},
        "gpusPerPod": _gpus(container),
        "sidecars": [{"name": item["name"], "image": item["image"]} for item in sidecars],
    }


def _gpus(container: Json) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
