"""Bring checkpoints to the volume: the work of the fetch Job.

The Job runs `specdec.pipeline.validation.fetch_job`, which adds the rules on checkpoints. Each
checkpoint is stored in `checkpoints/<digest>`, by the digest of its content, so equal checkpoints
from different sources are stored once. Files are collected in a hidden directory, which the next
Job resumes after a failure. The directory gets its final name only when it is complete and
inspected.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts, Fetched
from specdec.api.networks import Networks
from specdec.api.reasons import FetchReason
from specdec.jobs import (
    claim_artifact,
    remote_artifact,
    result,
    tokenizer_difference,
    volume,
)
from specdec.jobs.artifact import Artifact
from specdec.jobs.artifact_kind import ArtifactKind

_MAX_ENGINES_REPORTED = 60
_PUBLIC = Networks()
# Gets the plan and the facts of the configurations by role; raises JobError to refuse them.
Judge = Callable[[Mapping[str, Any], Mapping[str, CheckpointFacts]], None]


def _accept(plan: Mapping[str, Any], facts: Mapping[str, CheckpointFacts]) -> None:
    """Refuse nothing."""
    del plan, facts


def main(arguments: list[str] | None = None, judge: Judge = _accept) -> int:
    """Run the command line; the exit code is 0 if all checkpoints are on the volume.

    `judge` may refuse the facts of the configurations before any weights are downloaded.
    """
    parser = argparse.ArgumentParser(description="Copy checkpoints to the volume")
    parser.add_argument("--plan", required=True, help="sources by role, as JSON")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    parser.add_argument("--sources", type=Path, default=Path("/sources"))
    parser.add_argument(
        "--allow", action="append", default=[], help="additional allowed network (CIDR)"
    )
    options = parser.parse_args(arguments)
    plan, networks = json.loads(options.plan), Networks.parse(options.allow)
    return result.run(
        lambda: fetch(plan, options.volume, options.sources, networks, judge),
        FetchReason.FETCH_FAILED,
    )


def fetch(
    plan: Mapping[str, Any],
    root: Path,
    mounts: Path,
    networks: Networks = _PUBLIC,
    judge: Judge = _accept,
) -> dict[str, Any]:
    """Fetch and inspect every source of the plan.

    Configuration and tokenizer of every source come first. Only if `judge` accepts them, and the
    volume has room for everything, are the weights downloaded.

    Args:
        plan: sources by role.
        root: of the volume.
        mounts: directory with a mounted claim per role, for sources of kind `pvc`.
        networks: addresses that sources may use in addition to public ones.
        judge: gets the plan, and the facts of the configurations by role.

    Raises:
        JobError: a source is not available, or is no checkpoint that this release can build; or
            the error of `judge`.
    """
    checkpoints = root / Path(names.CHECKPOINTS).name
    checkpoints.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        artifacts = {
            role: stack.enter_context(_opened(plan, role, root, mounts, networks))
            for role in plan["models"]
        }
        configurations = tokenizer_difference.compared(
            {role: item.configuration() for role, item in artifacts.items()},
            {role: item.files() for role, item in artifacts.items()},
        )
        # Without any facts, only heads can be judged: by the target that they are for.
        known = {r: f for r, f in configurations.items() if f != NO_FACTS or r == "heads"}
        judge(plan, known)
        # Equal content is stored once.
        needed = dict(item.space() for item in artifacts.values())
        volume.require_space(checkpoints, sum(needed.values()))
        models = {
            role: _with_differences(item.complete(), configurations[role]).shown()
            for role, item in artifacts.items()
        }
    return {"models": models, "engines": engines(root)}


def _with_differences(fetched: Fetched, configuration: CheckpointFacts) -> Fetched:
    """The result of a source, with the differences of its tokenizer from the target's."""
    facts = ("compared_tokenizer", "token_differences", "first_difference")
    differences = CheckpointFacts(**{name: getattr(configuration, name) for name in facts})
    return fetched.model_copy(update={"facts": fetched.facts.updated(differences)})


def engines(root: Path) -> list[str]:
    """The first 16 hex digits of the keys of the newest complete engines, newest first."""
    folder = root / Path(names.ENGINES).name
    complete = [
        path.parent
        for path in folder.glob("*/manifest.json")
        if not path.parent.name.startswith(".")
    ]
    newest = sorted(complete, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.name[:16] for path in newest[:_MAX_ENGINES_REPORTED]]


@contextmanager
def _opened(
    plan: Mapping[str, Any], role: str, root: Path, mounts: Path, networks: Networks
) -> Iterator[Artifact]:
    """Open the source of a role."""
    source, checkpoints = plan["models"][role], root / Path(names.CHECKPOINTS).name
    kind = ArtifactKind.of(role, plan.get("withoutWeights", ()))
    if "pvc" not in source:
        with remote_artifact.opened(role, kind, source, checkpoints, networks) as artifact:
            yield artifact
        return
    in_place = role in plan.get("inPlace", ())
    mount = root if in_place else mounts / role
    yield claim_artifact.opened(role, kind, source["pvc"], checkpoints, mount, in_place=in_place)
