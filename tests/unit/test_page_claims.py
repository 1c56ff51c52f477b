"""Statements of pages about ports, strategies, versions and tools agree with the code."""

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from cluster import binaries, prerequisites
from specdec import __version__
from specdec.api.matrix import support
from specdec.api.model import Runtime, SpeculativeModel, Verification
from specdec.api.networking import OpenAI
from specdec.desired.serving import strategy
from specdec.jobs import verify
from specdec.tools.cli import forward
from specdec.tools.dry_run.resource import complete, load
from specdec.triton.launch import PORTS
from support.golden_cases import SAMPLES

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/README.md")),
]
OPENAI_PORT = OpenAI().port
BACKENDS: tuple[str, ...] = get_args(Runtime.model_fields["backend"].annotation)


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def row(page: str, start: str) -> str:
    """Return the only line of a page that starts with this text."""
    (line,) = [line for line in text(page).splitlines() if line.startswith(start)]
    return line


def rollout(sample: str, **changed: Any) -> dict[str, Any]:
    """Return the strategy of a sample's Deployment."""
    body = load(str(SAMPLES[sample]))
    body["spec"].setdefault("serving", {})["rollout"] = changed
    return strategy(SpeculativeModel.parse(complete(body, sample)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_backends_have_the_names_of_the_api(page: Path) -> None:
    content = page.read_text("utf-8")
    assert "TensorRTLLM" not in content
    for name in re.findall(r"backend[:]? `?(\w+)`?", content):
        near = [known for known in BACKENDS if known.lower() == name.lower()]
        assert not near or name in BACKENDS, name


@pytest.mark.parametrize(
    ("start", "sample"),
    [
        ("| not set, backend `Reference` |", "reference-draft-target"),
        ("| not set, a GPU backend |", "tensorrt-draft-target-shared"),
        ("| not set, a GPU backend |", "pytorch-ngram"),
    ],
)
def test_page_of_operations_has_the_default_strategy(start: str, sample: str) -> None:
    bounds = rollout(sample)["rollingUpdate"]
    claimed = re.findall(r"`(max\w+): (\d)`", row("docs/operations.md", start))
    assert {name: int(number) for name, number in claimed} == bounds


def test_pages_promise_an_old_pod_only_where_there_is_a_surge() -> None:
    """On GPUs the old pod stops first: a single replica does not serve until the new pod does."""
    assert rollout("tensorrt-draft-target-shared")["rollingUpdate"]["maxSurge"] == 0
    for page in ("docs/upgrade.md", "docs/operations.md"):
        assert "a single replica does not serve" in " ".join(text(page).split()), page
    started = row("docs/reliability.md", "| a new revision cannot start |")
    assert "if the [strategy](operations.md#rollouts) has a surge" in started


def test_ports_of_a_service_are_those_of_the_server() -> None:
    forwarded = {"http": forward._HTTP, "grpc": forward._GRPC, "metrics": forward._METRICS}
    assert forwarded == PORTS
    assert forward._OPENAI == OPENAI_PORT
    assert re.findall(r"\b\d{4}\b", row("docs/cli.md", "| `specm/NAME` |")) == [
        str(PORTS[name]) for name in ("grpc", "http", "metrics")
    ]
    assert str(OPENAI_PORT) in row("docs/cli.md", "| `specm/NAME/v1` |")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_use_ports_that_something_listens_on(page: Path) -> None:
    # 9001 and 9002 are forwarded ports of a draft's server; the operator and Prometheus use 9090.
    known = {*PORTS.values(), OPENAI_PORT, 9001, 9002, 9090}
    content = page.read_text("utf-8")
    used = {int(port) for port in re.findall(r"(?:localhost|svc|127\.0\.0\.1):(\d+)", content)}
    assert used - known <= {3000, 4000, 5000, 8080}, used


def test_versions_are_those_of_the_code() -> None:
    default = support("TensorRT").default_version
    assert f"{default} (default)" in " ".join(text("CHANGELOG.md").split())
    rust = tomllib.loads(text("operator/bls/Cargo.toml"))["workspace"]["package"]["rust-version"]
    python = tomllib.loads(text("pyproject.toml"))["project"]["requires-python"].strip(">=")
    for name in ("README.md", "docs/start-cpu.md"):
        content = " ".join(text(name).split())
        assert f"Python {python}, Rust {rust} or newer" in content, name
    assert f"Python {python}, Rust {rust}" in row("CONTRIBUTING.md", "| `make setup` |")
    for page in PAGES:
        for version in re.findall(r"ghcr\.io/specdec/\w+:([\w.]+)", page.read_text("utf-8")):
            assert version == __version__, page.name


def test_cost_of_a_verification_follows_from_its_defaults() -> None:
    settings = Verification()
    compared, timed = 2 * settings.max_prompts, 2 * verify._TIMED_PROMPTS
    claim = (
        f"{compared + timed} requests of at most {settings.max_tokens} new tokens after each "
        f"change of the serving revision: {compared} for the comparison, {timed} for the speed"
    )
    assert claim in " ".join(text("docs/verification.md").split())


def test_tools_of_a_machine_are_listed() -> None:
    packages = {*prerequisites._NODE.values(), *prerequisites._IMAGES.values()}
    node = row(
        "CONTRIBUTING.md", "| tests on a real local Kubernetes node (`tests/e2e`), `make demo` |"
    )
    listed = node.split("Debian packages: ")[1].split(";")[0]
    assert set(re.findall(r"`([\w-]+)`", listed)) == packages
    oldest = ".".join(map(str, binaries._OLDEST_GO))
    downloads = row("CONTRIBUTING.md", "| `make test`, `make demo` |")
    assert f"older than {oldest}" in downloads
    assert f"`{binaries._WHEEL.partition('>')[0]}`" in downloads
