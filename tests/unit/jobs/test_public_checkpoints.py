"""Facts of public checkpoints and heads, as the fetch Job and `specdec plan` read them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs import inspection, parameter_count
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError
from specdec.tools.dry_run import configuration
from unit.jobs.checkpoints import tensors, tokenizer

CORPUS = Path(__file__).parents[1] / "checkpoints"


def cases(*names: str) -> dict[str, Any]:
    """Return the cases of several files by name."""
    files = [yaml.safe_load((CORPUS / name).read_text("utf-8")) for name in names]
    return {name: case for file in files for name, case in file.items()}


TARGETS = cases("targets.yaml", "targets_2026.yaml")
HEADS = cases("heads.yaml", "heads_2026.yaml")


def written(folder: Path, case: dict[str, Any], *, weights: bool = False) -> Path:
    """Write the small files of a case, and a small weight file on request."""
    folder.mkdir()
    files = {"config.json": case["config"], "tokenizer.json": tokenizer(), **case.get("files", {})}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    if weights:
        (folder / "model.safetensors").write_bytes(tensors(b"\1\2" * 512))
    return folder


def differing(facts: CheckpointFacts, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the expected facts that were not read, with what was read."""
    shown = json.loads(json.dumps(facts.shown()))
    return {name: shown.get(name) for name, value in expected.items() if shown.get(name) != value}


@pytest.mark.parametrize("name", TARGETS)
def test_facts_of_a_target(name: str, tmp_path: Path) -> None:
    case = TARGETS[name]
    facts = inspection.inspect(written(tmp_path / "m", case), ArtifactKind.WITHOUT_WEIGHTS)
    assert differing(facts, case["facts"]) == {}


@pytest.mark.parametrize("name", HEADS)
def test_facts_of_heads(name: str) -> None:
    case = HEADS[name]
    facts = inspection.stated(case["config"], ArtifactKind.HEADS, None)
    assert differing(facts, case["facts"]) == {}


NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-3, 10**6), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.sampled_from(["factor", "rope_type", "a"]), st.text(max_size=3)),
)


@given(name=st.sampled_from(sorted(TARGETS)), data=st.data())
def test_nonsense_is_refused_in_one_sentence_or_ignored(name: str, data: st.DataObject) -> None:
    config = json.loads(json.dumps(TARGETS[name]["config"]))
    inner = data.draw(st.sampled_from([config, *(v for v in config.values() if type(v) is dict)]))
    inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(NONSENSE)
    for kind in (ArtifactKind.CHECKPOINT, ArtifactKind.HEADS):
        try:
            facts = inspection.stated(config, kind, None)
        except JobError as error:
            assert "not a positive number" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            parameter_count.parameters(config)
            assert CheckpointFacts.model_validate(json.loads(json.dumps(facts.shown()))) == facts


def test_model_in_a_model_in_a_model_is_read_to_a_limit() -> None:
    config: dict[str, Any] = {"hidden_size": 8}
    for _ in range(100):
        config = {"text_config": config}
    assert inspection.stated(config, ArtifactKind.CHECKPOINT, None).hidden_size is None


@pytest.mark.parametrize("name", TARGETS)
def test_plan_reads_the_facts_that_the_fetch_job_reads(name: str, tmp_path: Path) -> None:
    without = {"parameters"}
    folder = written(tmp_path / "m", TARGETS[name])
    by_file = configuration.facts(folder / "config.json").model_dump(exclude=without)
    by_folder = configuration.facts(folder).model_dump(exclude=without)
    fetched = written(tmp_path / "fetched", TARGETS[name], weights=True)
    assert by_file == by_folder == inspection.inspect(fetched).model_dump(exclude=without)


@pytest.mark.parametrize("name", HEADS)
def test_plan_reads_the_facts_of_heads_that_the_fetch_job_reads(name: str, tmp_path: Path) -> None:
    without = {"parameters"}
    folder = written(tmp_path / "m", HEADS[name], weights=True)
    fetched = inspection.inspect(folder, ArtifactKind.HEADS)
    planned = configuration.facts(folder / "config.json", ArtifactKind.HEADS)
    # Only tensors show that heads are those of EAGLE-1, and how many those of Medusa are.
    without |= {"num_heads"} | ({"method"} if planned.method is None else set())
    assert planned.model_dump(exclude=without) == fetched.model_dump(exclude=without)
