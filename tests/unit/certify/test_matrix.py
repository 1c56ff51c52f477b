"""Which entries are tried by the facts of a cluster; the operator accepts each of them."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.api.matrix import Backend
from specdec.backends.facts import Images
from specdec.certify import resources
from specdec.certify.facts import Facts, Gpus, facts, select
from specdec.certify.matrix import NAMES, matrix, require_any, selected
from specdec.certify.request import HEADS_TARGET, Request, heads, source
from specdec.client.errors import BadRequestError
from specdec.dry_run import plan

TENSORRT, REFERENCE = Backend("TensorRT"), Backend("Reference")
H100 = "NVIDIA-H100-80GB-HBM3"
IMAGES = Images(operator="operator:1", reference="reference:1")
ALL_HEADS = {
    "Eagle": "yuhuili/EAGLE-Vicuna-7B-v1.3",
    "Medusa": "FasterDecoding/medusa-vicuna-7b-v1.3",
    "ReDrafter": "pvc:redrafter/vicuna-7b",
}
ONE_GPU = ["baseline", "draft-target-shared", "logits", "lookahead"]
TWO_GPUS = ["draft-target-dedicated", "two-servers", "fast-logits"]
HEADS_ENTRIES = ["heads-baseline", "eagle", "medusa", "redrafter"]


def gpu(**changes: Any) -> Request:
    return Request(**{"backend": TENSORRT, "gpu_product": H100, **changes})


def cpu(**changes: Any) -> Request:
    return Request(**{"backend": REFERENCE, **changes})


def tried(request: Request, gpus: Gpus | None, only: str | None = None) -> list[str]:
    return [e.name for e in matrix(request, gpus, selected(only)) if not e.not_tried]


def why(request: Request, gpus: Gpus | None, name: str, only: str | None = None) -> str:
    return next(e.not_tried for e in matrix(request, gpus, selected(only)) if e.name == name)


@pytest.mark.parametrize(
    ("request_", "gpus", "names"),
    [
        (gpu(), Gpus(H100, 1, 1), ONE_GPU),
        (gpu(), Gpus(H100, 2, 2), ONE_GPU + TWO_GPUS),
        # Two nodes with a GPU each, and a volume of one node.
        (gpu(), Gpus(H100, 1, 2), ONE_GPU),
        (gpu(access_mode="ReadWriteMany"), Gpus(H100, 1, 2), [*ONE_GPU, "two-servers"]),
        (gpu(heads=ALL_HEADS), Gpus(H100, 1, 1), ONE_GPU + HEADS_ENTRIES),
        (
            gpu(heads={"Medusa": "FasterDecoding/medusa-vicuna-7b-v1.3"}),
            Gpus(H100, 1, 1),
            [*ONE_GPU, "heads-baseline", "medusa"],
        ),
        (gpu(version="0.18.0"), Gpus(H100, 1, 1), ONE_GPU[:-1]),
        (cpu(), None, ONE_GPU),
    ],
    ids=str,
)
def test_entries_follow_from_the_gpus_and_the_backend(
    request_: Request, gpus: Gpus | None, names: list[str]
) -> None:
    assert sorted(tried(request_, gpus)) == sorted(names)


@pytest.mark.parametrize(
    ("request_", "gpus", "name", "reason"),
    [
        (
            gpu(),
            Gpus(H100, 1, 1),
            "fast-logits",
            "it needs 2 GPUs on one node, and the cluster has 1",
        ),
        (gpu(), Gpus(H100, 1, 1), "eagle", "it needs a checkpoint: add --heads Eagle=SOURCE"),
        (
            gpu(version="0.18.0"),
            Gpus(H100, 1, 1),
            "lookahead",
            "backend TensorRT 0.18.0 does not serve method Lookahead",
        ),
        (
            cpu(),
            None,
            "two-servers",
            "it separates the two models, and backend Reference runs both in one process",
        ),
        (cpu(), None, "medusa", "backend Reference 0.19.0 does not serve method Medusa"),
        (
            cpu(),
            None,
            "heads-baseline",
            "it is the baseline of heads, and --heads names none",
        ),
        (
            cpu(heads={"Eagle": "pvc:heads/eagle"}),
            None,
            "heads-baseline",
            "backend Reference serves no heads",
        ),
    ],
)
def test_entry_that_is_not_tried_has_a_reason(
    request_: Request, gpus: Gpus | None, name: str, reason: str
) -> None:
    assert why(request_, gpus, name) == reason


def test_only_selects_among_those_that_apply() -> None:
    one = Gpus(H100, 1, 1)
    assert tried(gpu(), one, "lookahead, baseline") == ["baseline", "lookahead"]
    assert why(gpu(), one, "logits", "baseline") == "--only leaves it out"
    with pytest.raises(BadRequestError, match=r"^nothing is tried: fast-logits: it needs 2"):
        require_any(matrix(gpu(), one, ("fast-logits",)))
    with pytest.raises(BadRequestError, match=r"--only is 'base'; write names .* baseline, "):
        selected("base")


@pytest.mark.parametrize("version", ["0.18.0", "0.19.0", "1.2.1"])
@pytest.mark.parametrize("backend", [TENSORRT, REFERENCE])
def test_operator_accepts_every_entry(backend: Backend, version: str) -> None:
    gpus = Gpus(H100, 2, 2, 81559, "9.0") if backend is TENSORRT else None
    product = H100 if gpus else None
    given = ALL_HEADS if gpus else {}
    request = Request(backend=backend, version=version, gpu_product=product, heads=given)
    entries = [entry for entry in matrix(request, gpus) if not entry.not_tried]
    assert len(entries) >= 3
    for entry in entries:
        body = resources.resource(entry.name, "lab", entry.spec, "run1")
        body["metadata"] |= {"uid": "u", "generation": 1}
        planned = plan.make(body, IMAGES)
        assert planned.refusal == "", entry.name
        accepted = {c["type"]: c["status"] for c in planned.status["conditions"]}
        assert accepted["Accepted"] == "True", entry.name


def test_heads_have_their_own_target_and_baseline() -> None:
    entries = {e.name: e for e in matrix(gpu(heads=ALL_HEADS), Gpus(H100, 1, 1))}
    for name in ("heads-baseline", "eagle", "medusa", "redrafter"):
        target = entries[name].spec["target"]["source"]
        assert target == {"huggingFace": {"repo": HEADS_TARGET}}
    assert entries["eagle"].baseline == "heads-baseline"
    assert (entries["lookahead"].baseline, entries["baseline"].baseline) == ("baseline", "")
    redrafter = entries["redrafter"].spec["speculation"]["reDrafter"]["checkpoint"]
    assert redrafter == {"pvc": {"claimName": "redrafter", "path": "vicuna-7b"}}


def test_every_entry_uses_one_claim_and_the_number_of_prompts() -> None:
    for entry in matrix(gpu(prompts=5, claim="mine"), Gpus(H100, 2, 2)):
        if not entry.not_tried:
            assert entry.spec["storage"] == {"existingClaim": "mine"}
            assert entry.spec["verification"]["maxPrompts"] == 5
            assert entry.spec.get("benchmark", {}).get("requests", 5) == 5


def test_pods_with_gpus_tolerate_the_usual_taint_and_dtypes_fit_the_checkpoints() -> None:
    taint = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    given = gpu(heads=ALL_HEADS, draft="pvc:mine/draft")
    entries = {e.name: e.spec for e in matrix(given, Gpus(H100, 1, 1))}
    shared = entries["draft-target-shared"]
    assert shared["serving"]["tolerations"] == shared["build"]["tolerations"] == taint
    assert shared["target"]["dtype"] == "BFloat16"
    assert "dtype" not in shared["speculation"]["draftTarget"]["draft"]
    assert entries["eagle"]["target"]["dtype"] == "Float16"
    (baseline, *_) = matrix(cpu(), None)
    assert "tolerations" not in baseline.spec["serving"]
    assert "build" not in baseline.spec


def test_token_of_the_hub_is_a_reference_to_a_secret() -> None:
    assert source("--target", "meta-llama/Llama-3.2-1B@abc", "hub") == {
        "huggingFace": {
            "repo": "meta-llama/Llama-3.2-1B",
            "revision": "abc",
            "tokenSecretRef": {"name": "hub"},
        }
    }


def node(product: str | None, count: int, **labels: str) -> dict[str, Any]:
    own = {"nvidia.com/gpu.product": product} if product else {}
    return {
        "metadata": {"name": "secret-host-7", "labels": {**own, **labels}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(count)} if count else {},
            "nodeInfo": {"kubeletVersion": "v1.34.1"},
        },
    }


def test_facts_count_the_gpus_of_nodes_that_take_pods() -> None:
    cordoned = node(H100, 8)
    cordoned["spec"]["unschedulable"] = True
    labels = {
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/cuda.driver.major": "590",
        "nvidia.com/cuda.driver.minor": "44",
    }
    known = facts([node(None, 0), node(H100, 1, **labels), node(H100, 2, **labels), cordoned])
    assert known == Facts(3, ("v1.34.1",), (Gpus(H100, 2, 3, 81559, "9.0", "590.44"),))
    assert "secret-host" not in str(known.as_json())


@pytest.mark.parametrize(
    ("request_", "known", "sentence"),
    [
        (
            gpu(gpu_product=None),
            Facts(1, (), ()),
            "no node of the cluster has nvidia.com/gpu; install NVIDIA's device plugin, or add "
            "--backend Reference to certify without GPUs",
        ),
        (
            gpu(gpu_product=None),
            Facts(1, (), (Gpus("", 1, 1),)),
            "the nodes with nvidia.com/gpu have no label nvidia.com/gpu.product; install GPU "
            "feature discovery, or set the label",
        ),
        (
            gpu(gpu_product=None),
            Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 1, 1))),
            "the cluster has the GPUs A, B; select one with --gpu-product",
        ),
        (
            gpu(gpu_product="C"),
            Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 1, 1))),
            "--gpu-product is C, which no node has; the cluster has A, B",
        ),
        (
            gpu(),
            None,
            "you may not list nodes, so the GPUs are unknown; give --gpu-product, the node label "
            "nvidia.com/gpu.product, and --gpus, the number of GPUs of a node",
        ),
    ],
)
def test_unclear_gpus_are_a_sentence(
    request_: Request, known: Facts | None, sentence: str
) -> None:
    with pytest.raises(BadRequestError) as error:
        select(request_, known)
    assert str(error.value) == sentence


def test_gpus_are_selected_or_given() -> None:
    both = Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 4, 4)))
    assert select(gpu(gpu_product="B"), both) == Gpus("B", 4, 4)
    assert select(gpu(gpu_product="B", gpus=2), None) == Gpus("B", 2, 2)
    assert select(cpu(), both) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"backend": Backend("PyTorch")},
            "--backend is PyTorch, which this release does not serve; use TensorRT or Reference",
        ),
        ({"version": "9"}, "--version is 9; backend TensorRT serves 0.18.0, 0.19.0, 1.2.1"),
        ({"prompts": 3}, "--prompts is 3; set it to 4 to 100"),
        ({"output_tokens": 4096}, "--output-tokens is 4096; set it to 8 to 128"),
        ({"gpus": 0}, "--gpus is 0; set it to 1 to 64"),
        ({"storage_size": "big"}, "--storage-size is 'big'; write a quantity such as 60Gi"),
        (
            {"claim": "mine", "storage_size": "1Gi"},
            "--claim names an existing claim; leave out --storage-size and --storage-class",
        ),
        (
            {"target": "s3://bucket/x"},
            "--target is 's3://bucket/x'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
        (
            {"draft": "pvc:claim/../etc"},
            "--draft is 'pvc:claim/../etc'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
        (
            {"heads": {"Eagle": "https://x"}},
            "--heads Eagle is 'https://x'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
    ],
)
def test_bad_options_are_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequestError) as error:
        gpu(**changes)
    assert str(error.value) == sentence


def test_heads_are_given_by_method() -> None:
    assert heads(["eagle=a/b", "ReDrafter=pvc:c/d"]) == {"Eagle": "a/b", "ReDrafter": "pvc:c/d"}
    for value in ("Lookahead=a/b", "Eagle", "Eagle="):
        with pytest.raises(BadRequestError, match=r"^--heads is .*; write METHOD=SOURCE with"):
            heads([value])
    with pytest.raises(BadRequestError, match="--heads names Eagle twice"):
        heads(["eagle=a/b", "Eagle=c/d"])


def test_a_request_has_no_names_beyond_the_matrix() -> None:
    assert len(set(NAMES)) == len(NAMES) == 11
    assert all(len(resources.resource_name(name)) <= 40 for name in NAMES)
