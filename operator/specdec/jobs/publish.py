"""Publish a model repository on the volume: `python -m specdec.jobs.publish --repository DIR ...`.

The operator's publish Job runs this program. The rendered files come from a ConfigMap, and the BLS
library from this image. Before the repository gets its final name, the engines are compared with
what the repository expects, and the library with the digest that the operator expects. A server
would report such a mismatch later, at load time, and less clearly.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.reasons import RepositoryReason
from specdec.images.serving.check_volume import foreign, named
from specdec.jobs import integrity, manifests, result, volume
from specdec.jobs.checkpoint_config import draft_length
from specdec.jobs.result import JobError, progress
from specdec.triton import library
from specdec.triton.plan import PlanError

# TensorRT-LLM writes the mode as a number; the names are those of trtllm-build.
_MODES = {
    "none": 1,
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}
_REBUILD = "delete its directory under engines/ on the volume so that it is built again"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if the repository is published."""
    parser = argparse.ArgumentParser(description="Publish a model repository on the volume")
    parser.add_argument("--repository", type=Path, required=True, help="the rendered files")
    parser.add_argument("--expectations", type=Path, required=True, help="hash, files, engines")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    parser.add_argument(
        "--content",
        action="store_true",
        help="read every file, regardless of its modification time",
    )
    options = parser.parse_args(arguments)
    return result.run(
        lambda: publish(
            options.repository, options.expectations, options.volume, content=options.content
        ),
        RepositoryReason.PUBLISH_FAILED,
    )


def publish(
    source: Path, expectations: Path, root: Path, *, content: bool = False
) -> dict[str, Any]:
    """Check the engines, copy the files to `repositories/<hash>`, and write the manifest.

    Args:
        source: directory with the rendered files.
        expectations: JSON file with hash, files, engines, checkpoints and libraries.
        root: of the volume.
        content: read every file, regardless of its modification time.

    Raises:
        JobError: CheckpointMissing, CheckpointDamaged, EngineMissing, EngineDamaged,
            EngineUnreadable, EngineMismatch, LibraryMismatch or PublishFailed.
    """
    expected = json.loads(expectations.read_text(encoding="utf-8"))
    copies = check_library(expected.get("libraries", {}))
    folders = integrity.check(expected, root, content=content)
    check_engines(expected["engines"], root)
    progress("engines", 100)
    files: dict[str, str] = expected["files"]
    desired = files | {path: volume.sha256(file) for path, file in copies.items()}
    copies |= {path: source / path for path in files}
    repositories = root / Path(names.REPOSITORIES).name
    repositories.mkdir(parents=True, exist_ok=True)
    final = repositories / expected["hash"]
    with volume.locked(repositories / f".lock-{expected['hash'][:32]}"):
        if not equal(final, desired):
            _copy(copies, desired, final)
        listed = {"folders": [*folders, _manifest_entry(final, desired)]}
        manifests.write(repositories / Path(names.manifest(expected["hash"])).name, listed)
    progress("publish", 100)
    return {"repository": {"hash": expected["hash"], "files": len(desired)}}


def check_engines(engines: list[dict[str, Any]], root: Path) -> None:
    """Compare each engine's configuration with what the repository needs.

    Raises:
        JobError: EngineMismatch, naming engine, field and values; EngineUnreadable.
    """
    vocabularies = {}
    for engine in engines:
        with integrity.readable_engine(engine):
            config = _config(engine, root)
            _check(engine, config)
            _check_ranks(engine, config, root)
        if engine["sameVocabulary"]:
            vocabularies[engine["role"]] = config["pretrained_config"].get("vocab_size")
    if len(set(vocabularies.values())) > 1:
        sizes = ", ".join(f"{role} {size}" for role, size in vocabularies.items())
        raise JobError(
            RepositoryReason.ENGINE_MISMATCH,
            f"the engines' vocabularies differ ({sizes}): choose a draft with the target's "
            "vocabulary",
        )


def check_library(desired: Mapping[str, str]) -> dict[str, Path]:
    """Compare this image's BLS library with the desired digests; return the file for each path.

    Args:
        desired: by path below the repository, the digest of the library's sources.

    Raises:
        JobError: LibraryMismatch, with both digests.
    """
    if not desired:
        return {}
    try:
        file, actual = library.file(), library.source_digest()
    except PlanError as error:
        raise JobError(RepositoryReason.LIBRARY_MISMATCH, f"the Job's image: {error}") from error
    for path, digest in desired.items():
        if digest != actual:
            raise JobError(
                RepositoryReason.LIBRARY_MISMATCH,
                f"{path} must be built from the sources {digest[:16]}, and the Job's image has a "
                f"library of {actual[:16]}: give the operator and its Jobs the same image",
            )
    return dict.fromkeys(desired, file)


def equal(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether a directory holds exactly these files (sha256 in hex by path)."""
    if not folder.is_dir() or any(foreign(folder, files)):
        return False
    return all(
        (folder / name).is_file() and volume.sha256(folder / name) == sha256
        for name, sha256 in files.items()
    )


def _manifest_entry(folder: Path, files: Mapping[str, str]) -> integrity.Folder:
    """The manifest entry of the published repository, which a server compares at start."""
    return {
        "what": f"the model repository {folder.name[:16]}",
        "path": f"{folder.parent.name}/{folder.name}",
        "files": manifests.stamped(folder, files),
        "exact": True,
    }


def _config(engine: Mapping[str, Any], root: Path) -> dict[str, Any]:
    file = integrity.directory(engine, root) / "config.json"
    try:
        with named(file):
            config = json.loads(file.read_bytes())
        # trtllm-build writes both sections, and the checks below read them.
        sections = {name: dict(config[name]) for name in ("pretrained_config", "build_config")}
    except (ValueError, KeyError, TypeError) as error:
        raise _mismatch(engine, f"its config.json cannot be read ({error!r})") from error
    return {**config, **sections}


def _check(engine: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    build, model = config["build_config"], config["pretrained_config"]
    drafts = draft_length(model, build)
    if drafts < engine["minDraftLen"]:
        raise _mismatch(
            engine, f"its max_draft_len is {drafts}, below maxDraftTokens {engine['minDraftLen']}"
        )
    if config.get("version") != engine["version"]:
        raise _mismatch(
            engine,
            f"it was built by {config.get('version')}, and the server has {engine['version']}",
        )
    desired = engine["speculativeDecodingMode"]
    mode = build.get("speculative_decoding_mode", 1)
    if mode not in (_MODES[desired], desired, desired.upper()):
        raise _mismatch(engine, f"its speculative_decoding_mode is {mode}, not {desired}")
    for name, field, minimum in (
        ("max_batch_size", "limits.maxBatchSize", engine["minBatchSize"]),
        ("max_seq_len", "limits.maxSeqLen", engine["minSeqLen"]),
    ):
        if _number(build, name) < minimum:
            raise _mismatch(engine, f"its {name} is {build.get(name)}, below {field} {minimum}")
    _check_room(engine, _number(build, "max_seq_len"), drafts)


def _check_room(engine: Mapping[str, Any], longest: int, drafts: int) -> None:
    """Check that sequences reach the user's limit.

    The executor keeps the draft length free at the end of a sequence. If an answer is shorter for
    this reason, the executor only logs it.
    """
    limit = engine["minSeqLen"]
    if longest - drafts < limit:
        raise _mismatch(
            engine,
            f"its max_seq_len is {longest} and its max_draft_len {drafts}, so sequences end at "
            f"{longest - drafts} tokens, below limits.maxSeqLen {limit} (for that much it needs "
            f"max_seq_len {limit + drafts})",
        )


def _check_ranks(engine: Mapping[str, Any], config: Mapping[str, Any], root: Path) -> None:
    """Check tensor and pipeline parallelism against the spec, and that each rank has its file."""
    mapping = config["pretrained_config"].get("mapping", {})
    for name, field in (("tp_size", "tensorParallel"), ("pp_size", "pipelineParallel")):
        if mapping.get(name, 1) != engine[field]:
            raise _mismatch(
                engine, f"its {name} is {mapping.get(name, 1)}, and the spec has {engine[field]}"
            )
    ranks = engine["tensorParallel"] * engine["pipelineParallel"]
    desired = {f"rank{rank}.engine" for rank in range(ranks)}
    actual = {path.name for path in integrity.directory(engine, root).glob("rank*.engine")}
    if actual != desired:
        files = ", ".join(sorted(actual)) or "none"
        raise _mismatch(engine, f"its rank files are {files}, and {ranks} ranks need one each")


def _number(section: Mapping[str, Any], name: str) -> int:
    value = section.get(name)
    return value if isinstance(value, int) else 0


def _mismatch(engine: Mapping[str, Any], difference: str) -> JobError:
    if engine["prebuilt"]:
        message = f"the prebuilt engine of the {engine['role']} does not fit: {difference}; "
        resolution = "change the spec to the engine's values, or build another engine"
        return JobError(RepositoryReason.ENGINE_MISMATCH, message + resolution)
    return JobError(
        RepositoryReason.ENGINE_MISMATCH,
        f"the {engine['role']} engine {engine['key'][:16]} does not fit: {difference}; {_REBUILD}",
    )


def _copy(copies: Mapping[str, Path], files: Mapping[str, str], final: Path) -> None:
    """Copy the files to a hidden sibling directory, verify their SHA-256, then rename it."""
    for stale in final.parent.glob(f".{final.name}.*"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
    try:
        for path, source in copies.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        if not equal(scratch, files):
            raise JobError(
                RepositoryReason.PUBLISH_FAILED,
                "the mounted files differ from the rendered ones, because they changed while the "
                "Job started: the Job will be retried",
                permanent=False,
            )
        _make_readable(scratch)
        if final.exists():
            # A directory with this name and other content is damaged, so it is replaced.
            final.rename(scratch.with_suffix(".old"))
        scratch.rename(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(scratch.with_suffix(".old"), ignore_errors=True)


def _make_readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        volume.sync(path)


if __name__ == "__main__":
    sys.exit(main())
