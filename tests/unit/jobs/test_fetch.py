"""A fetched checkpoint is complete or absent, and the result contains its facts."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import result
from specdec.jobs.inspection import inspect
from unit.jobs.checkpoints import claim, config, run, tensors, tokenizer, visible, write
from unit.jobs.termination import read_result


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for role in ("target", "draft"):
        write(tmp_path / "sources" / role / "model")
    return tmp_path / "sources"


def test_pair_is_fetched_from_claims(volume: Path, sources: Path) -> None:
    write(sources / "draft" / "model", **{"model.safetensors": tensors(b"\3\4" * 9)})
    (volume / "engines" / ("e" * 64)).mkdir(parents=True)
    (volume / "engines" / ("e" * 64) / "manifest.json").touch()
    (volume / "engines" / ".half.tmp").mkdir()
    (volume / "engines" / ".half.tmp" / "manifest.json").touch()

    assert run({"target": claim(), "draft": claim()}, volume, sources) == 0

    answer = read_result()
    assert answer["engines"] == ["e" * 16]
    digests = [answer["models"][role]["digest"] for role in ("target", "draft")]
    assert sorted(visible(volume)) == sorted(digests)
    folder = volume / "checkpoints" / digests[0]
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "config.json").stat().st_mode) == 0o644
    facts = answer["models"]["target"]["facts"]
    assert facts["architecture"] == "LlamaForCausalLM"
    assert facts["vocabSize"] == 4
    assert facts["eos"] == 0
    assert len(facts["tokenizer"]) == 12


def test_equal_checkpoints_are_stored_once(volume: Path, sources: Path) -> None:
    assert run({"target": claim(), "draft": claim()}, volume, sources) == 0
    assert run({"target": claim()}, volume, sources) == 0
    assert len(visible(volume)) == 1
    assert read_result()["models"]["target"]["bytes"] > 1000


def test_incompatible_pair_is_a_result_and_no_error(volume: Path, sources: Path) -> None:
    other = tokenizer({"<|endoftext|>": 0, "a": 2, "b": 1, "ab": 3})
    write(sources / "draft" / "model", **{"tokenizer.json": other})

    assert run({"target": claim(), "draft": claim()}, volume, sources) == 0

    models = read_result()["models"]
    hashes = {models[role]["facts"]["tokenizer"] for role in ("target", "draft")}
    assert len(hashes) == 2


DAMAGE = [
    ({"model.safetensors": tensors(b"\1\2" * 9)[:-1]}, "CheckpointCorrupt", "header states"),
    ({"model.safetensors": b"\xff" * 64}, "CheckpointCorrupt", "no safetensors header"),
    ({"model.safetensors": b""}, "CheckpointCorrupt", "0 bytes"),
    ({"model.safetensors": b"\4\0\0\0\0\0\0\0nope"}, "CheckpointCorrupt", "cannot be read"),
    ({"model.safetensors": None}, "CheckpointCorrupt", "convert its weights"),
    (
        {"model.safetensors.index.json": {"weight_map": {"a": "model-2.safetensors"}}},
        "CheckpointCorrupt",
        "model-2.safetensors is missing",
    ),
    ({"config.json": b"{"}, "CheckpointCorrupt", "config.json is not JSON"),
    ({"config.json": []}, "CheckpointCorrupt", "not a JSON object"),
    ({"config.json": None}, "CheckpointCorrupt", "no config.json"),
    ({"config.json": config(vocab_size={"a": 1})}, "CheckpointCorrupt", "vocab_size"),
    ({"config.json": config(max_position_embeddings=0)}, "CheckpointCorrupt", "positive number"),
    ({"tokenizer.json": None}, "CheckpointCorrupt", "neither tokenizer.json"),
    ({"tokenizer.json": {"model": []}}, "CheckpointCorrupt", "tokenizer.json cannot be read"),
]


@pytest.mark.parametrize(("files", "reason", "message"), DAMAGE)
def test_damaged_checkpoint_is_a_permanent_error_and_leaves_nothing(
    files: dict[str, Any], reason: str, message: str, volume: Path, sources: Path
) -> None:
    folder = sources / "target" / "model"
    for path in folder.iterdir():
        path.unlink()
    write(folder, **files)

    assert run({"target": claim()}, volume, sources) == result.PERMANENT

    error = read_result()["error"]
    assert error["reason"] == reason
    assert message in error["message"]
    assert visible(volume) == []


@pytest.mark.parametrize("path", ["missing", "../draft/model", "/../../etc", "model/config.json"])
def test_message_names_the_wrong_path(path: str, volume: Path, sources: Path) -> None:
    assert run({"target": claim(path)}, volume, sources) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] in ("SourceNotFound", "CheckpointCorrupt")
    assert path in error["message"]


def test_link_out_of_the_claim_is_not_followed(
    tmp_path: Path, volume: Path, sources: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (sources / "target" / "model" / "extra.json").symlink_to(secret)

    assert run({"target": claim()}, volume, sources) == result.PERMANENT
    assert "is a link to a file outside the claim" in read_result()["error"]["message"]


def test_path_with_shell_syntax_is_not_executed(volume: Path, sources: Path) -> None:
    name = "a b'\"$(touch pwned)`id`;\n\\ <|>"
    write(sources / "target" / name)
    assert run({"target": claim(name)}, volume, sources) == 0
    assert not Path("pwned").exists()
    assert read_result()["models"]["target"]["bytes"] > 1000


def test_fetch_fails_before_the_volume_is_full(
    volume: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "specdec.jobs.volume.shutil.disk_usage", lambda _: type("U", (), {"free": 10})()
    )
    assert run({"target": claim()}, volume, sources) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "VolumeFull"
    assert "enlarge the claim" in error["message"]
    assert visible(volume) == []


def test_copy_that_runs_out_of_space_leaves_nothing(
    volume: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Path) -> Iterator[int]:
        yield 1
        raise OSError(28, "No space left on device", "model.safetensors")

    monkeypatch.setattr("specdec.jobs.volume.copy", full)
    assert run({"target": claim()}, volume, sources) == result.TRANSIENT
    assert read_result()["error"]["reason"] == "VolumeFull"
    assert [p for p in (volume / "checkpoints").iterdir() if p.is_dir()] == []


def test_both_formats_of_merges_give_the_same_tokenizer_hash(tmp_path: Path) -> None:
    with_strings = write(tmp_path / "strings")
    other = tokenizer()
    other["model"]["merges"] = [["a", "b"]]
    with_lists = write(tmp_path / "lists", **{"tokenizer.json": other})
    assert inspect(with_strings) == inspect(with_lists)


def test_special_tokens_are_read_from_the_generation_config_too(tmp_path: Path) -> None:
    bare = config()
    del bare["eos_token_id"]
    folder = write(
        tmp_path / "m", **{"config.json": bare, "generation_config.json": {"eos_token_id": [3, 2]}}
    )
    assert inspect(folder).eos == 3
    assert inspect(folder).bos is None
