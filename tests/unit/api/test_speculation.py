"""The block of a method: the one in the spec, or its defaults."""

import pytest

from specdec.api.speculation import Speculation

LIMITS = {"maxBatchSize": 1, "maxInputLen": 8, "maxSeqLen": 16, "maxNumTokens": 16}
DRAFT = {"draft": {"source": {"pvc": {"claimName": "models", "path": "draft"}}, "limits": LIMITS}}


@pytest.mark.parametrize(
    ("spec", "control"),
    [
        ({"method": "NGram"}, "Bls"),
        ({"method": "NGram", "nGram": {"minMatch": 3}}, "Bls"),
        ({"method": "Lookahead"}, "Engine"),
        ({"method": "Eagle"}, "Engine"),
        ({"method": "None"}, "Engine"),
    ],
)
def test_method_without_a_block_has_its_defaults(spec: dict[str, object], control: str) -> None:
    assert Speculation.model_validate(spec).block.control == control


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({"method": "NGram"}, "Adaptive"),
        ({"method": "NGram", "draftLengthPolicy": {"type": "Fixed"}}, "Fixed"),
        ({"method": "DraftTarget", "draftTarget": DRAFT}, "Fixed"),
        ({"method": "DraftTarget", "draftTarget": {**DRAFT, "lookup": {}}}, "Adaptive"),
        ({"method": "Eagle"}, "Fixed"),
    ],
)
def test_lookups_are_adaptive_by_default(spec: dict[str, object], policy: str) -> None:
    assert Speculation.model_validate(spec).length_policy.type == policy
