"""The commands that README and guides show, and the test that runs each of them."""

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
# (program, verb) -> the file whose tests run it; without a verb, every command of the program.
# Commands that need no cluster run unchanged in tests/unit/test_quickstarts.py. Commands that
# change a cluster run in tests/controlplane/test_quickstarts.py, as dry runs.
OFFLINE = "tests/unit/test_quickstarts.py"
ON_A_SERVER = "tests/controlplane/test_quickstarts.py"
# These read or change a resource, or call servers.
ON_THE_NODE = "tests/e2e/test_page_commands.py"
OF_CLIENTS = "tests/triton/test_page_commands.py"
RUN_BY = {
    ("make", "demo"): "tests/demo/test_demo.py",
    ("make", "demo-down"): "tests/demo/test_demo.py",
    ("make", "images"): OFFLINE,
    ("make", "lint"): ".github/workflows/release.yaml",
    ("make", "release-check"): ".github/workflows/release.yaml",
    ("make", "setup"): "Makefile",
    ("make", "test"): ".ci/run",
    ("helm", "install"): "tests/e2e/conftest.py",
    ("helm", "test"): "tests/e2e/conftest.py",
    ("helm", "uninstall"): "tests/chart/test_install.py",
    ("pip", "install"): "tests/unit/test_wheel.py",
    # For the operator's chart; tests/chart/test_model_chart.py has that of a model, for GitOps.
    ("helm", "upgrade"): "tests/chart/test_install.py",
    ("helm", "rollback"): "tests/chart/test_install.py",
    ("curl", ""): "tests/demo/story.py",
    ("curl", "-sN"): "tests/triton/test_call_page.py",
    ("echo", ""): OFFLINE,
    ("openssl", ""): OFFLINE,
    ("kubectl", "apply"): ON_A_SERVER,
    ("kubectl", "create"): ON_A_SERVER,
    ("kubectl", "delete"): ON_A_SERVER,
    ("kubectl", "describe"): ON_A_SERVER,
    ("kubectl", "get"): ON_A_SERVER,
    ("kubectl", "label"): ON_A_SERVER,
    ("kubectl", "logs"): ON_A_SERVER,
    ("kubectl", "patch"): ON_A_SERVER,
    ("kubectl", "scale"): ON_A_SERVER,
    ("kubectl", "specdec"): "tests/e2e/test_install.py",
    # These need running pods.
    ("kubectl", "port-forward"): "tests/demo/kubectl.py",
    ("kubectl", "rollout"): "tests/demo/story.py",
    ("kubectl", "wait"): "tests/e2e/test_answers.py",
    ("specdec", "dataset"): OFFLINE,
    ("specdec", "image"): OFFLINE,
    ("specdec", "migrate"): OFFLINE,
    ("specdec", "plan"): OFFLINE,
    ("specdec", "render"): OFFLINE,
    ("specdec", "bench"): OF_CLIENTS,
    ("specdec", "certify"): "tests/e2e/test_certify.py",
    ("specdec", "check"): ON_THE_NODE,
    ("specdec", "generate"): OF_CLIENTS,
    ("specdec", "infer"): OF_CLIENTS,
    ("specdec", "logs"): ON_THE_NODE,
    ("specdec", "prune"): ON_THE_NODE,
    ("specdec", "report"): ON_THE_NODE,
    ("specdec", "rerun"): ON_THE_NODE,
    ("specdec", "resume"): ON_THE_NODE,
    ("specdec", "speculate"): OF_CLIENTS,
    ("specdec", "status"): ON_THE_NODE,
    ("specdec", "suspend"): ON_THE_NODE,
    ("specdec", "top"): ON_THE_NODE,
    ("specdec", "verify"): OF_CLIENTS,
}
# The beginning of a command -> why no test runs it unchanged.
NOT_RUN = {
    "aiperf profile": "a program of others, whose packages the tests do not install",
    "specdec certify --backend TensorRT --heads": (
        "its checkpoints are on a hub, and EAGLE and Medusa need GPUs"
    ),
    "specdec generate --url localhost:8001 --model tensorrt_llm": (
        "it needs a server of the LLM API; tests/triton/test_llm_api.py sends such requests"
    ),
    "cosign verify": "no release has been signed yet",
    "kubectl krew": "krew is not built here; tests/unit/build/test_plugin.py installs its archive",
    "docker run": "it needs Docker; tests/unit/build/test_image_command.py runs the file",
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


def reason_not_to_run(command: list[str]) -> str:
    """Return why no test runs a command unchanged; empty if a test does."""
    line = " ".join(command) + " "
    return next((why for begin, why in NOT_RUN.items() if line.startswith(f"{begin} ")), "")


def place(command: list[str]) -> str:
    """Return the file whose tests run a command; empty if no file does."""
    program, verb = command[:2]
    if any(word.startswith("specm/") for word in command):
        return ON_THE_NODE if program == "specdec" else RUN_BY.get((program, verb), "")
    return RUN_BY.get((program, verb)) or RUN_BY.get((program, ""), "")


def all_run_by(test: str) -> list[tuple[Path, list[str]]]:
    """Return (document, command) for every command that a test file must run."""
    return [
        (document, command)
        for document in GUIDES
        for command in typed(document)
        if place(command) == test and not reason_not_to_run(command)
    ]
