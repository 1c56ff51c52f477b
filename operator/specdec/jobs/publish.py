"""Publish a model repository: `python -m specdec.jobs.publish --repository DIR ...`.

The rendered files come from a ConfigMap, the library of the BLS from this image's own package.
Before they get a final name, the engines they point at are held against what the repository
expects of them, and the library against the one the operator means: a server that finds a mismatch
at load time says so much later and less clearly.
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
from specdec.jobs import integrity, manifests, result, volume
from specdec.jobs.result import JobError, progress
from specdec.payload.serving.check_volume import foreign
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
_BUILT = "delete its directory under engines/ on the volume so that it is built again"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the repository is on the volume under its hash."""
    parser = argparse.ArgumentParser(description="Publish a model repository on the volume")
    parser.add_argument("--repository", type=Path, required=True, help="the rendered files")
    parser.add_argument("--expectations", type=Path, required=True, help="hash, files, engines")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    parser.add_argument(
        "--content", action="store_true", help="read every file, whatever its modification time"
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
    """Check the engines, put the files under `repositories/<hash>`, and list what servers read.

    Raises:
        JobError: CheckpointMissing, CheckpointDamaged, EngineMissing, EngineDamaged,
            EngineMismatch, LibraryMismatch or PublishFailed.
    """
    expected = json.loads(expectations.read_text(encoding="utf-8"))
    copies = check_library(expected.get("libraries", {}))
    folders = integrity.check(expected, root, content=content)
    check_engines(expected["engines"], root)
    progress("engines", 100)
    files: dict[str, str] = expected["files"]
    wanted = files | {path: volume.sha256(file) for path, file in copies.items()}
    copies |= {path: source / path for path in files}
    repositories = root / Path(names.REPOSITORIES).name
    repositories.mkdir(parents=True, exist_ok=True)
    final = repositories / expected["hash"]
    with volume.locked(repositories / f".lock-{expected['hash'][:32]}"):
        if not equal(final, wanted):
            _place(copies, wanted, final)
        listed = {"folders": [*folders, _listed(final, wanted)]}
        manifests.write(repositories / Path(names.manifest(expected["hash"])).name, listed)
    progress("publish", 100)
    return {"repository": {"hash": expected["hash"], "files": len(wanted)}}


def check_engines(engines: list[dict[str, Any]], root: Path) -> None:
    """Hold each engine's directory against what the repository needs.

    Raises:
        JobError: EngineMismatch, naming engine, field and values.
    """
    vocabularies = {}
    for engine in engines:
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


def check_library(wanted: Mapping[str, str]) -> dict[str, Path]:
    """The files to publish beside the rendered ones: this image's library at every wanted path.

    Args:
        wanted: by path below the repository, the digest of the sources that the operator names.

    Raises:
        JobError: LibraryMismatch, with both digests.
    """
    try:
        own = library.source() if wanted else ""
    except PlanError as error:
        raise JobError(RepositoryReason.LIBRARY_MISMATCH, f"the Job's image: {error}") from error
    for path, digest in wanted.items():
        if digest != own:
            raise JobError(
                RepositoryReason.LIBRARY_MISMATCH,
                f"{path} is to be of the sources {digest[:16]}, and that of the Job's image is of "
                f"{own[:16]}: give the operator and its Jobs the same image",
            )
    return dict.fromkeys(wanted, library.folder() / library.FILE)


def equal(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether a directory holds exactly these files (sha256 in hex by path)."""
    if not folder.is_dir() or any(foreign(folder, files)):
        return False
    return all(
        (folder / name).is_file() and volume.sha256(folder / name) == sha256
        for name, sha256 in files.items()
    )


def _listed(folder: Path, files: Mapping[str, str]) -> integrity.Folder:
    """The published repository, as a server's start compares it."""
    return {
        "what": f"the model repository {folder.name[:16]}",
        "path": f"{folder.parent.name}/{folder.name}",
        "files": manifests.stamped(folder, files),
        "exact": True,
    }


def _config(engine: Mapping[str, Any], root: Path) -> dict[str, Any]:
    try:
        config = json.loads((integrity.place(engine, root) / "config.json").read_bytes())
        # Both sections are read below; an engine without them was not built by trtllm-build.
        sections = {name: dict(config[name]) for name in ("pretrained_config", "build_config")}
    except (ValueError, KeyError, TypeError) as error:
        raise _mismatch(engine, f"its config.json cannot be read ({error!r})") from error
    return {**config, **sections}


def _check(engine: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    build, model = config["build_config"], config["pretrained_config"]
    # Heads bring their length along; the release writes it to either section.
    longest = max(_number(build, "max_draft_len"), _number(model, "max_draft_len"))
    if longest < engine["minDraftLen"]:
        raise _mismatch(
            engine, f"its max_draft_len is {longest}, below maxDraftTokens {engine['minDraftLen']}"
        )
    if config.get("version") != engine["version"]:
        raise _mismatch(
            engine, f"it was built by {config.get('version')}, and {engine['version']} serves it"
        )
    wanted = engine["speculativeDecodingMode"]
    mode = build.get("speculative_decoding_mode", 1)
    if mode not in (_MODES[wanted], wanted, wanted.upper()):
        raise _mismatch(engine, f"its speculative_decoding_mode is {mode}, not {wanted}")
    for name, field, least in (
        ("max_batch_size", "limits.maxBatchSize", engine["minBatchSize"]),
        ("max_seq_len", "limits.maxSeqLen", engine["minSeqLen"]),
    ):
        if _number(build, name) < least:
            raise _mismatch(engine, f"its {name} is {build.get(name)}, below {field} {least}")


def _check_ranks(engine: Mapping[str, Any], config: Mapping[str, Any], root: Path) -> None:
    """The split is that of the spec, and every rank has its file."""
    mapping = config["pretrained_config"].get("mapping", {})
    for name, field in (("tp_size", "tensorParallel"), ("pp_size", "pipelineParallel")):
        if mapping.get(name, 1) != engine[field]:
            raise _mismatch(
                engine, f"its {name} is {mapping.get(name, 1)}, and the spec's is {engine[field]}"
            )
    ranks = engine["tensorParallel"] * engine["pipelineParallel"]
    wanted = {f"rank{rank}.engine" for rank in range(ranks)}
    found = {path.name for path in integrity.place(engine, root).glob("rank*.engine")}
    if found != wanted:
        files = ", ".join(sorted(found)) or "none"
        raise _mismatch(engine, f"its rank files are {files}, and {ranks} ranks need one each")


def _number(section: Mapping[str, Any], name: str) -> int:
    value = section.get(name)
    return value if isinstance(value, int) else 0


def _mismatch(engine: Mapping[str, Any], what: str) -> JobError:
    if engine["prebuilt"]:
        text = f"the prebuilt engine of the {engine['role']} does not fit: {what}; "
        mend = "change the spec to the engine's values, or build another"
        return JobError(RepositoryReason.ENGINE_MISMATCH, text + mend)
    return JobError(
        RepositoryReason.ENGINE_MISMATCH,
        f"the {engine['role']} engine {engine['key'][:16]} does not fit: {what}; {_BUILT}",
    )


def _place(copies: Mapping[str, Path], files: Mapping[str, str], final: Path) -> None:
    """Copy into a hidden sibling, check every file against its sha256, rename."""
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
                "the mounted files are not those that were rendered: they changed while the Job "
                "started",
                permanent=False,
            )
        _readable(scratch)
        if final.exists():
            # Under this name, but with other content: damaged, so it makes way.
            final.rename(scratch.with_suffix(".old"))
        scratch.rename(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(scratch.with_suffix(".old"), ignore_errors=True)


def _readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        volume.sync(path)


if __name__ == "__main__":
    sys.exit(main())
