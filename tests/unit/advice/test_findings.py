"""An advice about checkpoints or memory is accepted by the stages that gave it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specdec.api.matrix import matrix
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import MemoryReason
from specdec.backends.definition_rules import tables
from specdec.pipeline.stages import effect_advice
from specdec.pipeline.validation import compatibility
from support.checkpoint_facts import by_role
from support.simulated_cluster import resource
from unit.advice.following import Step, applied, read, refusal
from unit.backends.pytorch_cases import pytorch
from unit.pipeline.planned_memory import planned
from unit.pipeline.public import checkpoint, models, spec

Json = dict[str, Any]
ROWS = {str(name): row for name, row in matrix().items()}
# Those that a backend serves, and one that none serves.
ARCHITECTURES = [
    *sorted({a for row in ROWS.values() for a in row.architectures}),
    "Llama9ForCausalLM",
]
METHODS = [
    (backend, method)
    for backend, row in ROWS.items()
    if row.served and row.on_gpus
    for method in row.methods
]
BLOCKS: Mapping[str, Json] = {
    "DraftTarget": {
        "draftTarget": {"draft": {"source": {"pvc": {"claimName": "c", "path": "d"}}}}
    },
    "Eagle": {"eagle": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
    "Eagle3": {"eagle3": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
    "Medusa": {"medusa": {"heads": {"pvc": {"claimName": "c", "path": "h"}}}},
    "ReDrafter": {"reDrafter": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
    "PARD": {"pard": {"draft": {"pvc": {"claimName": "c", "path": "d"}}}},
    "DFlash": {"dFlash": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
    "Lookahead": {"lookahead": {}},
}


def speculating(backend: str, method: str) -> Json:
    """Return a resource of a method in the newest version of a backend that has it."""
    speculation = {"method": method, **BLOCKS.get(method, {})}
    if method not in ("None", "ReDrafter", "Lookahead"):
        speculation["maxDraftTokens"] = 63 if method in ("Eagle", "Medusa") else 5
    version = ROWS[backend].versions[-1]
    runtime = {"backend": backend, "version": version, "image": "example.com/server:1"}
    product = "NVIDIA-H100-80GB-HBM3"
    cr = resource(runtime=runtime, speculation=speculation, gpu={"product": product})
    if "inputLimit" not in tables()[backend].has:
        del cr["spec"]["target"]["limits"]["maxInputLen"]
    return cr


def judged(cr: Json, facts: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for finding in compatibility.judge(SpeculativeModel.parse(cr), by_role(facts)).refused:
        yield str(finding.code), finding.message


@pytest.mark.parametrize(("backend", "method"), METHODS, ids=["-".join(m) for m in METHODS])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_advice_about_an_architecture_is_accepted(
    backend: str, method: str, architecture: str
) -> None:
    facts = {"target": {"architecture": architecture}, "heads": {}}
    for code, message in judged(speculating(backend, method), facts):
        advice = message.rpartition(": ")[2]
        for other in re.findall(r"set spec\.runtime\.backend to (\w+)", advice):
            assert list(judged(speculating(other, method), facts)) == [], (code, message)
        named = re.search(r"or method (\w+(?: or \w+)*)$", advice)
        for other in named[1].split(" or ") if named else ():
            assert ROWS[backend].serves(other, ROWS[backend].default_version), message
            assert list(judged(speculating(backend, other), facts)) == [], (code, message)


def test_model_that_nothing_serves_gets_no_advice_about_methods() -> None:
    facts = {"target": {"architecture": "Llama9ForCausalLM"}, "heads": {}}

    for code, message in judged(speculating("PyTorch", "Eagle3"), facts):
        assert "DraftTarget" not in message, code
        assert "another backend" not in message, code


NAMES = sorted(set(models()) - {"mixtral-8x7b"})


@given(
    name=st.sampled_from(NAMES),
    product=st.sampled_from(["Tesla-T4", "NVIDIA-L4", "NVIDIA-A10", "NVIDIA-H100-80GB-HBM3"]),
    tensor=st.sampled_from([1, 2, 4, 8]),
    longest=st.sampled_from([2048, 32768, 131072]),
    batch=st.sampled_from([1, 64, 512]),
)
def test_advice_about_memory_is_accepted(
    name: str, product: str, tensor: int, longest: int, batch: int
) -> None:
    limits = {"maxSeqLen": longest, "maxInputLen": longest // 2, "maxBatchSize": batch}
    target = spec(tensor, limits={**limits, "maxNumTokens": longest})
    del target["quantization"]
    cr = pytorch("NGram", target=target, gpu={"product": product})
    given_ = {"target": checkpoint("target", name)}
    assume(refusal(cr) is None)
    (condition,) = planned(SpeculativeModel.parse(cr), given_).conditions
    assume(condition.reason is MemoryReason.INSUFFICIENT_GPU_MEMORY)

    changes = list(_changes(condition.message))

    assert changes or "choose a smaller model" in condition.message
    for change in changes:
        changed = applied(cr, change)
        assert refusal(changed) is None, condition.message
        (after,) = planned(SpeculativeModel.parse(changed), given_).conditions
        assert after.status == "True", condition.message


def _changes(message: str) -> Iterator[list[Step]]:
    """Read the changes that a message about memory names."""
    if match := re.search(r"raise parallelism\.tensor of the target to (\d+)", message):
        yield list(read(f"set target.parallelism.tensor to {match[1]}", ""))
    if match := re.search(r"set spec\.gpu\.product to ([\w.-]+)", message):
        yield [Step(("spec", "gpu", "product"), match[1])]
    if match := re.search(r"lower limits\.(\w+) to (\d+)(?: and (\w+) to (\d+))?", message):
        fields = [(match[1], match[2]), (match[3], match[4])]
        yield [
            step
            for field, value in fields
            if field
            for step in read(f"set target.limits.{field} to {value}", "")
        ]


@pytest.mark.parametrize(
    ("backend", "method", "adaptive"),
    [
        *((backend, method, False) for backend, method in METHODS if method != "None"),
        *(("TensorRT", method, True) for method in ("DraftTarget", "NGram")),
    ],
)
def test_advice_about_the_effect_names_what_the_method_has(
    backend: str, method: str, adaptive: bool
) -> None:
    cr = speculating(backend, method)
    if adaptive:
        cr["spec"]["speculation"]["draftLengthPolicy"] = {"type": "Adaptive"}
    assert refusal(cr) is None
    model = SpeculativeModel.parse(cr)

    speed, acceptance = effect_advice.speed(model), effect_advice.acceptance(model)

    assert ("a faster draft" in speed) == ("draft" in model.sources)
    assert ("closer to the target" in acceptance) == ("draft" in model.sources)
    for text in (speed, acceptance):
        for step in re.findall(r"set (spec\.[\w.]+) (?:to|below) (\w+)", text):
            field, value = step
            lower = str(int(value) - 1) if value.isdigit() else value
            change = list(read(f"set {field} to {lower}", ""))
            assert change, text
            changed = applied(cr, change)
            if value == "None":
                changed["spec"]["speculation"] = {"method": "None"}
            assert changed != cr, text
            assert refusal(changed) is None, text
    if adaptive:
        assert "Adaptive" not in speed


def test_adaptive_lookups_are_not_sent_to_a_draft_or_to_their_own_policy() -> None:
    model = SpeculativeModel.parse(speculating("TensorRT", "NGram"))

    assert effect_advice.speed(model) == (
        "measure with your own prompts (spec.verification.promptsConfigMapRef), or set "
        "spec.speculation.method to None"
    )
