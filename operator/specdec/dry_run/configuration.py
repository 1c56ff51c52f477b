"""Read a model's sizes from its `config.json`, without the checkpoint's weights.

`plan` calls it for `--checkpoint ROLE=config.json`. The memory plan needs nothing else.
"""

import json
from pathlib import Path
from typing import Any

from specdec.dry_run.resource import InputError

# The fetch Job's names of facts, by the key of a Hugging Face configuration.
_SIZES = {
    "vocab_size": "vocabSize",
    "hidden_size": "hiddenSize",
    "intermediate_size": "intermediateSize",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kvHeads",
    "head_dim": "headDim",
}
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".nemo"})
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


def facts(path: Path) -> dict[str, Any]:
    """The facts for the memory plan.

    Raises:
        InputError: the file is not a valid configuration.
    """
    config = read(path)
    result: dict[str, Any] = {}
    for key, name in _SIZES.items():
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SIZE:
            raise InputError(f"{path}: {key} is {str(value)[:40]!r}, not a positive number")
        result[name] = value
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        result["architecture"] = str(architectures[0])[:80]
    return {**result, "tieEmbeddings": config.get("tie_word_embeddings") is True}
