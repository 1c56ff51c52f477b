"""The commands that README and guides give the reader, and the test that runs each of them."""

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
# What needs no cluster runs in tests/unit/test_quickstarts.py as it stands. What changes a cluster
# runs in tests/controlplane/test_quickstarts.py, but for the last step.
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
    # Of the operator; the guide to GitOps has one of a model: tests/chart/test_model_chart.py.
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
    # These wait for pods that really run.
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
# The beginning of a command -> why no test runs it as it stands.
NOT_RUN = {
    "aiperf profile": "a program of others, whose packages the tests do not install",
    "specdec certify --heads": "its checkpoints are on a hub, and EAGLE and Medusa need GPUs",
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
    """A file or folder of this tree, which a guide may name by its address at the release."""
    tag = re.escape(f"?ref=v{__version__}")
    released = re.fullmatch(rf"https://github\.com/specdec/specdec/(\S+){tag}", word)
    return ROOT / (released.group(1) if released else word)


def typed(document: Path) -> list[list[str]]:
    """The commands of a document's shell blocks."""
    text = document.read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


def reason_not_to_run(command: list[str]) -> str:
    """Why no test runs a command as it stands; empty if one does."""
    line = " ".join(command) + " "
    return next((why for begin, why in NOT_RUN.items() if line.startswith(f"{begin} ")), "")


def place(command: list[str]) -> str:
    """The file whose tests run a command; empty if none does."""
    program, verb = command[:2]
    if any(word.startswith("specm/") for word in command):
        return ON_THE_NODE if program == "specdec" else RUN_BY.get((program, verb), "")
    return RUN_BY.get((program, verb)) or RUN_BY.get((program, ""), "")


def all_run_by(test: str) -> list[tuple[Path, list[str]]]:
    """(document, command) of everything that a test is to run."""
    return [
        (document, command)
        for document in GUIDES
        for command in typed(document)
        if place(command) == test and not reason_not_to_run(command)
    ]
