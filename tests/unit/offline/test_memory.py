"""The memory plan of `specdec plan`: sizes from a config.json, and the table."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from golden.world import resource
from specdec.command import app
from specdec.offline import configuration, tables
from specdec.offline.resource import InputError

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0},
}


def written(folder: Path, text: str) -> Path:
    path = folder / "config.json"
    path.write_text(text)
    return path


def test_sizes_are_read_under_the_fetch_jobs_names(tmp_path: Path) -> None:
    assert configuration.facts(written(tmp_path, json.dumps(LLAMA_8B))) == {
        "architecture": "LlamaForCausalLM",
        "vocabSize": 128256,
        "hiddenSize": 4096,
        "intermediateSize": 14336,
        "layers": 32,
        "heads": 32,
        "kvHeads": 8,
        "tieEmbeddings": False,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no config.json"),
        ("\xff", "no config.json"),
        ("[]", "no JSON object"),
        ('{"hidden_size": 0}', "hidden_size is '0'"),
        ('{"hidden_size": true}', "hidden_size is 'True'"),
        ('{"hidden_size": "4096"}', "hidden_size is '4096'"),
        ('{"hidden_size": 1e999}', "hidden_size is 'inf'"),
        ('{"vocab_size": 99999999999999999999}', "vocab_size"),
    ],
)
def test_anything_else_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=r"config\.json") as error:
        configuration.facts(written(tmp_path, text))
    assert words in str(error.value)


def test_a_config_json_compares_vocabularies_and_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target = written(tmp_path / "a", json.dumps(LLAMA_8B))
    draft = written(tmp_path / "b", json.dumps(LLAMA_8B | {"vocab_size": 32000}))
    cr = tmp_path / "cr.yaml"
    cr.write_text(yaml.safe_dump(resource()))
    given = ["plan", "-f", str(cr), "--checkpoint", f"target={target}", "--json"]

    alone = CliRunner().invoke(app, given)
    other = CliRunner().invoke(app, [*given, "--checkpoint", f"draft={draft}"])

    assert alone.exit_code == 0, alone.output
    plan = json.loads(alone.stdout)
    assert {one["basis"] for one in plan["checkpoints"]} == {"known after fetch"}
    stages = {one["type"]: one for one in plan["stages"]}
    assert stages["MemoryFits"]["reason"] == "NotNeeded"
    assert stages["MemoryFits"]["basis"] == "checked"
    assert other.exit_code == 1
    assert "VocabSizeMismatch" in other.stderr


def test_the_table_has_every_gpu_and_cache(capsys: pytest.CaptureFixture[str]) -> None:
    devices = [
        {
            "device": f"target+draft:{number}",
            "gpuMiB": 81559,
            "usedMiB": 40000 + number,
            "percent": 50,
            "parts": {"targetWeights": 35000, "draftKvCache": 512 + number},
        }
        for number in range(2)
    ]
    memory = {"devices": devices, "kvTokens": {"target": 16384, "draft": 8192}, "message": "m"}
    chosen = dict.fromkeys(
        ("backend", "version", "image", "method", "draftTokens", "maxDraftTokens"), "x"
    )
    plan = {
        "resource": {"name": "pair", "namespace": "demo"},
        "stages": [],
        "plan": {**chosen, "devices": {}, "gpusPerPod": 2, "memory": memory},
        **dict.fromkeys(("engines", "jobs", "checkpoints"), ()),
        "repository": {"files": []},
        "server": {},
    }

    tables.show(plan)

    shown = capsys.readouterr().out
    assert "target+draft:1" in shown
    assert "40001 MiB (50 %)" in shown
    assert "targetWeights 35000, draftKvCache 513" in shown
    assert "cache of the draft" in shown
    assert "8192 tokens" in shown
