"""The probes of tritonserver: programs of `images/serving` that run in its container."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.triton.launch import PORTS, SHM_PREFIX, Tls, mark, program_path
from specdec.triton.layout import Launch, Mode

# Without site-packages Python takes the least time, and the probes run all the time.
_PYTHON = ("python3", "-I", "-S")


@dataclass(frozen=True)
class Programs:
    """Arguments of the three probes."""

    startup: list[str]
    readiness: list[str]
    liveness: list[str]


@dataclass(frozen=True)
class Token:
    """A request for one token, and what shows that a model gave one.

    Attributes:
        request: the inputs of the model, for Triton's `generate`.
        output: the output that has the token.
        counters: name and label of metrics that grow only while the model works; None for those of
            TensorRT-LLM's engines.
        work: name and label of metrics that show the requests of the model; None for those of
            TensorRT-LLM's engines.
    """

    request: Mapping[str, Any]
    output: str
    counters: tuple[tuple[str, str], ...] | None = None
    work: tuple[tuple[str, str], ...] | None = None


def programs(
    launch: Launch,
    engines: Sequence[str],
    token: Token,
    *,
    attempt_seconds: float,
    patience_seconds: float,
    http_port: int = PORTS["http"],
    grpc_port: int = PORTS["grpc"],
    tls: Tls | None = None,
    metrics_port: int = PORTS["metrics"],
    shm_region_prefix: str = SHM_PREFIX,
) -> Programs:
    """The probes of a server.

    Args:
        launch: from `layout.plan`; with several ranks, those of the container must all run.
        engines: Triton models that must give tokens.
        token: how to ask them.
        attempt_seconds: how long one run of the startup probe tries.
        patience_seconds: how long an engine may show no progress while it has work. The liveness
            probe fails if an engine has failed and showed no progress for that time.
        http_port, grpc_port, metrics_port: of the server.
        tls: of gRPC. If clients need a certificate, the probes open no stream.
        shm_region_prefix: that of `launch.command`.
    """
    plan: dict[str, Any] = {
        "http": http_port,
        "metrics": metrics_port,
        "engines": list(engines),
        "request": dict(token.request),
        "output": token.output,
        "seconds": attempt_seconds,
        "patience": patience_seconds,
    }
    if token.counters is not None:
        plan |= {"counters": token.counters}
    if token.work is not None:
        plan |= {"work": token.work}
    if tls is None or not tls.client_ca:
        plan |= {"grpc": grpc_port, "encrypted": tls is not None}
    if launch.mode is not Mode.PLAIN:
        local = launch.slots[0] if launch.slots else launch.world_size
        plan |= {"ranks": local, "mark": mark(shm_region_prefix)}
    engines_py, text = program_path("engines.py"), json.dumps(plan, separators=(",", ":"))
    return Programs(
        startup=[*_PYTHON, engines_py, "startup", text],
        readiness=[*_PYTHON, engines_py, "readiness", text],
        liveness=[*_PYTHON, program_path("alive.py"), str(http_port), f"{patience_seconds:g}"],
    )
