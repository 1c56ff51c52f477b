"""A server and the probes of its pod, with engines that run behind simulated ranks."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.processes import DEADLINE_SECONDS, until
from specdec.servers.bls.serving import TOKEN
from specdec.triton.layout import PLAIN
from specdec.triton.probes import Programs, programs
from specdec.triton.repository import RepositoryPlan
from support.programs import local
from support.triton_server import Server, command_of

TARGET = "tensorrt_llm"
DRAFT = "tensorrt_llm_draft"
ENGINES = (TARGET, DRAFT)
PATIENCE = 3.0
# The failure thresholds of the pod's probes.
FAILURES = 3
# Longer than any test, so that only the test ends the load of a rank.
LOAD_SECONDS = 3600.0


@dataclass(frozen=True)
class Pod:
    """The probes of a server's pod, run as the kubelet runs them."""

    server: Server
    probes: Programs
    folder: Path

    def probe(self, name: str) -> str:
        """Run a probe and return its message, which is empty on success."""
        program: list[str] = getattr(self.probes, name)
        files = {"SPECDEC_ENGINES": "engines", "SPECDEC_PROBE_KEY": "key"}
        paths = {variable: str(self.folder / file) for variable, file in files.items()}
        done = subprocess.run(
            local(program),
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
            env={**os.environ, **paths},
        )
        assert bool(done.returncode) == bool(done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr.strip()

    def fails(self, name: str, message: str) -> bool:
        """Return whether a probe reports this message as often as its failure threshold."""
        return all(message in self.probe(name) for _ in range(FAILURES))

    def reports_itself_ready(self) -> bool:
        """Return whether Triton reports that it and its models are ready."""
        try:
            url = f"http://127.0.0.1:{self.server.http_port}/v2/health/ready"
            with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def rank(self, engine: str) -> int:
        """Return the process id of an engine's rank, once the rank accepts signals."""
        until(lambda: self.loads(engine), lambda: f"{engine} starts no rank")
        processes = self.server.processes()
        (rank,) = (process for process in processes if is_rank(command_of(process), engine))
        return rank

    def in_order_of_load(self) -> Iterator[str]:
        """Yield the engines in the order in which the server begins to load them."""
        waiting = list(ENGINES)
        while waiting:
            until(
                lambda: any(self.loads(engine) for engine in waiting),
                lambda: f"none of {waiting} starts to load",
            )
            (engine,) = (engine for engine in waiting if self.loads(engine))
            waiting.remove(engine)
            yield engine

    def loads(self, engine: str) -> bool:
        """Return whether the rank of an engine has begun to load."""
        return f"{engine}: SIMULATION: its rank loads" in self.server.log()

    def age(self) -> None:
        """Age every engine's last proof of a token, so that the next probe asks each again."""
        file = self.folder / "engines"
        records = json.loads(file.read_bytes())
        aged = {name: {**record, "at": record["at"] - 20} for name, record in records.items()}
        file.write_text(json.dumps(aged), "utf-8")

    def load(self, *engines: str) -> None:
        """Let these engines finish loading."""
        for engine in engines:
            os.kill(self.rank(engine), signal.SIGUSR1)


def is_rank(cmdline: bytes, engine: str) -> bool:
    return b"simulated_rank.py" in cmdline and engine.encode() in cmdline.split(b"\0")


def pod(server: Server, folder: Path, **changes: Any) -> Pod:
    fields: dict[str, Any] = {"attempt_seconds": 3.0, "patience_seconds": PATIENCE} | changes
    fields |= {"http_port": server.http_port, "metrics_port": server.metrics_port}
    fields |= {"grpc_port": server.grpc_port}
    return Pod(server, programs(PLAIN, ENGINES, TOKEN, **fields), folder)


def simulated(plan: RepositoryPlan, *, ready_early: bool, **changes: Any) -> RepositoryPlan:
    """Return a plan whose engines run behind ranks that load until the test lets them finish."""
    assert plan.draft is not None
    changes |= {"simulated_load_seconds": LOAD_SECONDS, "simulated_ready_early": ready_early}
    target, draft = (replace(engine, **changes) for engine in (plan.target, plan.draft))
    return replace(plan, target=target, draft=draft)
