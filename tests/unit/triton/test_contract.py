"""Every field of every release equals published tables that are independent of our output."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from specdec.api.matrix import matrix
from specdec.triton import contract
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support.published_layouts import VERSIONS, differences, parse
from unit.triton import repositories

PLAN = replace(
    repositories.PLAN,
    version="1.2.1",
    target=ModelPlan("/models/engines/target", (1, 2), (2, 3)),
    draft=ModelPlan("/models/engines/draft", (0,), (1,)),
)
LOOKAHEAD = replace(repositories.LOOKAHEAD, version="1.2.1")
PLAIN = replace(PLAN, draft=None, draft_tokens=0)
LLM, BLS = "tensorrt_llm", "tensorrt_llm_bls"


def configs(plan: RepositoryPlan) -> dict[str, Any]:
    files = {path: text for path, text in render(plan).items() if path.endswith(".pbtxt")}
    return {path.split("/")[0]: parse(text) for path, text in files.items()}


def plans() -> Iterator[Any]:
    for version in VERSIONS:
        yield pytest.param(replace(PLAN, version=version), id=f"{version}-draft-target")
        yield pytest.param(replace(PLAIN, version=version), id=f"{version}-none")
        half = replace(PLAN, version=version, logits_datatype="TYPE_FP16", decoupled=False)
        yield pytest.param(half, id=f"{version}-fp16-unary")
        if version != "0.18.0":
            yield pytest.param(replace(LOOKAHEAD, version=version), id=f"{version}-lookahead")


def test_whatever_is_served_has_a_published_layout() -> None:
    rows = [row for row in matrix().values() if row.front() == "bls"]
    served = {version for row in rows for version in row.versions}
    assert "1.2.1" in served
    assert served <= set(contract.versions()) == set(VERSIONS)


@pytest.mark.parametrize("plan", list(plans()))
def test_every_field_is_the_published_one(plan: RepositoryPlan) -> None:
    rendered = configs(plan)
    assert len(rendered) == (6 if plan.draft else 5)
    logits = plan.logits_datatype.removeprefix("TYPE_")
    assert [d for c in rendered.values() for d in differences(c, plan.version, logits)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mapped_tensor_has_one_type_on_both_sides(version: str) -> None:
    """Triton refuses different types; upstream leaves the type of the prompt table open."""
    rendered = configs(replace(PLAN, version=version))
    outer = rendered["ensemble"]
    types = {tensor.name: tensor.data_type for tensor in outer.input}
    for step in outer.ensemble_scheduling.step:
        inner = rendered[step.model_name]
        taken = {tensor.name: tensor.data_type for tensor in inner.input}
        given = {tensor.name: tensor.data_type for tensor in inner.output}
        for ours, theirs in step.input_map.items():
            assert taken[ours] == types[theirs], ours
        types |= {theirs: given[ours] for ours, theirs in step.output_map.items()}
    assert {tensor.name: tensor.data_type for tensor in outer.output}.items() <= types.items()


def rename(config: Any) -> None:
    config.input[0].name += "_"


def widen(config: Any) -> None:
    config.input[0].dims.append(-1)


def require(config: Any) -> None:
    next(tensor for tensor in config.input if tensor.optional).optional = False


def retype(config: Any) -> None:
    config.output[0].data_type = config.input[0].data_type + 1


def repeat(config: Any) -> None:
    config.output.append(config.output[0])


def place(config: Any) -> None:
    config.instance_group[0].kind = 1


def mute(config: Any) -> None:
    config.ClearField("model_transaction_policy")


def drop_key(config: Any) -> None:
    config.parameters.pop(sorted(config.parameters)[0])


def rewire(config: Any) -> None:
    config.ensemble_scheduling.step[1].input_map["end_id"] = "pad_id"


def mislead(config: Any) -> None:
    config.parameters["gpt_model_type"].string_value = "inflight"


def delay(config: Any) -> None:
    config.dynamic_batching.max_queue_delay_microseconds = 5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("model", "spoil"),
    [
        *((m, s) for m in ("ensemble", LLM, BLS) for s in (rename, widen, require, repeat)),
        ("postprocessing", retype),
        ("preprocessing", place),
        (LLM, mute),
        (LLM, mislead),
        (LLM, delay),
        (BLS, drop_key),
        ("ensemble", rewire),
    ],
)
def test_a_spoiled_field_is_reported(
    version: str, model: str, spoil: Callable[[Any], None]
) -> None:
    config = configs(replace(PLAN, version=version))[model]
    assert not differences(config, version)
    spoil(config)
    assert differences(config, version)
