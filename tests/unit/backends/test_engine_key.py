"""An engine's key depends on every field that changes the engine's bytes, and on no other.

`engine_key_fields` declares every field of the spec once, so a new field must be added there.
"""

from dataclasses import replace

import pytest

from specdec.api.model import Spec, SpeculativeModel
from support.simulated_cluster import source
from unit.backends.engine_key_fields import (
    BUILD,
    DRAFT,
    MODEL_SOURCES,
    NEITHER,
    RUN,
    WITHOUT_ENGINE,
    leaves,
)
from unit.pipeline.tensorrt import Json, engines, facts, put, tensorrt

# These fields select backend and method; other tests change them.
CHOSEN = {"runtime.backend", "speculation.method"}
SOURCES = {
    "speculation.eagle.checkpoint",
    "speculation.medusa.heads",
    "speculation.reDrafter.checkpoint",
    "speculation.eagle3.checkpoint",
    "speculation.pard.draft",
    "speculation.dFlash.checkpoint",
    *(f"target.{path}" for path in MODEL_SOURCES),
    *(f"{DRAFT}.{path}" for path in MODEL_SOURCES),
}
# Only backends without engines have these fields.
ENGINELESS = {
    "runtime.frontend",
    "runtime.instances",
    *(path for path in leaves(Spec) if path.startswith(WITHOUT_ENGINE)),
} - SOURCES
# DraftTarget raises this limit to maxSeqLen, so only another method shows its effect.
INPUT = "target.limits.maxInputLen"
DERIVED = {f"{DRAFT}.limits.maxInputLen"}
METHODS = {
    "eagle": "Eagle",
    "medusa": "Medusa",
    "reDrafter": "ReDrafter",
    "lookahead": "Lookahead",
}

GROUPS = "to a BUILD table if it changes the engine's bytes, otherwise to a RUN table"


def base(path: str) -> Json:
    return tensorrt(
        next((m for block, m in METHODS.items() if f".{block}." in path), "DraftTarget")
    )


def keys(cr: Json) -> dict[str, str]:
    return {role: engine.key for role, engine in engines(cr).items()}


def test_every_field_is_declared_once() -> None:
    declared = [*BUILD, *RUN, *NEITHER, *CHOSEN, *SOURCES, INPUT, *DERIVED, *ENGINELESS]
    fields = set(leaves(Spec))
    missing, unknown = sorted(fields - set(declared)), sorted(set(declared) - fields)
    assert not missing, f"add a changed value of {missing} in engine_key_fields.py: {GROUPS}"
    assert not unknown, f"remove {unknown}, which the spec does not have"
    assert len(declared) == len(set(declared)), "a field is declared twice"


@pytest.mark.parametrize("path", BUILD)
def test_a_build_time_value_gives_another_key(path: str) -> None:
    assert keys(put(base(path), path, BUILD[path])) != keys(base(path))


@pytest.mark.parametrize("path", [*RUN, *NEITHER])
def test_any_other_value_gives_the_same_key(path: str) -> None:
    value = (RUN | NEITHER)[path]
    assert keys(put(base(path), path, value)) == keys(base(path))


def test_the_input_length_is_built_in_where_it_is_not_derived() -> None:
    assert keys(put(tensorrt("None"), INPUT, 128)) != keys(tensorrt("None"))
    assert keys(put(tensorrt(), INPUT, 128)) == keys(tensorrt())


@pytest.mark.parametrize("path", sorted(p for p in SOURCES if "prebuilt" not in p))
def test_a_source_counts_by_its_content_alone(path: str) -> None:
    assert keys(put(base(path), path, source("moved"))) == keys(base(path))


def test_a_draft_s_flag_leaves_the_target_s_engine_alone() -> None:
    plain, changed = keys(tensorrt()), keys(put(tensorrt(), f"{DRAFT}.dtype", "Float32"))
    assert plain["target"] == changed["target"]
    assert plain["draft"] != changed["draft"]


def test_the_build_program_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(tensorrt())
    monkeypatch.setattr("specdec.backends.programs.payload", lambda _: {"a.py": "new"})
    assert keys(tensorrt()) != before


def test_content_and_heads_are_part_of_the_key() -> None:
    model = SpeculativeModel.parse(tensorrt("Eagle"))
    given = facts(model)
    for role in ("target", "heads"):
        other = replace(given.checkpoints[role], digest="f" * 64)
        changed = engines(tensorrt("Eagle"), checkpoints={**given.checkpoints, role: other})
        assert changed["target"].key != engines(tensorrt("Eagle"))["target"].key
