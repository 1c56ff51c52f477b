"""Findings and their severities, each from the facts of checkpoints."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.api import conditions
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.pipeline.validation import compatibility
from support.checkpoint_facts import by_role
from support.simulated_cluster import resource
from unit.backends.pytorch_cases import pytorch
from unit.pipeline.tensorrt import tensorrt

ROOT = Path(__file__).resolve().parents[3]
TARGET = {
    "architecture": "LlamaForCausalLM",
    "vocabSize": 32000,
    "hiddenSize": 4096,
    "layers": 32,
    "maxPosition": 4096,
    "tokenizer": "aaaaaaaaaaaa",
    "tokenizerFile": "tokenizer.json",
    "eos": 2,
    "bos": 1,
    "chatTemplate": "cccccccccccc",
}
HEADS = {"hiddenSize": 4096, "vocabSize": 32000, "layers": 1}
BLOCKS: dict[str, dict[str, Any]] = {
    "Eagle": {"eagle": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
    "Medusa": {"medusa": {"heads": {"pvc": {"claimName": "c", "path": "h"}}}},
    "ReDrafter": {"reDrafter": {"checkpoint": {"pvc": {"claimName": "c", "path": "h"}}}},
}


def pair(draft: dict[str, Any], checks: dict[str, str] | None = None, **spec: Any) -> list[str]:
    """Return codes and severities for a draft with other facts; `spec` has paths as a__b."""
    cr = resource(checks=checks or {})
    for path, value in spec.items():
        *parents, last = path.split("__")
        part = cr["spec"]
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value
    return _codes(cr, {"target": TARGET, "draft": TARGET | draft})


def heads(
    method: str, facts_of_heads: dict[str, Any], target: dict[str, Any] | None = None, **block: int
) -> list[str]:
    cr = resource("None")
    own = {name: value | block for name, value in BLOCKS[method].items()}
    cr["spec"]["speculation"] = {"method": method, **own}
    facts = {
        "target": TARGET | (target or {}),
        "heads": {"method": method} | HEADS | facts_of_heads,
    }
    return _codes(cr, facts)


def _codes(cr: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    verdict = compatibility.judge(SpeculativeModel.parse(cr), by_role(facts))
    assert set(verdict.findings) == {*verdict.refused, *verdict.warnings}
    return [f"{f.code} {f.severity}" for f in verdict.findings]


LOGITS = {"speculation__draftTarget__acceptance": "Logits"}
WIDE = {"target__parallelism": {"tensor": 4, "pipeline": 1}}


@pytest.mark.parametrize(
    ("draft", "spec", "expected"),
    [
        ({}, {}, []),
        ({"tokenizer": "bbbbbbbbbbbb"}, {}, ["TokenizerMismatch Enforce"]),
        ({"eos": 3}, {}, ["SpecialTokensMismatch Enforce"]),
        ({"bos": None}, {}, []),
        ({"chatTemplate": "dddddddddddd"}, {}, ["ChatTemplateMismatch Warn"]),
        ({"chatTemplate": None}, {}, []),
        ({"maxPosition": 100}, {}, ["ContextTooShort Warn"]),
        # The tokenizer is the same and only the padding differs, so ids have the same meaning.
        ({"vocabSize": 31990}, {}, ["VocabSizeMismatch Warn"]),
        # The draft has ids that the target's embedding lacks.
        ({"vocabSize": 32001}, {}, ["VocabSizeMismatch Enforce"]),
        ({"vocabSize": 31990, "tokenizer": None}, {}, ["VocabSizeMismatch Enforce"]),
        ({"vocabSize": 31990}, LOGITS, ["PaddedVocabMismatch Enforce"]),
        # Tensor parallelism 4 pads the draft's 31997 entries to 32000, the target's size.
        (
            {"vocabSize": 31997},
            {**LOGITS, "speculation__draftTarget__draft__parallelism": {"tensor": 4}},
            ["VocabSizeMismatch Warn"],
        ),
        ({"vocabSize": 32000}, {**LOGITS, **WIDE}, []),
    ],
)
def test_pairs(draft: dict[str, Any], spec: dict[str, Any], expected: list[str]) -> None:
    assert pair(draft, **spec) == expected


def test_padding_alone_can_make_a_pair_incompatible() -> None:
    odd = {"vocabSize": 32001}
    cr = resource()
    cr["spec"]["target"]["parallelism"] = {"tensor": 4}
    cr["spec"]["speculation"]["draftTarget"]["acceptance"] = "Logits"
    facts = {"target": TARGET | odd, "draft": TARGET | odd}
    (finding,) = compatibility.judge(SpeculativeModel.parse(cr), by_role(facts)).findings
    assert finding.code == "PaddedVocabMismatch"
    assert "32001 vocabulary entries (tensor parallelism 1)" in finding.message
    assert "32004 (tensor parallelism 4)" in finding.message


@pytest.mark.parametrize(
    ("check", "draft"),
    [
        ("tokenizer", {"tokenizer": "b"}),
        ("vocabulary", {"vocabSize": 99999}),
        ("specialTokens", {"eos": 3}),
        ("chatTemplate", {"chatTemplate": "d"}),
        ("contextLength", {"maxPosition": 8}),
    ],
)
def test_severities(check: str, draft: dict[str, Any]) -> None:
    assert pair(draft, {check: "Disabled"}) == []
    assert [c.split()[1] for c in pair(draft, {check: "Warn"})] == ["Warn"]
    assert [c.split()[1] for c in pair(draft, {check: "Enforce"})] == ["Enforce"]


@pytest.mark.parametrize(
    ("method", "positions", "message"),
    [
        ("None", 512, ""),
        ("None", 511, "trained on 511 positions and limits.maxSeqLen allows 512"),
        # The BLS drafts no tokens after the last token of an answer.
        ("DraftTarget", 512, ""),
        ("Eagle", 575, ""),
        ("Eagle", 574, "with the 63 draft tokens of a step needs 575"),
        ("Medusa", 512, "lower limits.maxSeqLen of the target to 449"),
        ("ReDrafter", 530, "with the 25 draft tokens of a step needs 537"),
        ("Lookahead", 594, "with the 83 draft tokens of a step needs 595"),
        ("Lookahead", 500, "trained on 500 positions and limits.maxSeqLen allows 512"),
    ],
)
def test_drafts_need_positions_too(method: str, positions: int, message: str) -> None:
    facts = {"target": TARGET | {"maxPosition": positions}}
    verdict = compatibility.judge(SpeculativeModel.parse(tensorrt(method)), by_role(facts))
    assert [f.code for f in verdict.warnings] == ["ContextTooShort"] * bool(message)
    assert all(message in f.message for f in verdict.warnings)


def test_tokenizers_in_two_forms() -> None:
    """A tokenizer.json and a tokenizer.model are compared only by a file that both models have."""
    other = {"tokenizer": "eeeeeeeeeeee", "tokenizerFile": "tokenizer.model"}
    assert pair(other) == []
    cr = resource()
    target = TARGET | {"sentencePiece": "ffffffffffff"}
    for piece, expected in (("ffffffffffff", []), ("0", ["TokenizerMismatch Enforce"])):
        assert (
            _codes(cr, {"target": target, "draft": TARGET | other | {"sentencePiece": piece}})
            == expected
        )


@pytest.mark.parametrize("method", BLOCKS)
def test_heads_that_match_are_accepted(method: str) -> None:
    assert heads(method, {"numHeads": 4} if method == "Medusa" else {}) == []
    assert heads(method, dict.fromkeys(("method", "hiddenSize", "vocabSize", "layers"))) == []


# The findings for a target that neither the backend nor the method serves.
OTHER_TARGET = ["ArchitectureNotServed", "TargetArchitectureMismatch"]


@pytest.mark.parametrize(
    ("method", "facts_of_heads", "target", "block", "expected"),
    [
        ("Eagle", {"hiddenSize": 5120}, {}, {}, ["HeadsHiddenSizeMismatch"]),
        ("Medusa", {"vocabSize": 128}, {}, {}, ["HeadsVocabSizeMismatch"]),
        ("ReDrafter", {"method": "Medusa"}, {}, {}, ["HeadsMethodMismatch"]),
        ("Eagle", {"method": "Eagle3"}, {}, {}, ["HeadsMethodMismatch"]),
        ("Eagle", {"layers": 2}, {}, {}, ["HeadsLayersMismatch"]),
        ("Eagle", {}, {}, {"numLayers": 7}, []),
        ("Medusa", {"numHeads": 3}, {}, {"numHeads": 4}, ["HeadsCountMismatch"]),
        ("Medusa", {"numHeads": 5}, {}, {"numHeads": 4}, []),
        ("Medusa", {"layers": 2}, {}, {}, ["HeadsLayersMismatch"]),
        ("Eagle", {}, {"architecture": "Qwen2ForCausalLM"}, {}, OTHER_TARGET),
        # The build would refuse these hours later: its converters accept only Llama models.
        ("Eagle", {}, {"architecture": "MistralForCausalLM"}, {}, OTHER_TARGET),
        ("Medusa", {}, {"architecture": "MistralForCausalLM"}, {}, OTHER_TARGET),
    ],
)
def test_heads_that_do_not_match_are_refused(
    method: str,
    facts_of_heads: dict[str, Any],
    target: dict[str, Any],
    block: dict[str, int],
    expected: list[str],
) -> None:
    codes = heads(method, facts_of_heads, target, **block)
    assert codes == [f"{code} Enforce" for code in expected]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.19.0", ["TargetArchitectureMismatch Enforce"]), ("1.2.1", [])],
)
def test_a_later_release_has_more_targets_for_a_drafter(version: str, expected: list[str]) -> None:
    cr = resource("None")
    cr["spec"]["runtime"] |= {"backend": "TensorRT", "version": version}
    cr["spec"]["speculation"] = {"method": "ReDrafter", **BLOCKS["ReDrafter"]}
    target = TARGET | {"architecture": "Qwen2ForCausalLM"}
    assert _codes(cr, {"target": target, "heads": HEADS | {"method": "ReDrafter"}}) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"lastTargetLayer": 2}, []),
        ({"lastTargetLayer": 3}, ["HeadsLayersMismatch Enforce"]),
        ({"targetLayers": 36}, ["HeadsLayersMismatch Enforce"]),
        ({"maxPosition": 2048}, []),
        ({"maxPosition": 2047}, ["ContextTooShort Warn"]),
        ({"layout": "speculators"}, ["HeadsLayoutUnknown Warn"]),
    ],
)
def test_layers_context_and_layout_of_heads(change: dict[str, Any], expected: list[str]) -> None:
    own = {"method": "Eagle3", "hiddenSize": 4096, "vocabSize": 32000, **change}
    facts = {"target": TARGET | {"layers": 2, "maxPosition": 8192}, "heads": own}
    cr = pytorch("Eagle3")
    cr["spec"]["target"]["limits"] = {"maxSeqLen": 2048, "maxInputLen": 1024}
    assert _codes(cr, facts) == expected


def test_layout_that_the_backend_loads_needs_no_warning() -> None:
    facts = {"target": TARGET, "heads": {"method": "Eagle3", "layout": "speculators"}}
    cr = pytorch("Eagle3")
    cr["spec"]["runtime"] = {"backend": "VLLM"}
    assert _codes(cr, facts) == []


def test_refusal_of_heads_names_both_values_both_files_and_the_verifier() -> None:
    heads = {"method": "Eagle3", "hiddenSize": 8192, "verifier": "acme/large"}
    model = SpeculativeModel.parse(pytorch("Eagle3"))
    (finding,) = compatibility.judge(model, by_role({"target": TARGET, "heads": heads})).refused
    for part in ("8192 in config.json of the heads", "4096 in that of the target", "acme/large"):
        assert part in finding.message


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        ([2, 5], [5, 2], []),
        # A base model ends at one of the tokens that its instruct model ends at.
        ([2, 5, 7], [7], []),
        ([2, 5], [3], ["SpecialTokensMismatch Enforce"]),
        ([2], None, []),
    ],
)
def test_end_tokens_are_compared_as_sets(
    target: list[int], draft: list[int] | None, expected: list[str]
) -> None:
    facts = {
        "target": TARGET | {"eos": target[0], "endTokens": target},
        "draft": TARGET | {"eos": draft[0] if draft else target[0], "endTokens": draft},
    }
    assert _codes(resource(), facts) == expected


@given(st.integers(1, 1 << 20), st.integers(1, 16))
def test_padding(entries: int, tensor: int) -> None:
    size = compatibility.padded(entries, tensor)
    assert size % tensor == 0
    assert 0 <= size - entries < tensor


def test_every_reason_of_the_condition_is_used() -> None:
    package = ROOT / "operator" / "specdec"
    sources = [
        *package.glob("pipeline/validation/*.py"),
        *package.glob("backends/**/methods/*.py"),
    ]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    names = set(re.findall(r"CompatibilityReason\.(\w+)", text))
    failed = [reason for reason in CompatibilityReason if reason in conditions.FAILED]
    assert names == {reason.name for reason in failed}
