"""Look at a checkpoint directory: is it whole, can it be built, and the small facts about it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.matrix import architectures
from specdec.api.reasons import FetchReason
from specdec.jobs import artifact_inspection, checkpoint_config, tokenizer_facts, weights
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.checkpoint_config import number, part, whole, word
from specdec.jobs.result import JobError

_INDEX = "model.safetensors.index.json"


def inspect(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> dict[str, Any]:
    """The facts that compatibility and memory are judged by.

    Returns:
        Of a checkpoint: architecture, vocabSize, hiddenSize, intermediateSize, layers, heads,
        kvHeads, headDim, maxPosition (tokens, stretched as its rotary scaling says), dtype,
        parameters (numbers in its weights), tieEmbeddings, quantization, and those of
        `tokens.facts`; without weights no parameters. Of the other kinds those of `parts.heads`
        and `parts.engine`. What the files do not tell is left out.

    Raises:
        JobError: CheckpointCorrupt or UnsupportedArchitecture.
    """
    look = {
        ArtifactKind.CHECKPOINT: _checkpoint,
        ArtifactKind.WITHOUT_WEIGHTS: _without_weights,
        ArtifactKind.HEADS: artifact_inspection.heads,
        ArtifactKind.ENGINE: artifact_inspection.engine,
    }
    return {key: value for key, value in look[kind](folder).items() if value is not None}


def _checkpoint(folder: Path) -> dict[str, Any]:
    found = _without_weights(folder)
    index = checkpoint_config.read(folder, _INDEX) if (folder / _INDEX).is_file() else None
    return {**found, "parameters": weights.parameters(weights.shapes(folder, index))}


def _without_weights(folder: Path) -> dict[str, Any]:
    config = checkpoint_config.read(folder, "config.json")
    architecture = checkpoint_config.architecture(config)
    if architecture not in architectures():
        raise JobError(
            FetchReason.UNSUPPORTED_ARCHITECTURE,
            f"the checkpoint's architecture is {architecture} and this release builds "
            f"{', '.join(sorted(architectures()))}: choose another checkpoint",
        )
    heads, hidden = number(config, "num_attention_heads"), number(config, "hidden_size")
    return {
        "architecture": architecture,
        "vocabSize": number(config, "vocab_size"),
        "hiddenSize": hidden,
        "intermediateSize": whole(config, "intermediate_size"),
        "layers": number(config, "num_hidden_layers"),
        "heads": heads,
        "kvHeads": number(config, "num_key_value_heads", heads),
        "headDim": number(config, "head_dim", max(1, hidden // heads)),
        "maxPosition": _positions(config),
        "dtype": str(config.get("dtype") or config.get("torch_dtype") or "float32")[:16],
        "tieEmbeddings": config.get("tie_word_embeddings") is True,
        "quantization": _quantization(folder, config),
        **tokenizer_facts.facts(folder, config),
    }


def _positions(config: Mapping[str, Any]) -> int:
    """Positions it was made for: with a stretched rotary embedding, those after stretching."""
    positions, scaling = number(config, "max_position_embeddings"), part(config, "rope_scaling")
    kind = scaling.get("rope_type") or scaling.get("type")
    factor = scaling.get("factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1024:
        return positions
    original = whole(scaling, "original_max_position_embeddings")
    if original is not None:
        return max(positions, int(original * factor))
    # These two leave max_position_embeddings at what it was before.
    return int(positions * factor) if kind in ("linear", "dynamic") else positions


def _quantization(folder: Path, config: Mapping[str, Any]) -> str | None:
    """How the weights are quantized already, in the words of the tool that did it."""
    modelopt = part(checkpoint_config.optional(folder, "hf_quant_config.json"), "quantization")
    own = part(config, "quantization_config")
    return word(modelopt.get("quant_algo")) or word(
        own.get("quant_algo") or own.get("quant_method")
    )
