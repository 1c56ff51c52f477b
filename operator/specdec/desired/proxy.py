"""The container of the proxy in front of a server that listens on localhost only."""

from specdec import servers
from specdec.api.model import SpeculativeModel
from specdec.desired.openai import probe
from specdec.desired.pod import Container, ports
from specdec.servers.kind import Proxy

CONTAINER = "proxy"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


def containers(
    model: SpeculativeModel, image: str, checkpoint: str, linger_seconds: int
) -> tuple[Container, ...]:
    """The proxy's container; none if the server is reached directly.

    Args:
        model: the resource.
        image: the operator's.
        checkpoint: directory of the target; the server names its model after it.
        linger_seconds: a stopping proxy accepts requests for this time, until no Service leads
            clients to it. Then it gets SIGTERM and finishes its answers.
    """
    server = servers.of(model).serving
    if server.proxy is None:
        return ()
    return (
        Container(
            name=CONTAINER,
            image=image,
            pull_policy=model.spec.runtime.pull_policy,
            command=_command(model, server.proxy, checkpoint),
            resources=_RESOURCES,
            extra={
                "ports": ports(server.ports),
                "readinessProbe": probe("/health/ready", server.http, 3),
                "livenessProbe": probe("/health/live", server.http, 6),
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(linger_seconds)]}}},
            },
        ),
    )


def _command(model: SpeculativeModel, proxy: Proxy, checkpoint: str) -> list[str]:
    kind, serving = servers.of(model), model.spec.serving
    server = kind.serving
    options = {
        "--served-model-name": model.metadata.name,
        "--kind": kind.name,
        "--upstream": proxy.address,
        "--upstream-model": proxy.model(model.metadata.name, checkpoint),
        "--port": server.ports[server.http],
        "--metrics-port": server.ports[server.metrics],
        # The requests that run and those that wait: the server itself has no limit.
        "--max-in-flight": model.spec.target.limits.max_batch_size + serving.max_queue_size,
        "--drain-seconds": serving.drain.timeout_seconds,
    }
    return [
        *("python", "-m", "specdec.images.openai.proxy"),
        *(str(part) for pair in options.items() for part in pair),
    ]
