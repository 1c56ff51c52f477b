"""A server with an OpenAI API of its own, which listens on localhost behind a proxy in its pod.

Beside that API such a server has operations that change it, and checks no client. So only the
containers of its pod reach it, and `images/openai/proxy` passes on what clients may send. Probes
of the kubelet reach no port on localhost, so they are programs.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from specdec.servers.kind import Probing, Proxy, Serving, Start, Stopping
from specdec.triton.launch import program_path
from specdec.triton.layout import Launch
from specdec.triton.log_lines import LogLines
from specdec.triton.probes import Programs

# The ports of the proxy.
PORTS = {"http": 8000, "metrics": 8002}
ADDRESS, PORT = "127.0.0.1", 8001
_HEALTH = "/health"
# The programs of `images/serving` that run in the pod.
_FILES = ("check_volume.py", "drain.py", "health.py")
# The server aborts a request whose client disconnects, and a first token may take this long.
_ATTEMPT_SECONDS = 30
_READINESS_FAILURES = 3
_PYTHON = ("python3", "-I", "-S")

# The name of the model in requests, by the names of the resource and of the target's directory.
ModelName = Callable[[str, str], str]


def listen() -> list[str]:
    """The flags that make the server listen on localhost."""
    return ["--host", ADDRESS, "--port", str(PORT)]


def serving(
    command: Callable[[Start], list[str]],
    environment: Callable[[Launch], Mapping[str, str]],
    model: ModelName,
    owner: str,
    counted: Mapping[str, Any],
    log: LogLines,
) -> Serving:
    """How the operator runs such a server.

    Args:
        command: the command line of the server.
        environment: the variables of its container.
        model: the name of the model.
        owner: the owner of the model in the server's list of models.
        counted: where the server counts requests that have ended: fields of the plan of
            `health.py`, of which `page` is the path of the metrics.
        log: the lines of its log that name a cause or a step of its start.
    """
    return Serving(
        ports=PORTS,
        command=command,
        environment=environment,
        probes=partial(_programs, counted, model),
        pre_stop=_pre_stop,
        files=_FILES,
        log=log,
        openai="http",
        proxy=Proxy(
            address=f"{ADDRESS}:{PORT}",
            model=model,
            health=_HEALTH,
            page=counted["page"],
            owner=owner,
        ),
        attempt_seconds=_ATTEMPT_SECONDS,
        readiness_failures=_READINESS_FAILURES,
    )


def _programs(counted: Mapping[str, Any], model: ModelName, probing: Probing) -> Programs:
    """The probes of the server, in `images/serving/health.py`."""
    name = model(probing.name, probing.checkpoint)
    plan = {
        "port": PORT,
        "health": _HEALTH,
        "path": "/v1/completions",
        "output": "choices",
        **counted,
        "request": {"model": name, "prompt": "hi", "max_tokens": 1, "temperature": 0},
        "seconds": probing.attempt_seconds,
        "patience": probing.patience_seconds,
    }
    return Programs(*(_probe(name, plan) for name in ("startup", "readiness", "liveness")))


def _probe(name: str, plan: Mapping[str, Any]) -> list[str]:
    return [*_PYTHON, program_path("health.py"), name, json.dumps(plan)]


def _pre_stop(stopping: Stopping) -> list[str]:
    """The hook waits until neither clients nor the proxy have a connection.

    The proxy opens a connection for each request, so this also waits for requests in flight.
    """
    ports = ",".join(str(port) for port in (PORTS["http"], *stopping.client_ports, PORT))
    wait = stopping.reconnect_seconds + stopping.exit_timeout_seconds
    seconds = (stopping.linger_seconds, wait, 0)
    return ["python3", program_path("drain.py"), *(str(each) for each in seconds), "0", ports]
