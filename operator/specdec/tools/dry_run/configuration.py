"""Read a model's sizes from its `config.json`, without the checkpoint's weights.

`plan` calls it for `--checkpoint ROLE=config.json`. The memory plan needs nothing else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.backends.checkpoint_sizes import AUTO_BYTES, FILE_BYTES, sizes_of
from specdec.backends.facts import Checkpoint
from specdec.jobs import artifact_inspection, configuration_facts
from specdec.tools.dry_run.resource import InputError

_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".nemo"})
# Bytes of a parameter in the files of a quantized checkpoint, with its scales, by the start of the
# name that the quantization tool wrote. A name that is not here counts with 16 bits.
_QUANTIZED = {"fp8": 1.0, "nvfp4": 0.5625, "w4a8": 0.53, "int4": 0.53, "awq": 0.53, "gptq": 0.53}
# Far above any real size, and small enough for fast arithmetic.
_MAX_SIZE = 10**9


def file(path: Path) -> Path:
    """The configuration in a folder without weights; any other path as it is."""
    config = path / "config.json"
    has_weights = any(entry.suffix in _WEIGHTS for entry in path.glob("*"))
    return config if config.is_file() and not has_weights else path


def read(path: Path) -> dict[str, Any]:
    """A configuration, by its file or its folder.

    Raises:
        InputError: the file is not a valid configuration.
    """
    place = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(place.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{place} is not a valid config.json ({error}): name the file of a checkpoint"
        ) from error
    if not isinstance(config, dict):
        raise InputError(f"{place} is not a valid config.json: it is not a JSON object")
    return config


def facts(path: Path) -> CheckpointFacts:
    """The facts for the memory plan.

    Raises:
        InputError: the file is not a valid configuration.
    """
    config = read(path)
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    dtype = config.get("dtype") or config.get("torch_dtype")
    positions = _size(path, config, "max_position_embeddings")
    result = CheckpointFacts(
        architecture=str(first)[:80] or None,
        vocab_size=_size(path, config, "vocab_size"),
        hidden_size=_size(path, config, "hidden_size"),
        intermediate_size=_size(path, config, "intermediate_size"),
        layers=_size(path, config, "num_hidden_layers"),
        heads=_size(path, config, "num_attention_heads"),
        kv_heads=_size(path, config, "num_key_value_heads"),
        head_dim=_size(path, config, "head_dim"),
        max_position=positions and configuration_facts.positions(config),
        dtype=str(dtype)[:16] if dtype else None,
        parameters=configuration_facts.parameters(config),
        quantization=configuration_facts.quantization(config, {}),
        tie_embeddings=config.get("tie_word_embeddings") is True,
    )
    result = result.updated(configuration_facts.facts(config))
    result = result.updated(artifact_inspection.block_draft(config))
    if result.quantization is not None and result.parameters is None:
        # The estimated bytes of a quantized checkpoint do not show its number of parameters.
        sizes = sizes_of(Checkpoint("", "", "", 0, result), None)
        result = result.model_copy(update={"parameters": sizes.parameters}) if sizes else result
    return result


def _size(path: Path, config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SIZE:
        raise InputError(f"{path}: {key} is {str(value)[:40]!r}, not a positive number")
    return value


def stored_bytes(role: str, facts: CheckpointFacts) -> int:
    """The estimated bytes of a checkpoint's files, from its configuration; 0 if not known.

    Embedding and output projection are never quantized.
    """
    sizes = sizes_of(Checkpoint(role, "", "", 0, facts), None)
    if sizes is None:
        return 0
    own = FILE_BYTES.get(facts.dtype or "", AUTO_BYTES)
    name = (facts.quantization or "").lower()
    body = next((size for start, size in _QUANTIZED.items() if name.startswith(start)), own)
    return int(sizes.body * body + (sizes.parameters - sizes.body) * own)
