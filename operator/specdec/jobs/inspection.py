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
from specdec.jobs.checkpoint_config import number, optional_number, section
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
            return artifact_inspection.heads_configuration(folder)
    return inspect(folder, ArtifactKind.WITHOUT_WEIGHTS)


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
    heads, hidden = number(config, "num_attention_heads"), number(config, "hidden_size")
    facts = CheckpointFacts(
        architecture=checkpoint_config.architecture(config),
        vocab_size=number(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=optional_number(config, "intermediate_size"),
        layers=number(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=number(config, "num_key_value_heads", heads),
        head_dim=number(config, "head_dim", max(1, hidden // heads)),
        max_position=configuration_facts.positions(config),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32")[:16],
        tie_embeddings=config.get("tie_word_embeddings") is True,
        quantization=configuration_facts.quantization(config, _modelopt(folder)),
    )
    facts = facts.updated(configuration_facts.facts(config))
    return facts.updated(tokenizer_facts.facts(folder, config))


def _modelopt(folder: Path) -> Mapping[str, Any]:
    """What NVIDIA's quantization tool wrote; empty for a checkpoint of another tool."""
    return section(checkpoint_config.optional(folder, "hf_quant_config.json"), "quantization")
