"""A tritonserver of this machine whose Python models import an installed vLLM."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from cluster.processes import DEADLINE_SECONDS
from specdec.triton import vllm
from specdec.triton.model_names import VLLM
from support.shipped_pair import PAIR
from support.triton_client import Arrays
from support.triton_server import Server, command_of, installed_server
from support.vllm_generate import SMALL, TARGET
from support.vllm_tests import alone
from support.vllm_wheel import Installation

LENGTH = 4
# The shipped draft.
DRAFTS = {
    "method": "draft_model",
    "model": str(PAIR / "draft"),
    "num_speculative_tokens": LENGTH,
}
PROMPT = "def add(a, b):\n"
_PATH = re.compile(r'^export PATH=.*:"\$PATH"$', re.MULTILINE)
_HERE = re.compile(r"^here=.*$", re.MULTILINE)


def repository(
    drafts: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, str]:
    """Return the files of a repository with the shipped target, path -> text.

    Args:
        drafts: vLLM's `speculative_config`; without it, the server does not draft.
        plan: further fields of `VllmPlan`.
        arguments: further arguments of the engine.
    """
    values = {**SMALL, **TARGET, **arguments}
    if drafts:
        values["speculative_config"] = dict(drafts)
    return vllm.files(vllm.VllmPlan(json.dumps(values), **(plan or {})))


@contextmanager
def serving(
    installation: Installation, files: Mapping[str, str], folder: Path, **options: Any
) -> Iterator[Server]:
    """Yield a server of a repository (path -> text), 1.6 GB of memory for the pair.

    Only one runs on this machine at a time. `options` are those of `Server`.
    """
    with alone(), started(installation, files, folder, **options) as server:
        yield server


@contextmanager
def started(
    installation: Installation, files: Mapping[str, str], folder: Path, **options: Any
) -> Iterator[Server]:
    """Yield a server as `serving` does, for a caller of `alone` that starts several."""
    with tempfile.TemporaryDirectory(prefix="vllm-") as sockets:
        # vLLM has its sockets in TMPDIR by default. Their paths have at most 107 characters.
        environment = {
            **installation.environment(folder / "caches"),
            "VLLM_RPC_BASE_PATH": sockets,
        }
        environment |= options.pop("env", {})
        script = executable(installation, folder)
        with Server(script, files, folder, env=environment, **options) as server:
            yield server


def executable(installation: Installation, folder: Path) -> Path:
    """Write a start script for tritonserver into `folder`; return its path.

    Python models ignore PYTHONPATH. They have the packages of the first interpreter on PATH, which
    the script of the installed server sets, so this script sets another one. It also leaves the
    current folder, because a folder called `triton` would hide the package of that name.
    """
    server = installed_server()
    script = server.read_text("utf-8")
    script, paths = _PATH.subn(f'export PATH={installation.folder}/bin:"$PATH"', script)
    script, roots = _HERE.subn(f"here={server.parents[1]}\ncd {folder}", script)
    assert (paths, roots) == (1, 1), script
    path = folder / "tritonserver"
    path.write_text(script, "utf-8")
    path.chmod(0o755)
    return path


def inputs(
    max_tokens: int = 32, sampling: Mapping[str, Any] | None = None, **given: Any
) -> Arrays:
    """Return the inputs of a greedy request, each with one value.

    Args:
        max_tokens: tokens of the answer at most.
        sampling: further sampling parameters.
        given: further inputs by name; a list has several values.
    """
    parameters = {"temperature": 0, "max_tokens": max_tokens, **(sampling or {})}
    values: dict[str, Any] = {"sampling_parameters": json.dumps(parameters), **given}
    if "input_ids" not in values:
        values = {"text_input": PROMPT, **values}
    return {name: _array(value) for name, value in values.items()}


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, str):
        return np.array([value.encode()], np.object_)
    return np.array(value, np.int32) if isinstance(value, list) else np.array([value])


def generate(server: Server, **inputs: Any) -> httpx.Response:
    """Return the response of Triton's HTTP endpoint `generate` to inputs by name."""
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{VLLM}/generate"
    return httpx.post(url, json=inputs, timeout=DEADLINE_SECONDS)


def engines(server: Server) -> list[int]:
    """Return the ids of the engines' processes."""
    return [pid for pid in server.processes() if b"EngineCore" in command_of(pid)]
