"""A model's sizes from nothing but its `config.json`, before anything was downloaded."""

import json
from pathlib import Path
from typing import Any

from specdec.dry_run.resource import InputError

# Facts as the fetch Job names them, by the key of a Hugging Face configuration.
_SIZES = {
    "vocab_size": "vocabSize",
    "hidden_size": "hiddenSize",
    "intermediate_size": "intermediateSize",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kvHeads",
    "head_dim": "headDim",
}
# Far above any real size, and far below what arithmetic on it would choke on.
_MOST = 10**9


def facts(path: Path) -> dict[str, Any]:
    """The sizes that memory is planned with.

    Raises:
        InputError: not a configuration.
    """
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no config.json ({error})") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is no config.json: it holds no JSON object")
    found: dict[str, Any] = {}
    for key, name in _SIZES.items():
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise InputError(f"{path}: {key} is {str(value)[:40]!r}, not a positive number")
        found[name] = value
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        found["architecture"] = str(architectures[0])[:80]
    return {**found, "tieEmbeddings": config.get("tie_word_embeddings") is True}
