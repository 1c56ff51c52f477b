"""The facts of a cluster decide which entries are tried; the operator accepts all of them."""

import pytest

from specdec.api.matrix import Backend
from specdec.backends.facts import Images
from specdec.client.errors import BadRequestError
from specdec.tools.certify import resources
from specdec.tools.certify.facts import Gpus
from specdec.tools.certify.matrix import NAMES, matrix, require_any, selected
from specdec.tools.certify.request import HEADS_TARGET, CertifyRequest
from specdec.tools.dry_run import plan
from unit.certify.bodies import H100, PYTORCH, REFERENCE, TENSORRT, VLLM, cpu, gpu

IMAGES = Images(operator="operator:1", reference="reference:1")
ALL_HEADS = {
    "Eagle": "yuhuili/EAGLE-Vicuna-7B-v1.3",
    "Medusa": "FasterDecoding/medusa-vicuna-7b-v1.3",
    "ReDrafter": "pvc:redrafter/vicuna-7b",
}
ONE_GPU = ["baseline", "draft-target-shared", "logits", "lookahead", "ngram"]
TWO_GPUS = ["draft-target-dedicated", "two-servers", "fast-logits"]
VLLM_HEADS = {
    "Eagle": "pvc:heads/eagle",
    "Medusa": "pvc:heads/medusa",
    "Eagle3": "pvc:heads/eagle3",
    "DFlash": "pvc:heads/dflash",
    "PARD": "pvc:heads/pard",
}
VLLM_ENTRIES = [method.lower() for method in VLLM_HEADS]
HEADS_ENTRIES = ["heads-baseline", "eagle", "medusa", "redrafter"]


def tried(request: CertifyRequest, gpus: Gpus | None, only: str | None = None) -> list[str]:
    return [e.name for e in matrix(request, gpus, selected(only)) if not e.not_tried]


def why(request: CertifyRequest, gpus: Gpus | None, name: str, only: str | None = None) -> str:
    return next(e.not_tried for e in matrix(request, gpus, selected(only)) if e.name == name)


@pytest.mark.parametrize(
    ("request_", "gpus", "names"),
    [
        pytest.param(gpu(), Gpus(H100, 1, 1), ONE_GPU, id="one-gpu"),
        pytest.param(gpu(), Gpus(H100, 2, 2), ONE_GPU + TWO_GPUS, id="two-gpus-of-a-node"),
        pytest.param(gpu(), Gpus(H100, 1, 2), ONE_GPU, id="two-nodes-and-a-volume-of-one"),
        pytest.param(
            gpu(access_mode="ReadWriteMany"),
            Gpus(H100, 1, 2),
            [*ONE_GPU, "two-servers"],
            id="two-nodes-and-a-shared-volume",
        ),
        pytest.param(
            gpu(heads=ALL_HEADS), Gpus(H100, 1, 1), ONE_GPU + HEADS_ENTRIES, id="all-heads"
        ),
        pytest.param(
            gpu(heads={"Medusa": "FasterDecoding/medusa-vicuna-7b-v1.3"}),
            Gpus(H100, 1, 1),
            [*ONE_GPU, "heads-baseline", "medusa"],
            id="one-head",
        ),
        pytest.param(
            gpu(version="0.18.0"),
            Gpus(H100, 1, 1),
            [name for name in ONE_GPU if name != "lookahead"],
            id="release-without-lookahead",
        ),
        pytest.param(cpu(), None, ONE_GPU, id="reference"),
        pytest.param(
            gpu(backend=PYTORCH, heads={"Eagle3": "pvc:heads/eagle3"}),
            Gpus(H100, 2, 2),
            ["baseline", "draft-target-shared", "ngram", "heads-baseline", "eagle3"],
            id="pytorch",
        ),
        pytest.param(
            gpu(backend=PYTORCH, version="1.3.0", image="release:1.3"),
            Gpus(H100, 1, 1),
            ["baseline", "draft-target-shared", "ngram", "suffix-automaton"],
            id="pytorch-1.3",
        ),
        pytest.param(
            gpu(backend=VLLM, heads=VLLM_HEADS),
            Gpus(H100, 2, 2),
            ["baseline", "draft-target-shared", "ngram", "heads-baseline", *VLLM_ENTRIES],
            id="vllm",
        ),
        pytest.param(
            gpu(backend=VLLM, image="vllm:suffix"),
            Gpus(H100, 1, 1),
            ["baseline", "draft-target-shared", "ngram", "suffix-automaton"],
            id="vllm-with-an-image",
        ),
    ],
)
def test_entries_follow_from_the_gpus_and_the_backend(
    request_: CertifyRequest, gpus: Gpus | None, names: list[str]
) -> None:
    assert sorted(tried(request_, gpus)) == sorted(names)


@pytest.mark.parametrize(
    ("request_", "gpus", "name", "reason"),
    [
        (
            gpu(),
            Gpus(H100, 1, 1),
            "fast-logits",
            "it needs 2 GPUs on one node, and no node has more than 1",
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
        (
            gpu(backend=PYTORCH),
            Gpus(H100, 2, 2),
            "fast-logits",
            "backend PyTorch drafts inside the model server, on the GPUs of the target",
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
        (
            gpu(backend=VLLM),
            Gpus(H100, 1, 1),
            "suffix-automaton",
            "spec.speculation.method is SuffixAutomaton, for which vLLM needs the Python package "
            "arctic-inference 0.1.1, and the default images are not known to have it: set "
            "spec.runtime.image to an image with this package (--image)",
        ),
    ],
)
def test_entry_that_is_not_tried_has_a_reason(
    request_: CertifyRequest, gpus: Gpus | None, name: str, reason: str
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "version"),
    [
        *((TENSORRT, version) for version in ("0.18.0", "0.19.0", "1.2.1")),
        *((REFERENCE, version) for version in ("0.18.0", "0.19.0", "1.2.1")),
        *((PYTORCH, version) for version in ("1.1.0", "1.2.1", "1.3.0")),
        *((VLLM, version) for version in ("0.24.0", "0.27.1")),
    ],
)
def test_operator_accepts_every_entry(backend: Backend, version: str) -> None:
    gpus = None if backend is REFERENCE else Gpus(H100, 2, 2, 81559, "9.0")
    product = H100 if gpus else None
    given = ALL_HEADS if gpus else {}
    if backend is PYTORCH:
        given = {"Eagle3": "pvc:heads/eagle3"}
    if backend is VLLM:
        given = VLLM_HEADS
    image = "release:1.3" if version == "1.3.0" else None
    request = CertifyRequest(
        backend=backend, version=version, gpu_product=product, heads=given, image=image
    )
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


def test_a_request_has_no_names_beyond_the_matrix() -> None:
    assert len(set(NAMES)) == len(NAMES) == 16
    assert all(len(resources.resource_name(name)) <= 40 for name in NAMES)
