"""The operator generates exactly the reviewed documents."""

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from golden import stored
from golden.delta import delta
from support.golden_cases import CASES, HERE, OWN, SAMPLES, generated
from support.llm_api import llm_api_differences, options_schema
from support.published_layouts import differences, parse
from support.vllm_published import vllm_differences

HINT = "if this is intended, run `make golden`, review the diff and commit it"


@pytest.mark.parametrize("case", CASES)
def test_generates_what_is_expected(case: str) -> None:
    """Every generated document equals the document from the files of the case and its bases."""
    now, expected = stored.current(case), stored.expanded(case)
    assert sorted(now) == sorted(expected), HINT
    for name, tree in now.items():
        assert delta(expected[name], tree) == {}, f"{case} {name}: {HINT}"
        assert tree == expected[name], f"{case} {name}: {HINT}"


@pytest.mark.parametrize("case", CASES)
def test_files_are_those_that_update_writes(case: str) -> None:
    """The files keep no entry that the base makes redundant."""
    assert stored.stored(case) == stored.files(case), f"{case}: {HINT}"


def test_digests_are_the_reviewed_ones() -> None:
    """A changed engine key makes every cluster build that engine again."""
    assert stored.digest_list() == stored.DIGESTS.read_text("utf-8"), HINT


def test_every_case_is_listed_once() -> None:
    assert sorted(case for case, entry in stored.listed().items() if not entry.of) == OWN
    assert {path.parent.name for path in HERE.glob("*/expected")} == set(CASES)


def test_each_release_and_method_is_stored_in_full_once() -> None:
    """A reviewer can read the repository of each release and method without its base."""
    whole = {
        release(case)
        for case, entry in stored.listed().items()
        if entry.base is None or entry.repository == "full"
    }
    assert whole == {release(case) for case in CASES}


def release(case: str) -> tuple[str, str]:
    plan = generated(case).status["plan"]
    return plan["version"], plan["method"]


def test_samples_show_every_method_and_topology() -> None:
    shown = set()
    for path in SAMPLES.values():
        spec = yaml.safe_load(path.read_text("utf-8"))["spec"]
        method = spec["speculation"]["method"]
        block = spec["speculation"].get("draftTarget", {})
        topology = block.get("topology", "SingleServer")
        default = "Dedicated" if topology == "TwoServers" else "Shared"
        how = topology, block.get("placement", default)
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
    """Repository files match published tables, which do not come from the operator's output."""
    plan = generated(case).status["plan"]
    version = plan["version"]
    if plan["backend"] == "VLLM":
        assert vllm_differences(generated(case).repository) == []
        return
    if options := generated(case).repository.get("options.yaml"):
        # With trtllm-serve, the repository has no Triton models.
        Draft202012Validator(options_schema(version)).validate(yaml.safe_load(options))
        return
    texts = {
        path: text
        for path, text in generated(case).repository.items()
        if path.endswith("config.pbtxt")
    }
    if len(texts) == 1:
        # The LLM API has one model; tests/triton/test_llm_api.py checks with the same tables.
        (text,) = texts.values()
        assert llm_api_differences(parse(text)) == []
        return
    assert len(texts) >= 5
    for path, text in texts.items():
        assert differences(parse(text), version) == [], path


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(case: str) -> None:
    """Every pod of the operator meets the restricted profile of Pod Security."""
    pods = [spec for _, spec in generated(case).pods()]
    for pod in pods:
        require_restricted(pod)
    assert len(pods) >= 4


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
