"""README's `pip install`: the command line from the checkout, in a new virtual environment."""

import subprocess
import sys
from pathlib import Path

from cluster import binaries
from e2e.released import line
from e2e.world import World
from specdec import __version__
from support.quickstarts import ROOT


def test_command_line_of_the_checkout_reaches_the_node(
    world: World, served: str, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    desk = tmp_path / "desk"
    desk.mkdir()
    programs = (tmp_path / "environment" / "bin", binaries.path("kubectl").parent, "/usr/bin")
    environment = {
        "PATH": ":".join(map(str, programs)),
        "HOME": str(tmp_path),
        "KUBECONFIG": str(world.kubeconfig),
        # The test never imports most modules, so pip need not compile them.
        "PIP_COMPILE": "0",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    }

    def run(*argv: str, folder: Path = desk) -> str:
        done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    run(*line("pip", "install"), folder=ROOT)
    run("specdec", "check")
    address = ("--url", f"specm/{served}")
    assert run("specdec", "generate", *address, "--prompt", "def f(", "--max-tokens", "4")
    assert run("kubectl", "specdec", "--version") == f"specdec {__version__}\n"
    assert served in run("kubectl", "specdec", "status")
