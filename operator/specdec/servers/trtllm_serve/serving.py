"""How the operator runs `trtllm-serve`, behind a proxy in the same pod.

On its one port `trtllm-serve` also has POSTs that free its memory or replace its weights. It
listens on localhost, where only the containers of its pod reach it; `desired/proxy.py` passes on
what clients may send. Probes of the kubelet reach no port on localhost, so they are programs.
"""

import json
from pathlib import PurePosixPath
from typing import Any

from specdec.servers.kind import Probing, Proxy, Serving, Start, Stopping
from specdec.triton.launch import SPAWNED_RANKS, program_path
from specdec.triton.layout import Launch
from specdec.triton.probes import Programs

# The ports of the proxy.
PORTS = {"http": 8000, "metrics": 8002}
ADDRESS, PORT = "127.0.0.1", 8001
# The repository's only file: arguments of the LLM API.
OPTIONS = "options.yaml"
_PYTHON = ("python3", "-I", "-S")
# What `images/serving/health.py` requests. The server's own `/health_generate` sends a chat, so
# it fails for ever without a chat template. A request whose client left is no proof.
_PROBE = {
    "port": PORT,
    "health": "/health",
    "path": "/v1/completions",
    "output": "choices",
    "page": "/prometheus/metrics",
    "counters": ["trtllm_request_success_total", "trtllm_generation_tokens_total"],
    "without": ["cancelled", "timeout"],
}


def command(start: Start) -> list[str]:
    """Arguments of the server's container; all other settings are in the options file.

    That file has limits and parallelism too. They are also flags, because flags have defaults, and
    a release in which flags override the file would serve with these. The server is one process,
    which starts its own ranks.
    """
    limits, split = start.target.limits, start.target.parallelism
    flags = {
        "--max_batch_size": limits.max_batch_size,
        "--max_num_tokens": limits.max_num_tokens,
        "--max_seq_len": limits.max_seq_len,
        # These spellings are in all releases from 1.1 on; newer ones have longer names too.
        "--tp_size": split.tensor,
        "--pp_size": split.pipeline,
    }
    return [
        *("trtllm-serve", start.checkpoint, "--backend", "pytorch"),
        *("--host", ADDRESS, "--port", str(PORT)),
        *(text for flag, value in flags.items() for text in (flag, str(value))),
        # The oldest spelling, which newer releases accept too.
        *("--extra_llm_api_options", f"{start.directory}/{OPTIONS}"),
    ]


def environment(launch: Launch) -> dict[str, str]:
    """Variables of the server's container; its libraries then never ask the hub for a model."""
    del launch
    return {"HF_HUB_OFFLINE": "1", **SPAWNED_RANKS}


def programs(probing: Probing) -> Programs:
    """The probes of the server, in `images/serving/health.py`."""
    model = served_name(probing.checkpoint)
    request = {"model": model, "prompt": "hi", "max_tokens": 1, "temperature": 0}
    plan = {
        **_PROBE,
        "request": request,
        "seconds": probing.attempt_seconds,
        "patience": probing.patience_seconds,
    }
    return Programs(*(_probe(name, plan) for name in ("startup", "readiness", "liveness")))


def served_name(checkpoint: str) -> str:
    """The name of the model in requests to the server, which names it after its directory."""
    return PurePosixPath(checkpoint).name


def _probe(name: str, plan: dict[str, Any]) -> list[str]:
    return [*_PYTHON, program_path("health.py"), name, json.dumps(plan)]


def pre_stop(stopping: Stopping) -> list[str]:
    """The hook waits until neither clients nor the proxy have a connection.

    The proxy opens a connection for each request, so this also waits for requests in flight.
    """
    ports = ",".join(str(port) for port in (PORTS["http"], *stopping.client_ports, PORT))
    wait = stopping.reconnect_seconds + stopping.exit_timeout_seconds
    seconds = (stopping.linger_seconds, wait, 0)
    return ["python3", program_path("drain.py"), *(str(each) for each in seconds), "0", ports]


SERVING = Serving(
    ports=PORTS,
    command=command,
    environment=environment,
    probes=programs,
    pre_stop=pre_stop,
    files=("check_volume.py", "drain.py", "health.py"),
    openai="http",
    proxy=Proxy(f"{ADDRESS}:{PORT}", served_name),
    # The server aborts a request whose client disconnects, and a first token may take this long.
    attempt_seconds=30,
    readiness_failures=3,
)
