"""Inspect a fetched directory: verify that it is complete, and read the facts about the model.

`fetch` calls `inspect` before a directory gets its final name. The facts go into the Job's result,
and the operator judges compatibility and memory by them.
"""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs import (
    artifact_inspection,
    checkpoint_config,
    configuration_facts,
    tokenizer_facts,
    weights,
)
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.checkpoint_config import Config, section
from specdec.jobs.result import JobError
from specdec.jobs.weights import corrupt

_INDEX = "model.safetensors.index.json"


def inspect(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> CheckpointFacts:
    """The facts of an artifact.

    Raises:
        JobError: CheckpointCorrupt.
    """
    inspectors = {
        ArtifactKind.CHECKPOINT: _checkpoint,
        ArtifactKind.WITHOUT_WEIGHTS: _without_weights,
        ArtifactKind.HEADS: artifact_inspection.heads,
        ArtifactKind.ENGINE: artifact_inspection.engine,
    }
    with _refused():
        return inspectors[kind](folder)


def configuration(folder: Path, kind: ArtifactKind) -> CheckpointFacts:
    """The facts that configuration and tokenizer state, before any weights are there.

    Those of a checkpoint are complete except for `parameters`. Those of heads lack what only the
    tensors show: their method, and the sizes of Medusa heads. An engine has none.

    Raises:
        JobError: CheckpointCorrupt.
    """
    if kind is ArtifactKind.ENGINE:
        return NO_FACTS
    if kind is ArtifactKind.HEADS:
        with _refused():
            return artifact_inspection.stated(checkpoint_config.read(folder, "config.json"))
    return inspect(folder, ArtifactKind.WITHOUT_WEIGHTS)


def stated(config: Config, kind: ArtifactKind, beside: Path | None) -> CheckpointFacts:
    """The facts that a configuration states, without the weights.

    Args:
        config: of `config.json`.
        kind: of the artifact; an engine has no such facts.
        beside: the folder with its other small files; None without one.

    Raises:
        JobError: CheckpointCorrupt.
    """
    with _refused():
        if kind is ArtifactKind.ENGINE:
            return NO_FACTS
        if kind is ArtifactKind.HEADS:
            return artifact_inspection.stated(config)
        facts = configuration_facts.checkpoint(config, _modelopt(beside) if beside else {})
        known = beside is not None and tokenizer_facts.exist(beside)
        if beside is None or not known:
            return facts.updated(tokenizer_facts.special(config))
        return facts.updated(tokenizer_facts.facts(beside, config))


@contextmanager
def _refused() -> Iterator[None]:
    """Turn what files of strangers cause into CheckpointCorrupt: the same files fail again."""
    try:
        yield
    except (JobError, OSError):
        raise
    except Exception as error:
        traceback.print_exc()
        raise corrupt(f"its files cannot be inspected ({type(error).__name__})") from error


def _checkpoint(folder: Path) -> CheckpointFacts:
    facts = _without_weights(folder)
    index = checkpoint_config.read(folder, _INDEX) if (folder / _INDEX).is_file() else None
    counted = weights.parameters(weights.shapes(folder, index))
    return facts.updated(CheckpointFacts(parameters=counted))


def _without_weights(folder: Path) -> CheckpointFacts:
    config = checkpoint_config.read(folder, "config.json")
    facts = configuration_facts.checkpoint(config, _modelopt(folder))
    return facts.updated(tokenizer_facts.facts(folder, config))


def _modelopt(folder: Path) -> Mapping[str, Any]:
    """What NVIDIA's quantization tool wrote; empty for a checkpoint of another tool."""
    return section(checkpoint_config.optional(folder, "hf_quant_config.json"), "quantization")
