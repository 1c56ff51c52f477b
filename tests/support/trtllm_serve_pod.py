"""The containers of a pod with `trtllm-serve`, as processes with their own argv and environment.

Only ports and the path of the volume differ from the pod; `trtllm-serve` is the simulation.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from cluster.processes import until
from specdec.api import names
from specdec.servers.proxied import PORT, PORTS
from specdec.tools.dry_run.plan import ResourcePlan
from specdec.triton import start
from support import pod_probes, trtllm_serve
from support.ports import reserved
from support.programs import local

Json = dict[str, Any]


class Pod:
    """A running pod; a context manager.

    Args:
        plan: plan of a sample with the front end.
        folder: an empty folder for the volume and the signals.
        release: simulated release of TensorRT-LLM.
        chats: whether the checkpoint has a chat template.
    """

    def __init__(
        self, plan: ResourcePlan, folder: Path, release: str, *, chats: bool = True
    ) -> None:
        (body,) = [item for item in plan.objects if item["kind"] == "Deployment"]
        containers = body["spec"]["template"]["spec"]["containers"]
        self.server, self.proxy = ({**container} for container in containers)
        self._release = release
        self.signals, self._volume = folder / "signals", folder / "volume"
        self.state = folder / "health"
        self._reserved = ExitStack()
        ports = self._reserved.enter_context(reserved(3))
        self._ports = dict(zip((*PORTS.values(), PORT), ports, strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._fill(plan, chats=chats)

    def _fill(self, plan: ResourcePlan, *, chats: bool) -> None:
        argv = start.server(self.server["command"])
        self.signals.mkdir()
        checkpoint = self._path(argv[1])
        checkpoint.mkdir(parents=True)
        tokenizer = {"chat_template": "{{ messages[-1].content }}"} if chats else {}
        (checkpoint / "tokenizer_config.json").write_text(json.dumps(tokenizer), "ascii")
        directory = self._path(argv[-1]).parent
        for name, text in plan.files.items():
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, "utf-8")
        program = self._volume / "bin" / "trtllm-serve"
        program.parent.mkdir()
        lines = ("#!/bin/sh", f'exec {sys.executable} {trtllm_serve.__file__} "$@"', "")
        program.write_text("\n".join(lines), "ascii")
        program.chmod(0o755)

    @property
    def url(self) -> str:
        """Return the address of the proxy for clients."""
        return f"http://127.0.0.1:{self._ports[PORTS['http']]}"

    @property
    def metrics(self) -> str:
        """Return `host:port` of the proxy's metrics."""
        return f"127.0.0.1:{self._ports[PORTS['metrics']]}"

    @property
    def direct(self) -> str:
        """Return the address of the server, which only its own pod can reach."""
        return f"http://127.0.0.1:{self._ports[PORT]}"

    def __enter__(self) -> Self:
        try:
            self._start("server", start.server(self.server["command"]), self.server["env"])
            proxy = [sys.executable, *self.proxy["command"][1:]]
            self._start("proxy", proxy, self.proxy["env"])
            until(lambda: self.status("/health/live") == 200, lambda: "no proxy")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._reserved.close()

    def signal(self, *files: str) -> None:
        """Create files that the simulation waits for."""
        for file in files:
            (self.signals / file).touch()

    def signalled(self, file: str) -> None:
        """Wait until the simulation creates a file."""
        until((self.signals / file).exists, lambda: f"no {file}")

    def probe(self, name: str) -> str:
        """Run a probe of the server's container once; return its message, empty on success."""
        command = self.server[f"{name}Probe"]["exec"]["command"]
        return pod_probes.probe(command, self._ports[PORT], self.state)

    def age(self, seconds: float) -> None:
        """Move the times in the probes' record into the past."""
        pod_probes.age(self.state, seconds)

    def stop(self) -> subprocess.Popen[bytes]:
        """Start the server's preStop hook, as the kubelet does."""
        command = self._mapped(self.server["lifecycle"]["preStop"]["exec"]["command"])
        return subprocess.Popen(local(command))

    def terminate(self, name: str) -> None:
        """Send SIGTERM to a container."""
        self._processes[name].terminate()

    def ended(self, name: str) -> int | None:
        """Return the exit status of a container; None while it runs."""
        return self._processes[name].poll()

    def status(self, path: str, method: str = "GET", url: str = "") -> int:
        """Return the HTTP status of a request without a body; 0 if the connection failed."""

        def failed(error: OSError) -> None:
            ended = [name for name in self._processes if self.ended(name) is not None]
            print(f"{method} {path}: {error!r}; ended containers: {ended}", file=sys.stderr)

        return pod_probes.status((url or self.url) + path, method, failed)

    def _start(self, name: str, argv: Sequence[str], env: Sequence[Mapping[str, str]]) -> None:
        path = f"{self._volume / 'bin'}:{os.environ['PATH']}"
        variables = {entry["name"]: entry["value"] for entry in env}
        simulated = {"SIMULATION": str(self.signals), "SIMULATION_RELEASE": self._release}
        # The simulation imports the helpers of the tests.
        own = {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[1]), **simulated}
        self._processes[name] = subprocess.Popen(self._mapped(argv), env={**variables, **own})

    def _mapped(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments with the ports of this machine and the folder of the volume."""
        return [self._argument(argument) for argument in argv]

    def _argument(self, argument: str) -> str:
        if argument.startswith(f"{names.VOLUME}/"):
            return str(self._path(argument))
        head, colon, port = argument.rpartition(":")
        numbers = port.split(",")
        if not all(number.isdigit() and int(number) in self._ports for number in numbers):
            return argument
        return head + colon + ",".join(str(self._ports[int(number)]) for number in numbers)

    def _path(self, path: str) -> Path:
        return self._volume / path.removeprefix(f"{names.VOLUME}/")
