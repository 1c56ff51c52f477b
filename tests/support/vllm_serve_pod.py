"""The containers of a pod with vLLM's own server, as processes: a real vLLM, and the proxy.

The kind of server gives the command lines. Only ports and paths differ from those of a pod.
"""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from cluster.processes import until
from specdec.api.model import SpeculativeModel
from specdec.servers.kind import Probing, Start, kind
from specdec.servers.vllm_serve.serving import OPTIONS
from specdec.triton.layout import PLAIN
from support import pod_probes
from support.ports import reserved
from support.shipped_pair import PAIR
from support.simulated_cluster import resource
from support.vllm_server import MODULE, VllmServer
from support.vllm_wheel import Installation

MODEL = "tiny"
# The pair has no template for chats. This one ends a prompt as the pair's training texts do.
TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
# The shipped pair, a cache of 64 MiB, and arithmetic that is the same for every batch.
ENGINE: Mapping[str, Any] = {
    "model": str(PAIR / "target"),
    "dtype": "float32",
    "enforce-eager": True,
    "kv-cache-memory-bytes": 1 << 26,
    "chat-template": TEMPLATE,
    "speculative-config": {
        "method": "draft_model",
        "model": str(PAIR / "draft"),
        "num_speculative_tokens": 4,
    },
}


class Pod:
    """A running pod; a context manager. Only one runs on this machine at a time, with 1.8 GB.

    Args:
        installation: the version of vLLM.
        folder: an empty folder for the options, the log and the state of the probes.
        engine: the options file.
    """

    def __init__(
        self, installation: Installation, folder: Path, engine: Mapping[str, Any] = ENGINE
    ) -> None:
        self._kind, self._folder = kind("vllm_serve"), folder
        (folder / OPTIONS).write_text(yaml.safe_dump(dict(engine)), "utf-8")
        start = Start(
            launch=PLAIN,
            directory=str(folder),
            checkpoint=str(PAIR / "target"),
            target=SpeculativeModel.parse(resource()).spec.target,
            name=MODEL,
            version=installation.version,
            exit_timeout_seconds=30,
            connection_age_seconds=0,
        )
        python, flag, module, *arguments = self._kind.serving.command(start)
        assert (python, flag, module) == ("python3", "-m", MODULE)
        variables = self._kind.serving.environment(PLAIN)
        self.server = VllmServer(installation, folder, arguments, variables)
        self._proxy: subprocess.Popen[bytes] | None = None
        self._resources = ExitStack()
        self.port = self.metrics_port = 0

    @property
    def url(self) -> str:
        """Return the address of the proxy for clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics(self) -> str:
        """Return `host:port` of the proxy's metrics."""
        return f"127.0.0.1:{self.metrics_port}"

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            ports = resources.enter_context(reserved(2))
            self.port, self.metrics_port = ports
            resources.enter_context(self.server)
            proxy = self._kind.serving.proxy
            assert proxy
            options = {
                "--served-model-name": MODEL,
                "--kind": self._kind.name,
                "--upstream": f"127.0.0.1:{self.server.port}",
                "--upstream-model": proxy.model(MODEL, str(PAIR / "target")),
                "--host": "127.0.0.1",
                "--port": str(self.port),
                "--metrics-port": str(self.metrics_port),
            }
            flags = [part for pair in options.items() for part in pair]
            self._proxy = subprocess.Popen(
                [sys.executable, "-m", "specdec.images.openai.proxy", *flags]
            )
            resources.callback(self._stop)
            until(lambda: self.status("/health/ready") == 200, lambda: "the proxy is not ready")
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _stop(self) -> None:
        assert self._proxy
        self._proxy.kill()
        self._proxy.wait()

    def probe(self, name: str) -> str:
        """Run a probe of the server's container once; return its message, empty on success."""
        probing = Probing(
            launch=PLAIN,
            engines=(),
            checkpoint=str(PAIR / "target"),
            name=MODEL,
            attempt_seconds=self._kind.serving.attempt_seconds,
            patience_seconds=60,
        )
        command = getattr(self._kind.serving.probes(probing), name)
        return pod_probes.probe(command, self.server.port, self._state)

    def age(self, seconds: float) -> None:
        """Move the times in the probes' record into the past."""
        pod_probes.age(self._state, seconds)

    def status(self, path: str, method: str = "GET", url: str = "") -> int:
        """Return the HTTP status of a request without a body; 0 if the connection failed."""
        return pod_probes.status((url or self.url) + path, method)

    @property
    def _state(self) -> Path:
        return self._folder / "health"
