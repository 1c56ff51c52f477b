"""Look at a checkpoint directory: is it whole, can it be built, and the small facts about it."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from specdec.api.matrix import architectures
from specdec.jobs.result import JobError

# A safetensors file starts with the length of its header; a longer one than this is noise.
_HEADER_LIMIT = 100 << 20


def inspect(folder: Path) -> dict[str, Any]:
    """The facts that compatibility is judged by.

    Returns:
        architecture, vocabSize, hiddenSize, layers, heads, kvHeads, maxPosition (tokens), dtype,
        tokenizer (12 hex digits), eos and bos (token ids or null).

    Raises:
        JobError: CheckpointCorrupt or UnsupportedArchitecture.
    """
    config = _json(folder, "config.json")
    stated = config.get("architectures")
    architecture = str(stated[0])[:80] if isinstance(stated, list) and stated else "(none)"
    if architecture not in architectures():
        raise JobError(
            "UnsupportedArchitecture",
            f"the checkpoint's architecture is {architecture} and this release builds "
            f"{', '.join(sorted(architectures()))}: choose another checkpoint",
        )
    check_weights(folder)
    heads = _number(config, "num_attention_heads")
    return {
        "architecture": architecture,
        "vocabSize": _number(config, "vocab_size"),
        "hiddenSize": _number(config, "hidden_size"),
        "layers": _number(config, "num_hidden_layers"),
        "heads": heads,
        "kvHeads": _number(config, "num_key_value_heads", heads),
        "maxPosition": _number(config, "max_position_embeddings"),
        "dtype": str(config.get("dtype") or config.get("torch_dtype") or "float32")[:16],
        "tokenizer": tokenizer_hash(folder),
        "eos": _token(folder, config, "eos_token_id"),
        "bos": _token(folder, config, "bos_token_id"),
    }


def check_weights(folder: Path) -> None:
    """Read every safetensors header and hold it against the file's length.

    Raises:
        JobError: CheckpointCorrupt: no weights, a missing shard, a cut or damaged file.
    """
    names = {path.name for path in folder.glob("*.safetensors")}
    if (folder / "model.safetensors.index.json").is_file():
        index = _json(folder, "model.safetensors.index.json")
        shards = set(index.get("weight_map", {}).values())
        missing = sorted(shards - names)
        if missing:
            raise _corrupt(
                f"{missing[0]} is missing, one of {len(shards)} files that the index lists"
            )
        names = shards
    if not names:
        raise _corrupt("it has no .safetensors file; convert its weights to safetensors")
    for name in sorted(names):
        _check_file(folder / name)


def tokenizer_hash(folder: Path) -> str:
    """12 hex digits over what gives token ids their meaning: vocabulary, merges, added tokens.

    Raises:
        JobError: CheckpointCorrupt when there is no tokenizer.
    """
    if (folder / "tokenizer.json").is_file():
        try:
            meaning = _meaning(_json(folder, "tokenizer.json"))
        except (AttributeError, TypeError) as error:
            raise _corrupt(f"tokenizer.json cannot be read ({error})") from error
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:12]
    if (folder / "tokenizer.model").is_file():
        return hashlib.sha256((folder / "tokenizer.model").read_bytes()).hexdigest()[:12]
    raise _corrupt("it has neither tokenizer.json nor tokenizer.model")


def _meaning(tokenizer: dict[str, Any]) -> list[Any]:
    model = tokenizer.get("model", {})
    # Two spellings of a merge: "a b" and ["a", "b"].
    merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges") or []]
    added = [
        [token.get("id"), token.get("content"), token.get("special")]
        for token in tokenizer.get("added_tokens") or []
    ]
    return [model.get("vocab"), merges, added]


def _check_file(path: Path) -> None:
    length = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= min(_HEADER_LIMIT, length - 8):
            raise _corrupt(f"{path.name} ({length} bytes) has no safetensors header")
        text = file.read(size)
    try:
        header = json.loads(text)
        ends = [int(t["data_offsets"][1]) for name, t in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _corrupt(f"the header of {path.name} cannot be read ({error})") from error
    expected = 8 + size + max(ends, default=0)
    if length != expected:
        raise _corrupt(f"{path.name} has {length} bytes, and its header speaks of {expected}")


def _token(folder: Path, config: dict[str, Any], key: str) -> int | None:
    """A token id from config.json, or else generation_config.json; of several the first."""
    value = config.get(key)
    if value is None and (folder / "generation_config.json").is_file():
        value = _json(folder, "generation_config.json").get(key)
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, int) else None


def _number(config: dict[str, Any], key: str, default: int | None = None) -> int:
    """A size that every configuration states; only small plain values go into a result."""
    value = config.get(key, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _corrupt(f"{key} in config.json is {str(value)[:40]!r}, not a positive number")
    return value


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        raise _corrupt(f"it has no {name}")
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise _corrupt(f"{name} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise _corrupt(f"{name} is not a JSON object")
    return value


def _corrupt(what: str) -> JobError:
    return JobError("CheckpointCorrupt", f"the checkpoint is not whole: {what}")
