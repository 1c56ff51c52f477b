"""Release 1.2.1 field by field, against a table that does not come from our own output."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from specdec.api.matrix import matrix
from specdec.triton import contract
from specdec.triton.repository import LookaheadPlan, ModelPlan, RepositoryPlan, render

TABLE = Path(__file__).with_name("release-1.2.1.txt")
PLAN = RepositoryPlan(
    version="1.2.1",
    method="DraftTarget",
    tokenizer_dir="/models/checkpoints/abc",
    target=ModelPlan("/models/engines/target"),
    draft=ModelPlan("/models/engines/draft"),
    draft_tokens=4,
    max_draft_tokens=8,
)
LOOKAHEAD = replace(
    PLAN, method="Lookahead", draft=None, draft_tokens=0, lookahead=LookaheadPlan(5, 4, 3)
)
MODELS = ("ensemble", "preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_bls")


def sections() -> dict[str, list[list[str]]]:
    """Lines of the table by section, split into words."""
    found: dict[str, list[list[str]]] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line.split())
    return found


EXPECTED = sections()


def config(model: str, plan: RepositoryPlan = PLAN) -> Any:
    text = render(plan)[f"{model}/config.pbtxt"]
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def expected(model: str, side: str) -> Counter[str]:
    lines = EXPECTED[f"{model} {side}"]
    return Counter(
        f"{name}: {kind} {dims} {flags}" for kind, dims, flags, *names in lines for name in names
    )


def declared(tensors: Any) -> Counter[str]:
    return Counter(f"{tensor.name}: {_line(tensor)}" for tensor in tensors)


def _line(tensor: Any) -> str:
    kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    dims = ",".join(str(size) for size in tensor.dims)
    flags = "o" * bool(getattr(tensor, "optional", False)) + "r" * tensor.HasField("reshape")
    flags += "g" * bool(getattr(tensor, "allow_ragged_batch", False))
    assert not tensor.HasField("reshape") or not tensor.reshape.shape
    return f"{kind} [{dims}] {flags or '-'}"


def test_whatever_is_served_has_a_layout() -> None:
    served = {version for row in matrix().values() for version in row.versions}
    assert "1.2.1" in served
    assert served <= set(contract.versions())


@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_the_published_one(model: str) -> None:
    found = config(model)
    assert declared(found.input) == expected(model, "in")
    assert declared(found.output) == expected(model, "out")


def test_the_draft_declares_what_the_target_does() -> None:
    target, draft = config("tensorrt_llm"), config("tensorrt_llm_draft")
    assert list(target.input) == list(draft.input)
    assert list(target.output) == list(draft.output)
    assert target.parameters.keys() == draft.parameters.keys()


@pytest.mark.parametrize("plan", [PLAN, LOOKAHEAD], ids=["draft-target", "lookahead"])
@pytest.mark.parametrize("model", MODELS[1:])
def test_every_parameter_is_there_and_no_other(model: str, plan: RepositoryPlan) -> None:
    keys = {key for _, *names in EXPECTED[f"{model} key"] for key in names}
    assert set(config(model, plan).parameters) == keys


def test_the_ensemble_hands_on_what_is_published() -> None:
    steps = {step.model_name: step for step in config("ensemble").ensemble_scheduling.step}
    assert list(steps) == ["preprocessing", "tensorrt_llm", "postprocessing"]
    for model, step in steps.items():
        lines = EXPECTED[f"{model} map"]
        assert dict(step.input_map) == {a: b for _, a, arrow, b in lines if arrow == "<-"}
        assert dict(step.output_map) == {a: b for _, a, arrow, b in lines if arrow == "->"}


def test_a_mapped_tensor_has_one_type_on_both_sides() -> None:
    """Triton refuses an ensemble otherwise, and the prompt table's type is left open."""
    outer = config("ensemble")
    types = {tensor.name: tensor.data_type for tensor in outer.input}
    for step in outer.ensemble_scheduling.step:
        inner = config(step.model_name)
        taken = {tensor.name: tensor.data_type for tensor in inner.input}
        given = {tensor.name: tensor.data_type for tensor in inner.output}
        for ours, theirs in step.input_map.items():
            assert taken[ours] == types[theirs], ours
        types |= {theirs: given[ours] for ours, theirs in step.output_map.items()}
    assert {tensor.name: tensor.data_type for tensor in outer.output}.items() <= types.items()
