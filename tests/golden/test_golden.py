"""What the operator generates is what was reviewed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from golden.cases import CASES, HERE, SAMPLES, generate
from unit.triton.published import differences, parse


def expected(case: str) -> Path:
    return HERE / case / "expected"


def status(case: str) -> Any:
    return yaml.safe_load((expected(case) / "status.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_generates_what_is_expected(case: str) -> None:
    files = generate(case)
    folder = HERE / case
    expected = {
        str(path.relative_to(folder)): path.read_text()
        for path in (folder / "expected").rglob("*")
        if path.is_file()
    }
    hint = "python tests/golden/update.py writes them anew"
    assert sorted(files) == sorted(expected), hint
    for name, text in files.items():
        assert text == expected[name], f"{case}/{name}: {hint}"


def test_every_case_that_lies_here_is_tried() -> None:
    assert {path.parent.name for path in HERE.glob("*/expected")} == set(CASES)


def test_samples_show_every_method_and_topology() -> None:
    shown = set()
    for path in SAMPLES.values():
        spec = yaml.safe_load(path.read_text("utf-8"))["spec"]
        method = spec["speculation"]["method"]
        block = spec["speculation"].get("draftTarget", {})
        how = block.get("topology", "SingleServer"), block.get("placement", "Shared")
        shown.add((spec["runtime"]["backend"], method, *(how if block else ())))
        shown |= {(method, "fastLogits")} if block.get("fastLogits") else set()
        shown |= {("groups",)} if spec.get("serving", {}).get("nodesPerReplica", 1) > 1 else set()
        shown |= {(method, "FP8")} if "quantization" in spec["target"] else set()
    engines = ("None", "Eagle", "Medusa", "ReDrafter", "Lookahead")
    assert shown >= {("TensorRT", method) for method in engines}
    assert shown >= {
        ("TensorRT", "DraftTarget", "SingleServer", "Shared"),
        ("TensorRT", "DraftTarget", "SingleServer", "Dedicated"),
        ("TensorRT", "DraftTarget", "TwoServers", "Dedicated"),
        ("DraftTarget", "fastLogits"),
        ("DraftTarget", "FP8"),
        ("groups",),
    }


@pytest.mark.parametrize("case", CASES)
def test_every_configuration_is_the_published_one(case: str) -> None:
    """The files a reviewer reads, against tables that do not come from our own output."""
    version = status(case)["plan"]["version"]
    found = sorted((expected(case) / "repository").rglob("config.pbtxt"))
    assert len(found) >= 5
    for path in found:
        assert differences(parse(path.read_text("utf-8")), version) == [], path


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(case: str) -> None:
    """The rules of the restricted profile, read from the files a reviewer reads."""
    pods = 0
    for path in (HERE / case / "expected").glob("*.yaml"):
        for template in templates(yaml.safe_load(path.read_text("utf-8")).get("spec", {})):
            pods += 1
            require_restricted(template["spec"])
    assert pods >= 4


def templates(spec: Any) -> list[Any]:
    """Pod templates of a Job, a Deployment or a group."""
    group = spec.get("leaderWorkerTemplate", {})
    found = (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate"))
    return [one for one in found if one is not None]


def require_restricted(pod: Any) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
