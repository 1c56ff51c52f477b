"""The container of the OpenAI endpoint, beside the server in a serving pod."""

from typing import Any

from specdec import servers
from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.api.networking import OpenAI
from specdec.desired.child import given
from specdec.desired.pod import MODELS, Container, ports

CONTAINER = "openai"
_TEMPLATE, _FOLDER, _FILE = "chat-template", "/specdec/chat", "chat_template.jinja"
_PERIOD, _TIMEOUT = 5, 3
# The goal for an idle endpoint and its process for templates is 120 MiB; `make bench NAME=openai`
# measures it. The remaining memory is for bodies and answers of requests in flight.
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def containers(
    model: SpeculativeModel, image: str, tokenizer: str, linger_seconds: int
) -> tuple[Container, ...]:
    """The endpoint's container; none if the resource has no endpoint.

    It mounts the volume read-only. The directory of the tokenizer alone would need a subPath, and
    the kubelet creates the directory of a subPath that is missing.

    Args:
        model: the resource.
        image: the operator's.
        tokenizer: the directory of the target's checkpoint.
        linger_seconds: a stopping endpoint accepts requests for this time, until no Service leads
            clients to it. Then it gets SIGTERM and finishes its answers. The server's preStop hook
            waits for the connections and the requests of the endpoint.
    """
    settings = model.spec.serving.open_ai
    if settings is None:
        return ()
    volume = {"name": MODELS, "mountPath": names.VOLUME, "readOnly": True}
    template = {"name": _TEMPLATE, "mountPath": _FOLDER, "readOnly": True}
    return (
        Container(
            name=CONTAINER,
            image=image,
            pull_policy=model.spec.runtime.pull_policy,
            command=_command(model, settings, tokenizer),
            resources=settings.resources or _RESOURCES,
            mounts=[volume, *([template] if settings.chat_template else [])],
            extra={
                "ports": ports({CONTAINER: settings.port}),
                "readinessProbe": probe("/health/ready", CONTAINER, 3),
                "livenessProbe": probe("/health/live", CONTAINER, 6),
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(linger_seconds)]}}},
            },
        ),
    )


def volumes(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """The ConfigMap's key with the chat template, as one file.

    The key is optional: the endpoint reports a missing key, while a pod that requires the key
    would only wait.
    """
    settings = model.spec.serving.open_ai
    if settings is None or settings.chat_template is None:
        return ()
    reference = settings.chat_template
    items = [{"key": reference.key, "path": _FILE}]
    source = {"name": reference.name, "items": items, "optional": True}
    return ({"name": _TEMPLATE, "configMap": source},)


def _command(model: SpeculativeModel, settings: OpenAI, tokenizer: str) -> list[str]:
    kind = servers.of(model)
    server = kind.serving
    options = {
        "--served-model-name": settings.served_model_name or model.metadata.name,
        "--url": f"127.0.0.1:{server.ports[server.grpc]}",
        "--kind": kind.name,
        "--port": settings.port,
        "--tokenizer": tokenizer,
        "--chat-template": f"{_FOLDER}/{_FILE}" if settings.chat_template else None,
        "--tool-call-parser": settings.tool_call_parser,
        "--reasoning-parser": settings.reasoning_parser,
        "--default-decoding": settings.default_decoding,
        "--max-body-bytes": settings.limits.body_bytes,
        "--max-in-flight": settings.limits.requests_in_flight,
        "--timeout-seconds": settings.limits.timeout_seconds,
        "--drain-seconds": model.spec.serving.drain.timeout_seconds,
    }
    pairs = given(**options).items()
    return [
        "python",
        "-m",
        "specdec.images.openai",
        *(str(part) for pair in pairs for part in pair),
    ]


def probe(path: str, port: str, failures: int) -> dict[str, Any]:
    """An HTTP probe of a container that runs the operator's image."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": _PERIOD,
        "timeoutSeconds": _TIMEOUT,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
