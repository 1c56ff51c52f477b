"""The memory plan of `specdec plan`: sizes from a config.json, and the table."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specdec.tools.cli.app import app
from specdec.tools.dry_run import configuration
from specdec.tools.dry_run.resource import InputError
from support.simulated_cluster import resource
from unit.dry_run.commands import LLAMA_8B

SAMPLES = Path(__file__).resolve().parents[3] / "manifests" / "samples"
SHARED = SAMPLES / "tensorrt-draft-target-shared.yaml"


def write_config(folder: Path, text: str) -> Path:
    path = folder / "config.json"
    path.write_text(text)
    return path


def test_sizes_are_read_with_the_fetch_jobs_names(tmp_path: Path) -> None:
    assert configuration.facts(write_config(tmp_path, json.dumps(LLAMA_8B))).shown() == {
        "architecture": "LlamaForCausalLM",
        "vocabSize": 128256,
        "hiddenSize": 4096,
        "intermediateSize": 14336,
        "layers": 32,
        "heads": 32,
        "kvHeads": 8,
        "headDim": 128,
        "parameters": 8_029_995_008,
        "tieEmbeddings": False,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a valid config.json"),
        ("\xff", "not a valid config.json"),
        ("[]", "not a JSON object"),
        ('{"hidden_size": 0}', "hidden_size in config.json is '0'"),
        ('{"hidden_size": true}', "hidden_size in config.json is 'True'"),
        ('{"hidden_size": "4096"}', "hidden_size in config.json is '4096'"),
        ('{"hidden_size": 1e999}', "hidden_size in config.json is 'inf'"),
        ('{"vocab_size": 99999999999999999999}', "vocab_size"),
    ],
)
def test_invalid_configuration_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"config\.json") as error:
        configuration.facts(write_config(tmp_path, text))
    assert message in str(error.value)


def test_config_json_compares_vocabularies_and_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target = write_config(tmp_path / "a", json.dumps(LLAMA_8B))
    draft = write_config(tmp_path / "b", json.dumps(LLAMA_8B | {"vocab_size": 32000}))
    cr = tmp_path / "cr.yaml"
    cr.write_text(yaml.safe_dump(resource(storage={"size": "40Gi"})))
    given = ["plan", "-f", str(cr), "--checkpoint", f"target={target}", "--json"]

    one_given = CliRunner().invoke(app, given)
    both_given = CliRunner().invoke(app, [*given, "--checkpoint", f"draft={draft}"])

    assert one_given.exit_code == 0, one_given.output
    plan = json.loads(one_given.stdout)
    assert {item["basis"] for item in plan["checkpoints"]} == {"known after fetch"}
    stages = {item["type"]: item for item in plan["stages"]}
    assert stages["MemoryFits"]["reason"] == "NotNeeded"
    assert stages["MemoryFits"]["basis"] == "checked"
    assert both_given.exit_code == 1
    assert "VocabSizeMismatch" in both_given.stderr


def test_table_has_every_gpu_and_cache(tmp_path: Path) -> None:
    given = write_config(tmp_path, json.dumps(LLAMA_8B))
    sizes = [part for role in ("target", "draft") for part in ("--checkpoint", f"{role}={given}")]

    shown = CliRunner().invoke(app, ["plan", "-f", str(SHARED), *sizes])

    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    gpus = {line[0]: line[1] for line in lines if line and ":" in line[0] and line[2:3] == ["MiB"]}
    assert gpus == {"target+draft:0": "81559"} | {f"target:{i}": "81559" for i in (1, 2, 3)}
    # The draft's weights without norms: 14.96 GiB, on its only GPU.
    assert "draftWeights 15316" in " ".join(shown.stdout.split())
    assert [line[-2:] for line in lines if line[:4] == ["cache", "of", "the", "draft"]] == [
        ["131072", "tokens"]
    ]


def test_heads_count_with_their_weights(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    target = write_config(tmp_path, json.dumps(LLAMA_8B))
    heads = write_config(tmp_path / "heads", json.dumps(LLAMA_8B | {"num_hidden_layers": 1}))

    shown = CliRunner().invoke(
        app,
        [
            *("plan", "-f", str(SAMPLES / "tensorrt-eagle.yaml")),
            *("--checkpoint", f"target={target}", "--checkpoint", f"heads={heads}"),
        ],
    )

    assert shown.exit_code == 0, shown.output
    # One layer, both embeddings, in 16 bits.
    assert "targetHeads 2420" in " ".join(shown.stdout.split())


def test_memory_is_unknown_without_sizes() -> None:
    shown = CliRunner().invoke(app, ["plan", "-f", str(SHARED), "--json"])

    stages = {item["type"]: item for item in json.loads(shown.stdout)["stages"]}
    assert stages["MemoryFits"]["reason"] == "UnknownSize"
    assert "target and draft" in stages["MemoryFits"]["message"]


def test_plan_that_does_not_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    given = write_config(tmp_path, json.dumps(LLAMA_8B | {"num_hidden_layers": 800}))

    shown = CliRunner().invoke(
        app,
        ["plan", "-f", str(SHARED)]
        + [part for role in ("target", "draft") for part in ("--checkpoint", f"{role}={given}")],
    )

    assert shown.exit_code == 1
    assert "InsufficientGpuMemory" in shown.stderr
    assert "81559 MiB" in shown.stderr
