"""The commands that README and guides show, and the tests that run them as they are typed."""

import re
import shlex
from pathlib import Path

from specdec import __version__

ROOT = Path(__file__).parents[2]
GUIDES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/README.md")),
]
# The files whose tests run the commands of all guides, as they are typed.
OFFLINE = "tests/unit/test_quickstarts.py"
# Commands that change a cluster, as dry runs.
ON_A_SERVER = "tests/controlplane/test_quickstarts.py"
# These read or change a resource, or call servers.
ON_THE_NODE = "tests/e2e/test_page_commands.py"
OF_CLIENTS = "tests/triton/test_page_commands.py"
# The verbs of each program that a file runs; an empty verb is every command of the program.
RUN_BY: dict[str, dict[str, tuple[str, ...]]] = {
    OFFLINE: {
        "echo": ("",),
        "openssl": ("",),
        "specdec": ("dataset", "image", "migrate", "plan", "render"),
    },
    ON_A_SERVER: {
        "kubectl": (
            *("apply", "create", "delete", "describe", "get", "label", "logs", "patch", "scale"),
        ),
    },
    ON_THE_NODE: {
        "specdec": (
            *("check", "logs", "prune", "report", "rerun", "resume", "status", "suspend", "top"),
        ),
    },
    OF_CLIENTS: {"specdec": ("bench", "generate", "infer", "speculate", "verify")},
}
# The beginning of a command -> why it is not run unchanged.
NOT_RUN = {
    "specdec generate --url localhost:8001 --model vllm_model": (
        "it needs a server of vLLM; tests/vllm_engine/test_pod.py sends such requests"
    ),
    "kubectl patch --type=merge": "it is refused; tests/controlplane/test_tutorial.py runs it",
    "specdec plan -f manifests/samples/reference-draft-target.yaml --checkpoint": (
        "the plan refuses the pair; tests/unit/test_tutorial_page.py runs it"
    ),
    "specdec image check /": "it runs inside an image; the check of a folder runs here",
}


def in_checkout(word: str) -> Path:
    """Return the local path of a file or folder, which a guide may name by its release's URL."""
    tag = re.escape(f"?ref=v{__version__}")
    released = re.fullmatch(rf"https://github\.com/specdec/specdec/(\S+){tag}", word)
    return ROOT / (released.group(1) if released else word)


def typed(document: Path) -> list[list[str]]:
    """Return the commands in a document's shell blocks."""
    text = document.read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


def place(command: list[str]) -> str:
    """Return the file whose tests run a command unchanged; empty if no file does."""
    line = " ".join(command) + " "
    if any(line.startswith(f"{begin} ") for begin in NOT_RUN):
        return ""
    program, verb = command[:2]
    if program == "specdec" and any(word.startswith("specm/") for word in command):
        return ON_THE_NODE
    verbs = {file: programs.get(program, ()) for file, programs in RUN_BY.items()}
    return next((file for file, run in verbs.items() if verb in run or "" in run), "")


def all_run_by(test: str) -> list[tuple[Path, list[str]]]:
    """Return (document, command) for every command that a test file must run."""
    commands = [(document, command) for document in GUIDES for command in typed(document)]
    return [(document, command) for document, command in commands if place(command) == test]
