"""The Job that downloads every source to the volume and inspects it; it takes no GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec.api import names
from specdec.api.model import Source, SpeculativeModel
from specdec.api.source import Fetch, SecretVariable
from specdec.desired import pod
from specdec.desired.child import given, metadata
from specdec.desired.pod import Container, Placement, Volume

SOURCES = "/sources"
AUTHORITIES = "/specdec/authorities"
# Exit code of our own Jobs for an error that a retry cannot fix.
PERMANENT = 2
_BACKOFF = 4
_RESOURCES = {
    "requests": {"cpu": "250m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


def source_hashes(model: SpeculativeModel, volume: Volume) -> dict[str, str]:
    """A hash for each role; a source is fetched again when its hash changes.

    It covers the source, the volume, and whether weights are fetched.
    """
    bare = without_weights(model)
    return {
        role: names.digest(
            {"source": _source(source), "volume": volume.identity}
            | ({"weights": False} if role in bare else {})
        )
        for role, source in model.sources.items()
    }


def without_weights(model: SpeculativeModel) -> list[str]:
    """Roles of models with prebuilt engines: only configuration and tokenizer are fetched."""
    return [role for role, spec in model.models.items() if spec.engine.prebuilt is not None]


def content(model: SpeculativeModel, volume: Volume) -> str:
    """The content hash of the fetch Job: sources, their Secrets, `spec.fetch` and the account.

    The Job's deadline is no part of it.
    """
    sources = source_hashes(model, volume)
    tokens = {role: _secrets(role, spec) for role, spec in model.sources.items()}
    # Absent if empty, so that the Jobs of resources without these settings keep their names.
    reached = model.spec.fetch.model_dump(exclude_none=True, exclude={"active_deadline_seconds"})
    account = model.spec.pods.service_account_name
    return names.digest(
        {"sources": sources, "tokens": tokens, **given(reached=reached, account=account)}
    )


def job_name(model: SpeculativeModel, volume: Volume) -> str:
    """The name of the fetch Job."""
    return names.job_name(model, "fetch", content(model, volume))


def plan(model: SpeculativeModel, volume: Volume) -> dict[str, Any]:
    """The plan that `specdec.pipeline.validation.fetch_job` reads; it contains no secret.

    `spec` is the part of the spec that the rules on checkpoints read.
    """
    sources = model.sources
    in_place = [role for role in sources if role not in _mounted(model, volume)]
    return {
        "models": {role: _source(source) for role, source in sources.items()},
        "spec": _judged(model),
        **given(
            withoutWeights=without_weights(model),
            inPlace=[role for role in in_place if sources[role].pvc is not None],
        ),
    }


def _judged(model: SpeculativeModel) -> dict[str, Any]:
    """What the rules on checkpoints read of the spec, without the names of Secrets."""
    fields: dict[str, Any] = {
        "runtime": {"backend", "version", "arguments"},
        "target": True,
        "speculation": True,
        "checks": True,
    }
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=fields)
    return {**_without_secrets(spec), "storage": {}}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_secrets(v) for k, v in value.items() if not k.endswith("SecretRef")}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def job(
    model: SpeculativeModel, volume: Volume, image: str, networks: Sequence[str] = ()
) -> dict[str, Any]:
    """The fetch Job; `image` is the operator's own.

    `networks` (CIDR) are those that the Job may connect to besides public addresses.
    """
    allowed = [argument for network in networks for argument in ("--allow", network)]
    mounted, trust = _mounted(model, volume), _trust(model.spec.fetch)
    container = Container(
        name="fetch",
        image=image,
        pull_policy="IfNotPresent",
        command=[
            *("python", "-m", "specdec.pipeline.validation.fetch_job"),
            *("--plan", names.canonical(plan(model, volume))),
            *allowed,
        ],
        env=[
            *_settings(),
            *(env for role, source in model.sources.items() for env in _secrets(role, source)),
            *_proxy(model.spec.fetch),
            *trust.env,
        ],
        mounts=[
            *(
                {"name": name, "mountPath": f"{SOURCES}/{role}", "readOnly": True}
                for role, (name, _) in mounted.items()
            ),
            *trust.mounts,
        ],
        resources=_RESOURCES,
    )
    claims = dict(mounted.values())
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for name, claim in claims.items()
    ]
    volumes += trust.volumes
    name = job_name(model, volume)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(model, name, "fetch", tags=model.spec.metadata.jobs),
        "spec": own_job(
            model, container, volume, "fetch", volumes, model.spec.fetch.active_deadline_seconds
        ),
    }


def _mounted(model: SpeculativeModel, volume: Volume) -> dict[str, tuple[str, str]]:
    """The pod's volume and its claim by role, for sources that lie on another claim.

    Sources on the resource's own claim are read where that claim is mounted. Roles on the same
    claim share one volume: a pod with two volumes of one claim never starts, because the kubelet
    treats them as the same volume and mounts only one.
    """
    volumes: dict[str, str] = {}
    mounted = {}
    for role, source in model.sources.items():
        if source.pvc is not None and source.pvc.claim_name != volume.claim:
            claim = source.pvc.claim_name
            mounted[role] = (volumes.setdefault(claim, f"source-{role}"), claim)
    return mounted


def own_job(
    model: SpeculativeModel,
    container: Container,
    volume: Volume | None,
    component: str,
    volumes: list[dict[str, Any]],
    deadline: int,
) -> dict[str, Any]:
    """The spec of a Job that runs our own image; a permanent error fails it without retries.

    The Job runs on nodes that `spec.jobs` allows, with the resources that `spec.jobs` sets for its
    kind. `deadline` is in seconds and includes retries. It also ends a Job whose volume or server
    hangs.
    """
    jobs = model.spec.jobs
    kinds = {"fetch": jobs.fetch, "publish": jobs.publish, "prune": jobs.publish}
    kind = kinds.get(component, jobs.measurement)
    template = pod.template(
        replace(container, resources=_merged(container.resources, kind.resources)),
        volume,
        pod.labels(names.labels(model, component), volume),
        Placement(jobs.node_selector, jobs.tolerations, jobs.affinity),
        volumes=volumes,
        tags=model.spec.metadata.job_pods,
        pods=model.spec.pods,
        restartPolicy="Never",
        **given(
            imagePullSecrets=pod.pull_secrets(model), priorityClassName=jobs.priority_class_name
        ),
    )
    spec = pod.job_spec(template, _BACKOFF, deadline)
    fail = {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": container.name,
            "operator": "In",
            "values": [PERMANENT],
        },
    }
    spec["podFailurePolicy"]["rules"].insert(0, fail)
    return spec


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and limits, in which those of the resource replace ours by name."""
    return {
        kind: {**ours.get(kind, {}), **theirs.get(kind, {})}
        for kind in ("requests", "limits")
        if kind in ours or kind in theirs
    }


def _source(source: Source) -> dict[str, Any]:
    """The source as the Job reads it: the kind that is set, without any secret's name."""
    for kind, value in source.model_dump(by_alias=True, exclude_none=True).items():
        return {kind: {k: v for k, v in value.items() if not k.endswith("SecretRef")}}
    return {}


def _secrets(role: str, source: Source) -> list[dict[str, Any]]:
    """The environment variables that hold the credentials of a source's Secret."""
    return [
        {"name": names.variable(secret.name, role), "valueFrom": {"secretKeyRef": _key(secret)}}
        for secret in source.secrets
    ]


def _key(secret: SecretVariable) -> dict[str, Any]:
    optional = {"optional": True} if secret.optional else {}
    return {"name": secret.secret, "key": secret.key, **optional}


@dataclass(frozen=True)
class _Trust:
    """What makes the fetch container trust other authorities: variables, mounts and volumes."""

    env: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()


def _trust(fetch: Fetch) -> _Trust:
    """The certificate authorities of the resource, which replace those of the image."""
    reference = fetch.ca_config_map_ref
    if reference is None:
        return _Trust()
    items = [{"key": reference.key, "path": "ca.crt"}]
    return _Trust(
        ({"name": "SSL_CERT_FILE", "value": f"{AUTHORITIES}/ca.crt"},),
        ({"name": "authorities", "mountPath": AUTHORITIES, "readOnly": True},),
        ({"name": "authorities", "configMap": {"name": reference.name, "items": items}},),
    )


def _proxy(fetch: Fetch) -> list[dict[str, Any]]:
    """The proxy's variables, by reference to the Secret: an address may contain a password."""
    if fetch.proxy_secret_ref is None:
        return []
    secret = fetch.proxy_secret_ref.name
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **optional}}}
        for key, optional in (
            ("HTTPS_PROXY", {}),
            ("HTTP_PROXY", {"optional": True}),
            ("NO_PROXY", {"optional": True}),
        )
    ]


def _settings() -> list[dict[str, str]]:
    return [
        {"name": "HF_HUB_DISABLE_TELEMETRY", "value": "1"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
