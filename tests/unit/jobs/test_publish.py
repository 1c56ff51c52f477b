"""The publish Job publishes only complete repositories with matching engines."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import publish, result
from unit.jobs.mounts import FILES, KEYS, Mounts, engine, expectation
from unit.jobs.termination import read_result


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    return Mounts(tmp_path, volume)


def test_all_files_are_published(mounts: Mounts) -> None:
    assert mounts.run() == 0
    assert read_result() == {"repository": {"hash": "f" * 64, "files": 2}}
    folder = mounts.volume / "repositories" / ("f" * 64)
    for path, text in FILES.items():
        assert (folder / path).read_text() == text
    assert (folder / "ensemble" / "config.pbtxt").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755


def test_publishing_twice_changes_nothing(mounts: Mounts) -> None:
    assert mounts.run() == 0
    folder = mounts.volume / "repositories" / ("f" * 64)
    before = folder.stat().st_ino
    assert mounts.run() == 0
    assert folder.stat().st_ino == before
    assert read_result()["repository"]["files"] == 2


def test_damaged_repository_is_replaced(mounts: Mounts) -> None:
    folder = mounts.volume / "repositories" / ("f" * 64)
    folder.mkdir(parents=True)
    (folder / "stray").touch()
    stale = folder.with_name("." + "f" * 64 + ".x.tmp")
    stale.mkdir()
    assert mounts.run() == 0
    assert not (folder / "stray").exists()
    assert not stale.exists()
    assert read_result()["repository"]["files"] == 2


def test_missing_engine_is_reported(mounts: Mounts) -> None:
    (mounts.volume / "engines" / KEYS["draft"] / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "EngineMissing"
    assert "draft engine bbbbbbbbbbbbbbbb" in error["message"]
    assert mounts.published == []


MISMATCHES = [
    ({"max_draft_len": 7}, "max_draft_len is 7, below maxDraftTokens 8"),
    ({"speculative_decoding_mode": 1}, "speculative_decoding_mode is 1"),
    ({"vocab_size": 32000}, "target 32000, draft 1024"),
]


@pytest.mark.parametrize(("build", "message"), MISMATCHES)
def test_engine_that_does_not_match_is_refused(
    build: dict[str, Any], message: str, mounts: Mounts
) -> None:
    engine(mounts.volume, "target", **build)
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "EngineMismatch"
    assert message in error["message"]
    assert mounts.published == []


def test_engine_of_another_version_is_refused(mounts: Mounts) -> None:
    mounts.engines = [expectation("target", version="0.18.0")]
    assert mounts.run() == result.PERMANENT
    assert "built by 0.19.0, and the server has 0.18.0" in read_result()["error"]["message"]


@pytest.mark.parametrize("mode", [2, "draft_tokens_external", "DRAFT_TOKENS_EXTERNAL"])
def test_every_spelling_of_a_mode_is_accepted(mode: Any, mounts: Mounts) -> None:
    engine(mounts.volume, "target", speculative_decoding_mode=mode)
    assert mounts.run() == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "0.19.0"}'])
def test_unreadable_engine_config_is_refused(text: str, mounts: Mounts) -> None:
    (mounts.volume / "engines" / KEYS["target"] / "config.json").write_text(text)
    assert mounts.run() == result.PERMANENT
    assert read_result()["error"]["reason"] == "EngineMismatch"


def test_files_that_change_during_the_copy_are_not_published(
    mounts: Mounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alter(source: Path, target: Path) -> None:
        Path(target).write_text(Path(source).read_text() + "more")

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", alter)
    assert mounts.run() == result.TRANSIENT
    assert read_result()["error"]["reason"] == "PublishFailed"
    assert mounts.published == []


def test_full_volume_leaves_nothing(mounts: Mounts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", full)
    assert mounts.run() == result.TRANSIENT
    assert read_result()["error"]["reason"] == "VolumeFull"
    leftovers = [p for p in (mounts.volume / "repositories").iterdir() if p.is_dir()]
    assert leftovers == []


def test_missing_mount_is_reported_in_one_sentence(mounts: Mounts) -> None:
    arguments = ["--repository", "/nowhere", "--expectations", "/nowhere/e.json"]
    assert publish.main([*arguments, "--volume", str(mounts.volume)]) == result.TRANSIENT
    assert read_result()["error"]["reason"] == "PublishFailed"


@pytest.mark.parametrize(
    ("mode", "number"),
    [("medusa", 4), ("lookahead_decoding", 8), ("explicit_draft_tokens", 16), ("eagle", 32)],
)
def test_every_mode_is_recognized_by_its_number(mode: str, number: int, mounts: Mounts) -> None:
    mounts.engines = [expectation("target", speculativeDecodingMode=mode)]
    engine(mounts.volume, "target", speculative_decoding_mode=number)
    assert mounts.run() == 0
    assert "repository" in read_result()
    engine(mounts.volume, "target", speculative_decoding_mode=1)
    assert mounts.run() == result.PERMANENT
    assert f"is 1, not {mode}" in read_result()["error"]["message"]


def split(folder: Path, tensor: int, pipeline: int, files: int) -> None:
    """Set the parallel sizes of an engine's configuration and add rank files."""
    config = json.loads((folder / "config.json").read_text())
    world = tensor * pipeline
    mapping = {"tp_size": tensor, "pp_size": pipeline, "world_size": world}
    config["pretrained_config"]["mapping"] = mapping
    # Engines with draft heads have their draft length in this section.
    config["pretrained_config"]["max_draft_len"] = config["build_config"].pop("max_draft_len")
    (folder / "config.json").write_text(json.dumps(config))
    for rank in range(files):
        (folder / f"rank{rank}.engine").touch()


def test_ranks_and_rank_files_must_match_the_spec(mounts: Mounts) -> None:
    mounts.engines = [expectation("target", tensorParallel=2, pipelineParallel=2)]
    folder = mounts.volume / "engines" / KEYS["target"]
    for tensor, pipeline, files, message in (
        (4, 1, 4, "its tp_size is 4, and the spec has 2"),
        (2, 1, 2, "its pp_size is 1, and the spec has 2"),
        (2, 2, 3, "its rank files are rank0.engine, rank1.engine, rank2.engine, and 4 ranks"),
        (2, 2, 5, "and 4 ranks need one each"),
    ):
        for old in folder.glob("rank*"):
            old.unlink()
        split(engine(mounts.volume, "target"), tensor, pipeline, files)
        assert mounts.run() == result.PERMANENT
        assert message in read_result()["error"]["message"]
    (folder / "rank4.engine").unlink()
    assert mounts.run() == 0


@pytest.mark.parametrize(
    ("name", "field"), [("max_batch_size", "maxBatchSize"), ("max_seq_len", "maxSeqLen")]
)
def test_smaller_engine_is_refused(name: str, field: str, mounts: Mounts) -> None:
    engine(mounts.volume, "target", **{name: 4})
    assert mounts.run() == result.PERMANENT
    assert f"its {name} is 4, below limits.{field}" in read_result()["error"]["message"]


BEAMS = {"redrafter_num_beams": 5, "redrafter_draft_len_per_beam": 5}


@pytest.mark.parametrize(
    ("build", "model", "drafts"),
    [
        ({}, {}, 8),
        ({"max_draft_len": 20}, {}, 20),
        ({}, {"max_draft_len": 63}, 63),
        ({}, BEAMS, 25),
    ],
)
@pytest.mark.parametrize("built_elsewhere", [True, False], ids=["prebuilt", "built"])
def test_engine_without_room_for_its_drafts_is_refused(
    build: dict[str, Any],
    model: dict[str, Any],
    drafts: int,
    built_elsewhere: bool,
    mounts: Mounts,
) -> None:
    """The executor always reserves the engine's draft length, whatever the spec sets."""
    mounts.engines = [expectation("target", prebuilt=built_elsewhere)]
    folder = engine(mounts.volume, "target", **build)
    if built_elsewhere:
        mounts.engines[0]["path"] = f"/models/checkpoints/{'c' * 64}"
        place = mounts.volume / "checkpoints" / ("c" * 64)
        place.parent.mkdir(exist_ok=True)
        folder = folder.rename(place)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_config"] |= model

    def publish_with(longest: int) -> int:
        config["build_config"]["max_seq_len"] = longest
        (folder / "config.json").write_text(json.dumps(config))
        return mounts.run()

    assert publish_with(512 + drafts - 1) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "EngineMismatch"
    assert (
        f"its max_seq_len is {512 + drafts - 1} and its max_draft_len {drafts}, so sequences end "
        f"at 511 tokens, below limits.maxSeqLen 512 (for that much it needs max_seq_len "
        f"{512 + drafts})"
    ) in error["message"]
    assert publish_with(512 + drafts) == 0


def test_prebuilt_engine_is_a_checkpoint_without_a_manifest(mounts: Mounts) -> None:
    built = engine(mounts.volume, "target")
    prebuilt = mounts.volume / "checkpoints" / ("c" * 64)
    prebuilt.parent.mkdir(exist_ok=True)
    built.rename(prebuilt)
    (prebuilt / "manifest.json").unlink()
    path = f"/models/checkpoints/{'c' * 64}"
    mounts.engines = [expectation("target", prebuilt=True, path=path)]
    assert mounts.run() == 0

    mounts.engines[0]["version"] = "1.2.1"
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "EngineMismatch"
    assert "prebuilt engine of the target does not fit: it was built by" in error["message"]
    (prebuilt / "config.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "EngineMissing"
    assert "will be fetched again" in error["message"]


def test_missing_checkpoint_is_an_error_if_servers_read_it(mounts: Mounts) -> None:
    root = mounts.volume / "checkpoints"
    mounts.checkpoints = {
        role: {"path": f"/models/checkpoints/{role}", "served": role == "target"} for role in KEYS
    }
    (root / "target").mkdir(parents=True)
    assert mounts.run() == 0, "the draft's engine needs no weights any more"

    (mounts.volume / "engines" / KEYS["draft"] / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointMissing"
    assert "checkpoint of the draft is missing" in error["message"]
    (root / "draft").mkdir()
    assert mounts.run() == result.PERMANENT
    assert read_result()["error"]["reason"] == "EngineMissing"

    engine(mounts.volume, "draft")
    (root / "target").rmdir()
    assert mounts.run() == result.PERMANENT
    assert "checkpoint of the target is missing" in read_result()["error"]["message"]


def test_vocabularies_may_differ_unless_enforced(mounts: Mounts) -> None:
    engine(mounts.volume, "draft", vocab_size=2048)
    assert mounts.run() == result.PERMANENT
    mounts.engines = [expectation(role, sameVocabulary=False) for role in KEYS]
    assert mounts.run() == 0
    assert "repository" in read_result()
