"""A repository is published complete, and only with engines that match it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import publish, result
from unit.jobs.mounts import FILES, KEYS, Mounts, engine, expectation

Told = Callable[[], dict[str, Any]]


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    return Mounts(tmp_path, volume)


def test_publishes_all_files(mounts: Mounts, told: Told) -> None:
    assert mounts.run() == 0
    assert told() == {"repository": {"hash": "f" * 64, "files": 2}}
    folder = mounts.volume / "repositories" / ("f" * 64)
    for path, text in FILES.items():
        assert (folder / path).read_text() == text
    assert (folder / "ensemble" / "config.pbtxt").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755


def test_publishing_twice_changes_nothing(mounts: Mounts, told: Told) -> None:
    assert mounts.run() == 0
    folder = mounts.volume / "repositories" / ("f" * 64)
    before = folder.stat().st_ino
    assert mounts.run() == 0
    assert folder.stat().st_ino == before
    assert told()["repository"]["files"] == 2


def test_a_damaged_repository_is_replaced(mounts: Mounts, told: Told) -> None:
    folder = mounts.volume / "repositories" / ("f" * 64)
    folder.mkdir(parents=True)
    (folder / "stray").touch()
    stale = folder.with_name("." + "f" * 64 + ".x.tmp")
    stale.mkdir()
    assert mounts.run() == 0
    assert not (folder / "stray").exists()
    assert not stale.exists()
    assert told()["repository"]["files"] == 2


def test_missing_engine_is_reported(mounts: Mounts, told: Told) -> None:
    (mounts.volume / "engines" / KEYS["draft"] / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "EngineMissing"
    assert "draft engine bbbbbbbbbbbbbbbb" in error["message"]
    assert mounts.published == []


MISMATCHES = [
    ({"max_draft_len": 7}, "max_draft_len is 7, below maxDraftTokens 8"),
    ({"speculative_decoding_mode": 1}, "speculative_decoding_mode is 1"),
    ({"vocab_size": 32000}, "target 32000, draft 1024"),
]


@pytest.mark.parametrize(("build", "words"), MISMATCHES)
def test_an_engine_that_does_not_fit(
    build: dict[str, Any], words: str, mounts: Mounts, told: Told
) -> None:
    engine(mounts.volume, "target", **build)
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "EngineMismatch"
    assert words in error["message"]
    assert mounts.published == []


def test_an_engine_of_another_version(mounts: Mounts, told: Told) -> None:
    mounts.engines = [expectation("target", version="0.18.0")]
    assert mounts.run() == result.PERMANENT
    assert "built by 0.19.0, and the server has 0.18.0" in told()["error"]["message"]


@pytest.mark.parametrize("mode", [2, "draft_tokens_external", "DRAFT_TOKENS_EXTERNAL"])
def test_every_spelling_of_a_mode_counts(mode: Any, mounts: Mounts) -> None:
    engine(mounts.volume, "target", speculative_decoding_mode=mode)
    assert mounts.run() == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "0.19.0"}'])
def test_a_config_that_cannot_be_read(text: str, mounts: Mounts, told: Told) -> None:
    (mounts.volume / "engines" / KEYS["target"] / "config.json").write_text(text)
    assert mounts.run() == result.PERMANENT
    assert told()["error"]["reason"] == "EngineMismatch"


def test_files_that_changed_under_the_job_are_not_published(
    mounts: Mounts, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(source: Path, target: Path) -> None:
        Path(target).write_text(Path(source).read_text() + "more")

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", careless)
    assert mounts.run() == result.TRANSIENT
    assert told()["error"]["reason"] == "PublishFailed"
    assert mounts.published == []


def test_a_full_volume_leaves_nothing(
    mounts: Mounts, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", full)
    assert mounts.run() == result.TRANSIENT
    assert told()["error"]["reason"] == "VolumeFull"
    leftovers = [p for p in (mounts.volume / "repositories").iterdir() if p.is_dir()]
    assert leftovers == []


def test_missing_mount_is_reported_in_one_sentence(mounts: Mounts, told: Told) -> None:
    arguments = ["--repository", "/nowhere", "--expectations", "/nowhere/e.json"]
    assert publish.main([*arguments, "--volume", str(mounts.volume)]) == result.TRANSIENT
    assert told()["error"]["reason"] == "PublishFailed"


@pytest.mark.parametrize(
    ("mode", "number"),
    [("medusa", 4), ("lookahead_decoding", 8), ("explicit_draft_tokens", 16), ("eagle", 32)],
)
def test_every_mode_is_known_by_its_number(
    mode: str, number: int, mounts: Mounts, told: Told
) -> None:
    mounts.engines = [expectation("target", speculativeDecodingMode=mode)]
    engine(mounts.volume, "target", speculative_decoding_mode=number)
    assert mounts.run() == 0
    assert "repository" in told()
    engine(mounts.volume, "target", speculative_decoding_mode=1)
    assert mounts.run() == result.PERMANENT
    assert f"is 1, not {mode}" in told()["error"]["message"]


def split(folder: Path, tensor: int, pipeline: int, files: int) -> None:
    """Make an engine say that it is split, with so many rank files."""
    config = json.loads((folder / "config.json").read_text())
    world = tensor * pipeline
    mapping = {"tp_size": tensor, "pp_size": pipeline, "world_size": world}
    config["pretrained_config"]["mapping"] = mapping
    # Heads bring their draft length along in this section.
    config["pretrained_config"]["max_draft_len"] = config["build_config"].pop("max_draft_len")
    (folder / "config.json").write_text(json.dumps(config))
    for rank in range(files):
        (folder / f"rank{rank}.engine").touch()


def test_ranks_and_their_files_are_those_of_the_spec(mounts: Mounts, told: Told) -> None:
    mounts.engines = [expectation("target", tensorParallel=2, pipelineParallel=2)]
    folder = mounts.volume / "engines" / KEYS["target"]
    for tensor, pipeline, files, words in (
        (4, 1, 4, "its tp_size is 4, and the spec has 2"),
        (2, 1, 2, "its pp_size is 1, and the spec has 2"),
        (2, 2, 3, "its rank files are rank0.engine, rank1.engine, rank2.engine, and 4 ranks"),
        (2, 2, 5, "and 4 ranks need one each"),
    ):
        for old in folder.glob("rank*"):
            old.unlink()
        split(engine(mounts.volume, "target"), tensor, pipeline, files)
        assert mounts.run() == result.PERMANENT
        assert words in told()["error"]["message"]
    (folder / "rank4.engine").unlink()
    assert mounts.run() == 0


@pytest.mark.parametrize(
    ("name", "field"), [("max_batch_size", "maxBatchSize"), ("max_seq_len", "maxSeqLen")]
)
def test_a_smaller_engine_is_refused(name: str, field: str, mounts: Mounts, told: Told) -> None:
    engine(mounts.volume, "target", **{name: 4})
    assert mounts.run() == result.PERMANENT
    assert f"its {name} is 4, below limits.{field}" in told()["error"]["message"]


def test_a_prebuilt_engine_is_a_checkpoint_without_a_manifest(mounts: Mounts, told: Told) -> None:
    built = engine(mounts.volume, "target")
    place = mounts.volume / "checkpoints" / ("c" * 64)
    place.parent.mkdir(exist_ok=True)
    built.rename(place)
    (place / "manifest.json").unlink()
    path = f"/models/checkpoints/{'c' * 64}"
    mounts.engines = [expectation("target", prebuilt=True, path=path)]
    assert mounts.run() == 0

    mounts.engines[0]["version"] = "1.2.1"
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "EngineMismatch"
    assert "prebuilt engine of the target does not fit: it was built by" in error["message"]
    (place / "config.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "EngineMissing"
    assert "will be fetched again" in error["message"]


def test_missing_checkpoint_is_an_error_if_servers_read_it(mounts: Mounts, told: Told) -> None:
    root = mounts.volume / "checkpoints"
    mounts.checkpoints = {
        role: {"path": f"/models/checkpoints/{role}", "served": role == "target"} for role in KEYS
    }
    (root / "target").mkdir(parents=True)
    assert mounts.run() == 0, "the draft's engine needs no weights any more"

    (mounts.volume / "engines" / KEYS["draft"] / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "CheckpointMissing"
    assert "checkpoint of the draft is missing" in error["message"]
    (root / "draft").mkdir()
    assert mounts.run() == result.PERMANENT
    assert told()["error"]["reason"] == "EngineMissing"

    engine(mounts.volume, "draft")
    (root / "target").rmdir()
    assert mounts.run() == result.PERMANENT
    assert "checkpoint of the target is missing" in told()["error"]["message"]


def test_vocabularies_may_differ_unless_enforced(mounts: Mounts, told: Told) -> None:
    engine(mounts.volume, "draft", vocab_size=2048)
    assert mounts.run() == result.PERMANENT
    mounts.engines = [expectation(role, sameVocabulary=False) for role in KEYS]
    assert mounts.run() == 0
    assert "repository" in told()
