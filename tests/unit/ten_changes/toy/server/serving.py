"""How the operator runs the toy server."""

import json
import re

from specdec.servers.kind import Probing, Serving, Start, Stopping
from specdec.triton.launch import program_path
from specdec.triton.log_lines import LogLines
from specdec.triton.probes import Programs

PORTS = {"http": 9100, "metrics": 9102}
_PROBE = {
    "port": PORTS["http"],
    "health": "/alive",
    "path": "/toy/continue",
    "request": {"after": "a", "count": 1},
    "output": "pieces",
    "page": "/alive",
}


def _command(start: Start) -> list[str]:
    return ["toy-server", f"{start.directory}/toy.json"]


def _probes(probing: Probing) -> Programs:
    times = {"seconds": probing.attempt_seconds, "patience": probing.patience_seconds}
    health, plan = program_path("health.py"), json.dumps({**_PROBE, **times})
    return Programs(
        *(["python3", health, name, plan] for name in ("startup", "readiness", "liveness"))
    )


def _pre_stop(stopping: Stopping) -> list[str]:
    return ["sleep", str(stopping.linger_seconds)]


_NEVER = re.compile(r"(?!)")
SERVING = Serving(
    ports=PORTS,
    command=_command,
    environment=lambda _: {"TOY": "1"},
    probes=_probes,
    pre_stop=_pre_stop,
    files=("check_volume.py", "health.py"),
    log=LogLines(
        errors=(re.compile(r"^broken: (.*)$", re.MULTILINE),),
        harmless=_NEVER,
        prefix=_NEVER,
        trace=_NEVER,
        noise=_NEVER,
    ),
)
