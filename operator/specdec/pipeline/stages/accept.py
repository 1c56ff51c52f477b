"""Accepted: whether this release can serve the resource.

The API server rejects most invalid resources by the rules of the CustomResourceDefinition. This
stage checks the rules that no schema can express. It also evaluates the definition's rules that
depend on the backend, because the cluster may have an older definition.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specdec import backends, servers
from specdec.api.conditions import Condition, Type
from specdec.api.matrix import support, vulnerable_release
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason, DeprecatedReason
from specdec.pipeline import validation
from specdec.pipeline.stage import Context, Outcome


def accept(context: Context) -> Outcome:
    """Check the spec, and derive version, image and devices from it."""
    model, images = context.model, context.images
    problem = validation.first_problem(model, images)
    if problem is not None:
        refused = Condition(Type.ACCEPTED, "False", problem.reason, problem.message)
        return Outcome((refused,), context.facts, proceed=False)
    runtime, version = model.spec.runtime, validation.version(model)
    image = runtime.image or backends.default_image(model, images, version)
    reason = (
        AcceptedReason.BELOW_FIX_LEVEL
        if _vulnerable_release(model, image)
        else AcceptedReason.VALID
    )
    accepted = Condition(Type.ACCEPTED, "True", reason, _message(model, version, image))
    drafts = backends.method(model).draft_tokens(model)
    plan = {
        "backend": runtime.backend.value,
        "version": version,
        "image": image,
        "method": model.spec.speculation.method.value,
        **({"draftTokens": drafts} if drafts is not None else {}),
        "maxDraftTokens": backends.method(model).max_draft_len(model),
        **_servers(model),
    }
    facts = replace(context.facts, version=version, image=image)
    conditions = (accepted, *_deprecated(model))
    return Outcome(conditions, facts, proceed=True, status={"plan": plan})


def _message(model: SpeculativeModel, version: str, image: str) -> str:
    backend, method = model.spec.runtime.backend, model.spec.speculation.method
    message = f"{backend} {version} serves method {method} with image {image}"
    message += "".join(f"; warning: {text}" for text in backends.warnings(model))
    return message + _faults_warning(model, image)


def _deprecated(model: SpeculativeModel) -> Iterator[Condition]:
    """The condition Deprecated of a backend that a later release will not serve."""
    row, method = support(model.spec.runtime.backend), model.spec.speculation.method
    if row.deprecation:
        message = (
            f"{row.deprecation}, method {row.replacements[method]} ({row.deprecation_link}); "
            "specdec migrate prints the migrated resource, and docs/migration-pytorch.md has the "
            "steps"
        )
        yield Condition(Type.DEPRECATED, "True", DeprecatedReason.ENGINES_REMOVED, message)


def _faults_warning(model: SpeculativeModel, image: str) -> str:
    """A warning about a server with publicly known vulnerabilities."""
    backend = model.spec.runtime.backend
    releases = _vulnerable_release(model, image)
    if releases is None:
        return ""
    release, level = releases
    fixed = [
        v for v, i in support(backend).images.items() if vulnerable_release(backend, i) is None
    ]
    http = ", and set serving.http to HealthOnly if all clients use gRPC"
    return (
        f"; warning: Triton {release} of this image has publicly known remote faults that are "
        f"fixed in {level}: let only trusted clients reach it"
        + (http if model.spec.serving.takes_http else "")
        + (f", or take the image of runtime.version {fixed[-1]}" if fixed else "")
    )


def _vulnerable_release(model: SpeculativeModel, image: str) -> tuple[str, str] | None:
    """The image's Triton release, and the release that fixes its known vulnerabilities.

    None if the image has no known vulnerability. The only server
    that runs behind the operator's own proxy is trtllm-serve. It is not a tritonserver, so it has
    none of them.
    """
    if not servers.of(model).serving.tritonserver:
        return None
    return vulnerable_release(model.spec.runtime.backend, image)


def _servers(model: SpeculativeModel) -> dict[str, Any]:
    """Devices, ranks and launch for `status.plan`; with two servers, the launch of the first."""
    ranks = backends.of(model).servers(model)
    first, product, draft = ranks.servers[0], model.spec.gpu.product, model.gpu("draft").product
    participants = {role: list(ids) for role, ids in first.participant_ids.items()}
    return {
        "devices": {role: list(ids) for role, ids in ranks.devices.items()},
        "gpusPerPod": max(server.gpus for server in ranks.servers),
        "nodesPerReplica": model.spec.serving.nodes_per_replica,
        "launch": first.launch.mode.value,
        "worldSize": first.launch.world_size,
        **({"participantIds": participants} if participants else {}),
        **({"gpuProduct": product} if product else {}),
        **({"draftGpuProduct": draft} if draft and draft != product else {}),
    }
