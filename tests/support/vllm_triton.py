"""A tritonserver of this machine whose Python models import an installed vLLM."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.triton_server import Server, installed_server
from support.vllm_tests import alone
from support.vllm_wheel import Installation

_PATH = re.compile(r'^export PATH=.*:"\$PATH"$', re.MULTILINE)
_HERE = re.compile(r"^here=.*$", re.MULTILINE)


@contextmanager
def serving(
    installation: Installation, files: Mapping[str, str], folder: Path, **options: Any
) -> Iterator[Server]:
    """Yield a server of a repository (path -> text), 1.6 GB of memory for the pair.

    Only one runs on this machine at a time. `options` are those of `Server`.
    """
    with alone(), tempfile.TemporaryDirectory(prefix="vllm-") as sockets:
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
