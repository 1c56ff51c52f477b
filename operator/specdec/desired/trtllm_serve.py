"""The command line, the probes and the hook of `trtllm-serve`, behind a proxy in the same pod.

On its one port `trtllm-serve` also has POSTs that free its memory or replace its weights. It
listens on localhost, where only the containers of its pod reach it; `desired/proxy.py` passes on
what clients may send. Probes of the kubelet reach no port on localhost, so they are programs.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

from specdec.api.model_spec import ModelSpec
from specdec.triton.launch import SPAWNED_RANKS, program_path
from specdec.triton.layout import Launch
from specdec.triton.probes import Programs

# The ports of the proxy.
PORTS = {"http": 8000, "metrics": 8002}
ADDRESS, PORT = "127.0.0.1", 8001
# The repository's only file: arguments of the LLM API.
OPTIONS = "options.yaml"
_PYTHON = ("python3", "-I", "-S")


def command(
    launch: Launch, directory: str, *, checkpoint: str, target: ModelSpec, **_: object
) -> list[str]:
    """Arguments of the server's container; all other settings are in the options file.

    That file has limits and parallelism too. They are also flags, because flags have defaults, and
    a release in which flags override the file would serve with these.

    Args:
        launch: not used; the server is one process, which starts its own ranks.
        directory: the directory of the options file.
        checkpoint: the directory of the target.
        target: the target's settings.
    """
    del launch
    limits, split = target.limits, target.parallelism
    flags = {
        "--max_batch_size": limits.max_batch_size,
        "--max_num_tokens": limits.max_num_tokens,
        "--max_seq_len": limits.max_seq_len,
        # These spellings are in all releases from 1.1 on; newer ones have longer names too.
        "--tp_size": split.tensor,
        "--pp_size": split.pipeline,
    }
    return [
        *("trtllm-serve", checkpoint, "--backend", "pytorch"),
        *("--host", ADDRESS, "--port", str(PORT)),
        *(text for flag, value in flags.items() for text in (flag, str(value))),
        # The oldest spelling, which newer releases accept too.
        *("--extra_llm_api_options", f"{directory}/{OPTIONS}"),
    ]


def environment(launch: Launch) -> dict[str, str]:
    """Variables of the server's container; its libraries then never ask the hub for a model."""
    del launch
    return {"HF_HUB_OFFLINE": "1", **SPAWNED_RANKS}


def programs(
    launch: Launch,
    engines: Sequence[str],
    *,
    attempt_seconds: float,
    patience_seconds: float,
    checkpoint: str,
    **_: object,
) -> Programs:
    """The probes of the server, in `images/serving/health.py`.

    Args:
        launch, engines: not used; the server reports for all of its ranks.
        attempt_seconds: how long one run of the startup probe tries.
        patience_seconds: how long a token may take behind other requests.
        checkpoint: the directory of the target.
    """
    del launch, engines
    model = served_name(checkpoint)
    return Programs(
        [*_probe("startup", attempt_seconds), model],
        [*_probe("readiness", patience_seconds), model],
        _probe("liveness", patience_seconds),
    )


def served_name(checkpoint: str) -> str:
    """The name of the model in requests to the server, which names it after its directory."""
    return PurePosixPath(checkpoint).name


def _probe(name: str, seconds: float) -> list[str]:
    return [*_PYTHON, program_path("health.py"), name, str(PORT), f"{seconds:g}"]


def pre_stop(
    launch: Launch,
    *,
    linger_seconds: int,
    exit_timeout_seconds: int,
    reconnect_seconds: int = 0,
    client_ports: Sequence[int] = (PORTS["http"],),
    **_: object,
) -> list[str]:
    """Arguments of the hook: it waits until neither clients nor the proxy have a connection.

    The proxy opens a connection for each request, so this also waits for requests in flight.
    """
    del launch
    ports = ",".join(str(port) for port in (*client_ports, PORT))
    seconds = (linger_seconds, reconnect_seconds + exit_timeout_seconds, 0)
    return ["python3", program_path("drain.py"), *(str(each) for each in seconds), "0", ports]
