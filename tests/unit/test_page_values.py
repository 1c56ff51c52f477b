"""Statements of pages about ports, versions, defaults and strategies agree with the code."""

import dataclasses
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specdec import __version__
from specdec.api.matrix import support
from specdec.api.networking import OpenAI
from specdec.client import errors, verification
from specdec.controller.settings import Settings
from specdec.desired import front
from specdec.tools.cli import options
from specdec.tools.cli.app import app
from support.documents import definition, load
from support.golden_cases import generated

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/README.md")),
    *sorted((ROOT / "charts").glob("*/templates/NOTES.txt")),
    *sorted((ROOT / "manifests").rglob("*.yaml")),
]
TRITON = front.TRITON.ports
OPENAI = OpenAI().port
# Ports of other programs, and forwarded ports.
OTHER_PORTS = {9001: "a forwarded port", 3128: "a proxy", 443: "API servers", 53: "DNS"}
# Patterns of port numbers with their names, as pages write them, and the expected numbers.
NAMED_PORTS = [
    (r"(\d{4}) \(HTTP", {TRITON["http"]}),
    (r"HTTP \(port (\d{4})", {TRITON["http"]}),
    (r"`http` (\d{4})", {front.TRTLLM_SERVE.ports["http"]}),
    (r"(\d{4}) \(gRPC", {TRITON["grpc"]}),
    (r"(?:gRPC|TLS)[^.|\n]{0,30} port (\d{4})", {TRITON["grpc"]}),
    (r"grpcs?://[\w.]+:(\d{4})", {TRITON["grpc"]}),
    (r"(\d{4}) \(metrics", {TRITON["metrics"]}),
    (r"[Mm]etrics \((\d{4})\)", {TRITON["metrics"]}),
    (r"metrics (\d{4})", {TRITON["metrics"]}),
    (r"`metrics` (\d{4})", {front.TRTLLM_SERVE.ports["metrics"]}),
    (r"pod on Triton's port (\d{4})", {TRITON["metrics"]}),
    (r"--metrics(?:-url)? localhost:(\d+)", {TRITON["metrics"]}),
    (r"OpenAI API, on port (\d{4})", {OPENAI}),
    (r"(\d{4}), the OpenAI endpoint", {OPENAI}),
    (r"operator serves metrics on port (\d{4})", {Settings.model_fields["metrics_port"].default}),
]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@cache
def schema(path: str) -> dict[str, Any]:
    """Return the schema of a field of the spec, by its dotted path."""
    node = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for part in path.split("."):
        node = node["properties"][part]
    result: dict[str, Any] = node
    return result


def table(page: str, head: str) -> list[list[str]]:
    """Return the cells of the rows of the table with this head; `head` has its first columns."""
    lines = text(page).split(f"\n| {head} |", 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_ports_are_those_of_the_servers(page: Path) -> None:
    body = page.read_text("utf-8")
    known = {*TRITON.values(), OPENAI, Settings.model_fields["metrics_port"].default}
    patterns = (
        r"[A-Za-z][\w.-]*(?<!rsa):(\d{4,5})\b",
        r"\bports? (\d{2,5})\b",
        r"`:(\d+)`",
        r"port-forward [\w/-]+ (\d+)",
    )
    named = {int(port) for pattern in patterns for port in re.findall(pattern, body)}
    assert named <= known | OTHER_PORTS.keys()
    for pattern, expected in NAMED_PORTS:
        assert {int(port) for port in re.findall(pattern, body)} <= expected, pattern


def test_each_way_to_name_a_port_is_used() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    assert [pattern for pattern, _ in NAMED_PORTS if not re.search(pattern, pages)] == []


@pytest.mark.parametrize(("command", "protocol"), [("bench", "http"), ("generate", "grpc")])
def test_help_names_the_port_of_the_default_protocol(command: str, protocol: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    (default, other, alternative) = re.findall(
        r"default localhost:(\d+), (\d+) for\s+(\w+)", " ".join(shown.split())
    )[0]
    assert f"[default: {protocol}]" in shown
    both = {p: options.address({"url": None, "protocol": p}) for p in options.Protocol}
    assert f"localhost:{default}" == both[options.Protocol(protocol)]
    assert f"localhost:{other}" == both[options.Protocol(alternative)]
    assert alternative != protocol


def test_default_versions_are_those_of_the_matrix() -> None:
    tensorrt, pytorch = support("TensorRT"), support("PyTorch")
    changes = " ".join(text("CHANGELOG.md").split())
    assert f"{tensorrt.default_version} (default): `None`" in changes
    assert f"1.1 to 1.3 (default {pytorch.default_version})" in changes
    assert (pytorch.versions[0], pytorch.versions[-1]) == ("1.1.0", "1.3.0")
    assert f"builds them for {tensorrt.default_version}, whose image" in text("docs/upgrade.md")
    last = tensorrt.versions[-1]
    assert f"`runtime.version: {last}`, the last release" in text("docs/migration-pytorch.md")
    image = tensorrt.images[tensorrt.default_version].partition(":")[2].partition("-")[0]
    assert f"TensorRT uses {image}, and" in text("docs/security.md")


def test_versions_of_programs_are_those_of_their_files() -> None:
    rust = tomllib.loads(text("operator/bls/Cargo.toml"))["workspace"]["package"]["rust-version"]
    python = tomllib.loads(text("pyproject.toml"))["project"]["requires-python"].removeprefix(">=")
    kubernetes = {
        load(path.read_text())["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
        for path in (ROOT / "charts").glob("*/Chart.yaml")
    }
    expected = {"Rust": {rust}, "Python": {python}, "Kubernetes": kubernetes}
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    for program, versions in expected.items():
        assert set(re.findall(rf"\b{program} (\d+\.\d+)\b", pages)) == versions, program
    named = set(re.findall(r"(?:ghcr.io/specdec/\w+:|\?ref=v|==)(\d+\.\d+\.\d+)", pages))
    assert named == {__version__}


def test_defaults_of_the_openai_page_are_those_of_the_crd() -> None:
    rows = table("docs/openai.md", "Field of `serving.openAI` | Default | Meaning")
    numbers = {row[0].strip("`"): int(row[1]) for row in rows if row[1].isdigit()}
    assert len(numbers) > 3
    assert numbers == {name: schema(f"serving.openAI.{name}")["default"] for name in numbers}
    parsers = {
        row[0].strip("`"): re.findall(r"`(\w+)`(?= or |: )", row[2])
        for row in rows
        if "Parser" in row[0]
    }
    assert parsers == {name: schema(f"serving.openAI.{name}")["enum"] for name in parsers}
    assert len(parsers) == 2


def test_settings_of_the_verification_page_are_the_defaults() -> None:
    blocks = re.findall(r"```yaml\n(spec:.*?)```", text("docs/verification.md"), re.DOTALL)
    shown = [load(block)["spec"] for block in blocks[:2]]
    assert [list(spec) for spec in shown] == [["verification"], ["benchmark"]]
    # These fields have no default, or the page shows them to turn the benchmark on.
    free = {"promptsConfigMapRef", "run", "concurrency"}
    (verify, bench) = (spec for block in shown for spec in block.values())
    for part, values in (("verification", verify), ("benchmark", bench)):
        for name in values.keys() - free - ({"mode"} if part == "benchmark" else set()):
            assert values[name] == schema(f"{part}.{name}")["default"], name
    key = schema("verification.promptsConfigMapRef.key")["default"]
    assert verify["promptsConfigMapRef"]["key"] == key
    absent = " and ".join(map(str, bench["concurrency"]))
    assert f"{absent} when absent" in schema("benchmark.concurrency")["description"]


def test_severities_of_the_checks_are_the_defaults() -> None:
    rows = table("docs/compatibility.md", "Code | Check | Default | What is compared")
    shown = {row[1].strip("`"): row[2] for row in rows}
    # This check cannot be turned off.
    assert shown.pop("always") == "Enforce"
    assert len(shown) > 5
    assert shown == {name: schema(f"checks.{name}")["default"] for name in shown}


def test_defaults_in_sentences_are_those_of_the_crd() -> None:
    policy = schema("speculation.draftLengthPolicy.type")["default"]
    row = f"| not set | `{policy}`, the default without lookups | `speculation.draftTokens` |"
    assert row in text("docs/bls.md")
    prose = " ".join(text("docs/bls.md").split())
    least = schema("speculation.draftLengthPolicy.minLength")["default"]
    assert f"Their defaults are {least} and the largest length that a request may set" in prose
    ordinary = schema("verification.mode")["enum"]
    assert f"mode: Report                # {' | '.join(ordinary)}" in text("docs/verification.md")


def test_defaults_of_the_python_api_are_those_of_the_functions() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(verification.Options)}
    page = text("docs/python-api.md").split("`Options` has these fields:")[1]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    shown = {name: value for name, value in rows.items() if name in fields}
    assert len(shown) > 3
    assert shown == {name: str(fields[name]) for name in shown}
    concurrency = inspect.signature(verification.verify).parameters["concurrency"].default
    assert f"`concurrency` ({concurrency})" in page


def strategy(case: str) -> dict[str, int]:
    """Return the rolling-update settings of the workload in a golden case."""
    for body in generated(case).objects:
        spec = body.get("spec", {})
        if body["kind"] == "Deployment":
            return dict(spec["strategy"]["rollingUpdate"])
        if body["kind"] == "LeaderWorkerSet":
            return dict(spec["rolloutStrategy"]["rollingUpdateConfiguration"])
    raise AssertionError(f"{case} has no workload")


@pytest.mark.parametrize(
    ("row", "case"),
    [
        ("not set, backend `Reference`", "reference-draft-target"),
        ("not set, a GPU backend", "tensorrt-fp8-one-gpu"),
        ("not set, a GPU backend", "pytorch-ngram"),
        ("not set, a GPU backend", "tensorrt-405b-two-nodes"),
    ],
)
def test_rollouts_of_the_page_are_those_of_the_workloads(row: str, case: str) -> None:
    rows = table("docs/operations.md", "`serving.rollout` | Effect")
    effect = {cells[0]: cells[1] for cells in rows}[row]
    shown = {name: int(n) for name, n in re.findall(r"`(max\w+): (\d)`", effect)}
    actual = strategy(case)
    assert shown == {name: actual[name] for name in ("maxSurge", "maxUnavailable")}
    first = "new pod is ready before an old" if shown["maxSurge"] else "old pod stops and frees"
    assert first in effect


def test_times_of_the_probes_are_those_of_the_pods() -> None:
    objects = generated("tensorrt-fp8-one-gpu").objects
    (pod,) = (o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment")
    server = next(c for c in pod["containers"] if c["name"] == "server")
    effects = {
        row[0]: row[2]
        for row in table("docs/operations.md", "Probe | Succeeds when | After failures")
    }
    for name in ("readiness", "liveness"):
        probe = server[f"{name}Probe"]
        seconds = probe["periodSeconds"] * probe["failureThreshold"]
        assert f"after {seconds} seconds" in effects[name]


def test_alerts_of_the_page_wait_as_long_as_their_rules() -> None:
    rules = yaml.safe_load(text("manifests/monitoring/rules.yaml"))["spec"]["groups"]
    waits = {
        rule["alert"]: rule["for"] for group in rules for rule in group["rules"] if "alert" in rule
    }
    rows = {
        row[0].strip("`"): row[1]
        for row in table("docs/monitoring.md", "Alert | Fires when | What to do")
    }
    assert rows.keys() == waits.keys()
    units = {"minutes": "m", "hours": "h"}
    for alert, when in rows.items():
        wait = re.search(r"for (\d+) (minutes|hours)", when)
        assert wait, alert
        assert f"{wait[1]}{units[wait[2]]}" == waits[alert], alert


def test_the_picture_of_the_demo_shows_the_speed_that_the_page_describes() -> None:
    picture = text("docs/demo.svg").replace("&#160;", " ")
    (percent,) = {int(n) for n in re.findall(r"reach (\d+) % of the speed", picture)}
    page = " ".join(text("docs/concepts.md").split())
    assert ("So the demo shows no speed-up" in page) == (percent < 100)


def exit_statuses(command: str) -> str:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    return " ".join(shown.split()).partition("Exit status:")[2]


def test_exit_statuses_are_those_of_the_errors() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", text("docs/cli.md"), re.MULTILINE))
    meanings = {
        errors.RefusedError: "rejected the request",
        errors.BadRequestError: "nothing was sent",
        errors.UnreachableError: "connection failed",
    }
    for error, meaning in meanings.items():
        assert meaning in rows[str(error.exit_status)]
    assert "`plan`, `render`, `migrate`: the API server or the operator would" in rows["1"]
    for command in ("plan", "render", "migrate"):
        assert " 1 the API server or the operator would refuse" in exit_statuses(command)
    sentence = exit_statuses("certify").partition(".")[0]
    listed = [row[0] for row in table("docs/certify.md", "Exit status | Meaning")]
    assert listed == re.findall(r"(?:^|, )\s*(\d+) ", sentence)
