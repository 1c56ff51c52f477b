"""Runs the guides' commands that read or change a resource `code-assistant`, as printed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.processes import TIMEOUT
from demo.errors import DemoError
from demo.progress import why_not
from e2e.printed import as_printed, first_line
from e2e.world import World
from support.quickstarts import ON_THE_NODE, ROOT, all_run_by

NAME, NAMESPACE = "code-assistant", "models"
PLACE = ("-n", NAMESPACE)
SAMPLES = ROOT / "manifests" / "samples"
COMMANDS = [command for _, command in all_run_by(ON_THE_NODE)]
# Without these options, a measurement takes minutes.
SHORTER = {
    "bench": ["--requests", "2", "--output-tokens", "8"],
    "generate": ["--max-tokens", "8"],
    "verify": ["--limit", "4", "--max-tokens", "8"],
}


@pytest.fixture(scope="module")
def resource(world: World) -> Iterator[str]:
    """Apply the resource of the guides with the OpenAI API, and yield its name."""
    body = yaml.safe_load((SAMPLES / "reference-openai.yaml").read_text("utf-8"))
    body["metadata"]["name"] = NAME
    # `specdec rerun --benchmark` repeats a benchmark.
    body["spec"]["benchmark"] = {"mode": "OnReady", "concurrency": [1], "requests": 10}
    world.kubectl("create", "namespace", NAMESPACE)
    world.kubectl("apply", *PLACE, "-f", str(SAMPLES / "reference-pair.yaml"))
    # An earlier fetch would fail, because the checkpoint directory is missing.
    wait(world, "job/reference-pair", "Complete")
    world.kubectl("apply", *PLACE, "-f", "-", given=json.dumps(body))
    reaches(world, "Ready")
    yield NAME
    world.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def login(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig with the guides' context as current, in the resource's namespace."""
    config = yaml.safe_load(world.kubeconfig.read_text("utf-8"))
    (context,) = config["contexts"]
    context["name"] = config["current-context"] = "staging"
    context["context"]["namespace"] = NAMESPACE
    file = tmp_path_factory.mktemp("login") / "kubeconfig"
    file.write_text(yaml.safe_dump(config), "utf-8")
    return file


def wait(world: World, subject: str, condition: str) -> None:
    """Wait with kubectl, as a reader does."""
    limits = (f"--for=condition={condition}", TIMEOUT)
    world.kubectl("wait", subject, *PLACE, *limits)


def reaches(world: World, condition: str) -> None:
    """Wait until a condition of the resource's newest generation is true."""
    try:
        wait(world, f"specm/{NAME}", condition)
    except DemoError as error:
        pods = world.kubectl("get", "pods,jobs", *PLACE)
        why = why_not(world.kubectl.get("specm", NAME, *PLACE) or {})
        raise AssertionError(f"{condition} is not true: {why}\n{pods}") from error


def endless(command: list[str]) -> bool:
    """Return whether only Ctrl-C ends the command."""
    return "-f" in command or (command[1] == "top" and "--once" not in command)


def test_every_command_is_here() -> None:
    verbs = {command[1] for command in COMMANDS}
    changes = {"suspend", "resume", "rerun", "prune"}
    assert verbs == {"status", "top", "logs", "check", "report", *changes, *SHORTER}


@pytest.mark.usefixtures("resource")
def test_commands_run_as_printed(world: World, login: Path, tmp_path: Path) -> None:
    # The commands write their files into this folder.
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    for command in COMMANDS:
        if "specm/" in " ".join(command) and f"specm/{NAME}" not in " ".join(command):
            continue  # tests/e2e/test_answers.py runs the quick start
        if endless(command):
            line = first_line(world, command, login=login, folder=tmp_path)
            assert line.strip(), command
            continue
        if command[1] == "prune":
            # `prune` refuses while a Job uses the claim. "kubectl wait job --all" would not end if
            # the operator replaced the Job of the first benchmark.
            reaches(world, "BenchmarkCompleted")
        command = [*command, *SHORTER.get(command[1], [])]
        done = as_printed(world, command, login=login, folder=tmp_path)
        assert (done.stdout + done.stderr).strip(), command
        if command[1] == "resume":
            reaches(world, "Ready")
    assert (tmp_path / "report.tar.gz").is_file()
