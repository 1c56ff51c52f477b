"""Engines have room for the draft tokens that the executor reserves after a sequence."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine
from specdec.backends.tensorrt.memory import footprints
from support.checkpoint_facts import stated
from support.simulated_cluster import resource, source
from unit.pipeline.tensorrt import BLOCKS, built, engines, facts, parameters, plans, put, tensorrt

LIMIT = 512
# Draft tokens of a step: maxDraftTokens; nodes of a tree; beams x length; Lookahead's 7, 7, 7.
DRAFTS = {
    "None": 0,
    "DraftTarget": 8,
    "Eagle": 63,
    "Medusa": 63,
    "ReDrafter": 25,
    "Lookahead": 83,
}


@pytest.mark.parametrize("method", DRAFTS)
def test_the_target_has_room_for_its_drafts(method: str) -> None:
    limits = engines(tensorrt(method))["target"].plan["limits"]

    assert limits["maxSeqLen"] == LIMIT + DRAFTS[method]


@pytest.mark.parametrize("method", [name for name in DRAFTS if name != "DraftTarget"])
def test_prompts_keep_their_limit(method: str) -> None:
    assert engines(tensorrt(method))["target"].plan["limits"]["maxInputLen"] == 256


def test_prompts_of_rounds_reach_the_users_limit() -> None:
    """In every round the prompt of target and draft is the whole sequence so far."""
    built = {role: engine.plan["limits"] for role, engine in engines(tensorrt()).items()}

    assert built["target"]["maxInputLen"] == built["draft"]["maxInputLen"] == LIMIT
    assert built["draft"]["maxSeqLen"] == LIMIT


@pytest.mark.parametrize(
    ("sizes", "drafts"),
    [((1, 1, 0), 0), ((2, 2, 1), 2), ((4, 3, 4), 15), ((7, 7, 7), 83)],
)
def test_the_room_follows_from_the_sizes_of_lookahead(
    sizes: tuple[int, int, int], drafts: int
) -> None:
    names = ("windowSize", "ngramSize", "verificationSetSize")
    block = dict(zip(names, sizes, strict=True))
    cr = put(tensorrt("Lookahead"), "speculation.lookahead", block)

    assert engines(cr)["target"].plan["limits"]["maxSeqLen"] == LIMIT + drafts


def reference(method: str) -> dict[str, Engine]:
    model = SpeculativeModel.parse(resource(speculation={"method": method, **BLOCKS[method]}))
    return built(model, facts(model))


@pytest.mark.parametrize("method", ["DraftTarget", "Lookahead"])
def test_reference_engines_have_the_same_room(method: str) -> None:
    built = reference(method)

    assert built["target"].plan["limits"]["maxSeqLen"] == LIMIT + DRAFTS[method]
    assert all(engine.plan["limits"]["maxSeqLen"] >= LIMIT for engine in built.values())


@pytest.mark.parametrize("method", ["DraftTarget", "Lookahead", "Eagle"])
def test_users_see_their_own_limit(method: str) -> None:
    plan = plans(tensorrt(method))[""]

    assert plan.max_seq_len == LIMIT
    assert parameters(plan, "tensorrt_llm_bls")["max_seq_len"] == str(LIMIT)
    assert parameters(plan, "preprocessing")["max_seq_len"] == str(LIMIT)


@pytest.mark.parametrize("method", DRAFTS)
def test_the_unplanned_cache_holds_a_batch_of_longest_sequences(method: str) -> None:
    tokens = plans(tensorrt(method))[""].target.max_tokens_in_paged_kv_cache

    assert tokens == 16 * (LIMIT + DRAFTS[method])


@pytest.mark.parametrize("method", DRAFTS)
def test_the_memory_plan_holds_a_longest_sequence_of_the_engine(method: str) -> None:
    cr = tensorrt(method)
    model = SpeculativeModel.parse(cr)
    checkpoints = {
        role: replace(known, bytes=9_000_000) for role, known in facts(model).checkpoints.items()
    }

    need = footprints(model, checkpoints)["target"]

    longest = engines(cr)["target"].plan["limits"]["maxSeqLen"]
    assert longest <= need.sequence < longest + 64
    assert need.full_batch == 16 * need.sequence


def prebuilt(known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Checkpoint]]:
    cr = put(tensorrt(), "target.engine.prebuilt", source("built"))
    given = facts(SpeculativeModel.parse(cr)).checkpoints
    return cr, {
        **given,
        "target-engine": Checkpoint("target-engine", "e" * 64, "", 900, stated(known)),
    }


@pytest.mark.parametrize(("known", "drafts"), [({}, 8), ({"maxDraftLen": 100}, 100)])
def test_a_prebuilt_engine_keeps_its_own_draft_length_free(
    known: dict[str, Any], drafts: int
) -> None:
    cr, checkpoints = prebuilt(known)

    need = footprints(SpeculativeModel.parse(cr), checkpoints)["target"]
    plan = plans(cr, checkpoints=checkpoints)[""]

    assert LIMIT + drafts <= need.sequence < LIMIT + drafts + 64
    assert plan.target.max_tokens_in_paged_kv_cache == 16 * (LIMIT + drafts)
