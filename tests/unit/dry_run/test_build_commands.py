"""The build commands of a plan equal the steps of a build Job."""

import json
from pathlib import Path

import pytest
import tensorrt_plan
import tensorrt_steps

from specdec.tools.dry_run.plan import make
from specdec.tools.dry_run.resource import read
from support.golden_cases import SAMPLES
from support.simulated_cluster import IMAGES
from unit.dry_run.commands import LLAMA_8B, Json, plan_json, run, sample_text

BUILT = [name for name in SAMPLES if name.startswith("tensorrt-")]


def configured(folder: Path, **changes: object) -> Path:
    """Write a config.json to a folder, and return the folder."""
    (folder / "config.json").write_text(json.dumps(LLAMA_8B | changes))
    return folder


def engines(*arguments: object) -> dict[str, Json]:
    return {engine["role"]: engine for engine in plan_json(*arguments)["engines"]}


@pytest.mark.slow
@pytest.mark.parametrize("sample", BUILT)
def test_commands_are_those_of_the_build_job(sample: str, tmp_path: Path) -> None:
    configured(tmp_path)
    roles = {entry["role"] for entry, _ in make(read(str(SAMPLES[sample])), IMAGES).engines()}
    given = [f"--checkpoint={role}={tmp_path}" for role in sorted(roles)]
    folders = dict.fromkeys(roles, tmp_path / "config.json")
    builds = make(read(str(SAMPLES[sample])), IMAGES, folders).engines()
    shown = engines("-f", SAMPLES[sample], *given)
    assert len(builds) == len(shown)
    for entry, data in builds:
        if not data:
            assert shown[entry["role"]]["steps"] == []
            continue
        build = tensorrt_plan.read(data)
        work = build.output.parent / f".{build.key}.work"
        steps = tensorrt_steps.steps(build, LLAMA_8B, work, lambda _: True)
        expected = [list(step.command(work / step.name)) for step in steps]
        assert [step["command"] for step in shown[entry["role"]]["steps"]] == expected


@pytest.mark.slow
def test_only_the_last_step_is_known_without_a_configuration(tmp_path: Path) -> None:
    sample = SAMPLES["tensorrt-draft-target-shared"]
    (step,) = engines("-f", sample)["target"]["steps"]
    assert step["command"][0] == "trtllm-build"
    assert "--max_draft_len=10" in step["command"]
    whole = engines("-f", sample, f"--checkpoint=target={configured(tmp_path)}")["target"]["steps"]
    assert [step["step"] for step in whole] == ["convert", "build"]
    # `named` masks the names of folders, which depend on the key and on the first step.
    assert named(step["command"]) == named(whole[-1]["command"])


def named(command: list[str]) -> list[str]:
    return [word for word in command if "_dir=" not in word]


def test_step_of_a_build_stands_beside_its_engine() -> None:
    text = sample_text("tensorrt-draft-target-shared")
    assert "\nbuild            trtllm-build --checkpoint_dir=" in text
    assert "--checkpoint target=config.json is enough" in text


def test_engine_of_one_program_has_no_steps() -> None:
    assert {
        role: e["steps"] for role, e in engines("-f", SAMPLES["reference-draft-target"]).items()
    } == {
        "target": [],
        "draft": [],
    }


def test_build_that_would_refuse_is_one_sentence(tmp_path: Path) -> None:
    configured(tmp_path, architectures=["Qwen2ForCausalLM"])
    result = run("plan", "-f", SAMPLES["tensorrt-medusa"], f"--checkpoint=target={tmp_path}")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "Qwen2ForCausalLM" in result.stderr
