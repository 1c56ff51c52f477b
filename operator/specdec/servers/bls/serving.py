"""How the operator runs tritonserver with engines and the BLS."""

from functools import partial

from specdec.servers.kind import Probing, Serving, Start, Stopping
from specdec.triton import launch, probes
from specdec.triton.log_lines import TRITON
from specdec.triton.model_names import DRAFT, TARGET
from specdec.triton.probes import Programs, Token

# Every vocabulary has the id 1.
TOKEN = Token({"input_ids": [1], "input_lengths": 1, "request_output_len": 1}, "output_ids")


def command(start: Start) -> list[str]:
    """One tritonserver for each rank."""
    return launch.command(
        start.launch,
        start.directory,
        exit_timeout_seconds=start.exit_timeout_seconds,
        connection_age_seconds=start.connection_age_seconds,
        log_verbose=start.log_verbose,
        tls=start.tls,
        health_only=start.health_only,
    )


def programs(token: Token, probing: Probing) -> Programs:
    """The probes ask each model for a token."""
    return probes.programs(
        probing.launch,
        probing.engines,
        token,
        attempt_seconds=probing.attempt_seconds,
        patience_seconds=probing.patience_seconds,
        tls=probing.tls,
    )


def pre_stop(stopping: Stopping) -> list[str]:
    """The hook reads Triton's metrics, and waits for clients of both protocols to leave."""
    return launch.pre_stop(
        stopping.launch,
        linger_seconds=stopping.linger_seconds,
        reconnect_seconds=stopping.reconnect_seconds,
        exit_timeout_seconds=stopping.exit_timeout_seconds,
        client_ports=(launch.PORTS["http"], launch.PORTS["grpc"], *stopping.client_ports),
    )


SERVING = Serving(
    ports=launch.PORTS,
    models={"target": TARGET, "draft": DRAFT},
    command=command,
    environment=launch.environment,
    probes=partial(programs, TOKEN),
    pre_stop=pre_stop,
    files=(
        "alive.py",
        "check_volume.py",
        "drain.py",
        "engines.py",
        "renewal.py",
        "streams.py",
    ),
    log=TRITON,
    tritonserver=True,
)
