"""The commands that README and guides give the reader, and the test that runs each of them."""

import re
import shlex
from pathlib import Path

from specdec import __version__

ROOT = Path(__file__).parents[2]
GUIDES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "start-cpu",
            "start-gpu",
            "concepts",
            "methods",
            "gitops",
            "upgrade",
            "monitoring",
        )
    ),
]
# (program, verb) -> the file whose tests run it. `specdec plan` and `render` run in
# tests/unit/test_quickstarts.py as they stand, and so does, but for the last step, what changes a
# cluster in tests/controlplane/test_quickstarts.py.
OFFLINE = "tests/unit/test_quickstarts.py"
ON_A_SERVER = "tests/controlplane/test_quickstarts.py"
RUN_BY = {
    ("make", "demo"): "tests/demo/test_demo.py",
    ("make", "demo-down"): "tests/demo/test_demo.py",
    ("make", "test"): ".ci/run",
    ("helm", "install"): "tests/e2e/conftest.py",
    ("pip", "install"): "tests/unit/test_wheel.py",
    # Of the operator; the guide to GitOps has one of a model: tests/chart/test_model_chart.py.
    ("helm", "upgrade"): "tests/chart/test_install.py",
    ("helm", "rollback"): "tests/chart/test_install.py",
    ("kubectl", "apply"): ON_A_SERVER,
    ("kubectl", "create"): ON_A_SERVER,
    ("kubectl", "delete"): ON_A_SERVER,
    ("kubectl", "describe"): ON_A_SERVER,
    ("kubectl", "get"): ON_A_SERVER,
    ("kubectl", "logs"): ON_A_SERVER,
    # These wait for pods that really run.
    ("kubectl", "port-forward"): "tests/demo/kubectl.py",
    ("kubectl", "rollout"): "tests/demo/story.py",
    ("kubectl", "wait"): "tests/e2e/test_answers.py",
    ("specdec", "plan"): OFFLINE,
    ("specdec", "render"): OFFLINE,
    ("specdec", "generate"): "tests/triton/test_client_generate.py",
    ("specdec", "speculate"): "tests/triton/test_client_speculate.py",
}


def in_checkout(word: str) -> Path:
    """A file or folder of this tree, which a guide may name by its address at the release."""
    tag = re.escape(f"?ref=v{__version__}")
    released = re.fullmatch(rf"https://github\.com/specdec/specdec/(\S+){tag}", word)
    return ROOT / (released.group(1) if released else word)


def typed(document: Path) -> list[list[str]]:
    """The commands of a document's shell blocks."""
    text = document.read_text("utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


def all_run_by(test: str) -> list[tuple[Path, list[str]]]:
    """(document, command) of everything that a test is to run."""
    return [
        (document, command)
        for document in GUIDES
        for command in typed(document)
        if RUN_BY.get((command[0], command[1])) == test
    ]
