"""The probes of a server: programs of `images/serving` that run in its container."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec.triton.launch import PORTS, SHM_PREFIX, Tls, mark, program_path
from specdec.triton.layout import Launch, Mode

# What a model answers with: token ids, or the text of the LLM API.
Answer = Literal["tokens", "text"]
# Without site-packages Python takes the least time, and the probes run all the time.
_PYTHON = ("python3", "-I", "-S")


@dataclass(frozen=True)
class Programs:
    """Arguments of the three probes."""

    startup: list[str]
    readiness: list[str]
    liveness: list[str]


def programs(
    launch: Launch,
    engines: Sequence[str],
    *,
    attempt_seconds: float,
    patience_seconds: float,
    http_port: int = PORTS["http"],
    grpc_port: int = PORTS["grpc"],
    tls: Tls | None = None,
    metrics_port: int = PORTS["metrics"],
    shm_region_prefix: str = SHM_PREFIX,
    answer: Answer = "tokens",
) -> Programs:
    """The probes of a server.

    Args:
        launch: from `layout.plan`; with several ranks, those of the container must all run.
        engines: Triton models that must give tokens.
        attempt_seconds: how long one run of the startup probe tries.
        patience_seconds: how long an engine may show no progress while it has work. The liveness
            probe fails if an engine has failed and showed no progress for that time.
        http_port, grpc_port, metrics_port: of the server.
        tls: of gRPC. If clients need a certificate, the probes open no stream.
        shm_region_prefix: that of `launch.command`.
        answer: what the models answer with.
    """
    plan: dict[str, Any] = {
        "http": http_port,
        "metrics": metrics_port,
        "engines": list(engines),
        "seconds": attempt_seconds,
        "patience": patience_seconds,
    }
    if tls is None or not tls.client_ca:
        plan |= {"grpc": grpc_port, "encrypted": tls is not None}
    if answer != "tokens":
        plan |= {"answer": answer}
    if launch.mode is not Mode.PLAIN:
        local = launch.slots[0] if launch.slots else launch.world_size
        plan |= {"ranks": local, "mark": mark(shm_region_prefix)}
    engines_py, text = program_path("engines.py"), json.dumps(plan)
    return Programs(
        startup=[*_PYTHON, engines_py, "startup", text],
        readiness=[*_PYTHON, engines_py, "readiness", text],
        liveness=[*_PYTHON, program_path("alive.py"), str(http_port), f"{patience_seconds:g}"],
    )
