"""What tells two tokenizers apart: meaning of token ids, special tokens, chat template."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.jobs import checkpoint_config
from specdec.jobs.weights import corrupt

_DIGITS = 12
_IDS = 2**31


def facts(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer and sentencePiece (hashes), eos, bos and pad (ids), chatTemplate (hash).

    `tokenizer` is the hash of tokenizer.json, or else of tokenizer.model; `tokenizerFile` says
    which. A hash has 12 hex digits; what a checkpoint does not have is None.

    Raises:
        JobError: CheckpointCorrupt when there is no tokenizer.
    """
    piece = folder / "tokenizer.model"
    raw = _digest(checkpoint_config.content(piece)) if piece.is_file() else None
    json_file = (folder / "tokenizer.json").is_file()
    return {
        "tokenizer": tokenizer_hash(folder) if json_file or raw is None else raw,
        "tokenizerFile": "tokenizer.json" if json_file else "tokenizer.model",
        "sentencePiece": raw,
        "eos": _token(folder, config, "eos_token_id"),
        "bos": _token(folder, config, "bos_token_id"),
        "pad": _token(folder, config, "pad_token_id"),
        "chatTemplate": _template(folder),
    }


def tokenizer_hash(folder: Path) -> str:
    """12 hex digits over what gives token ids their meaning: vocabulary, merges, added tokens.

    Raises:
        JobError: CheckpointCorrupt when there is no tokenizer.json that can be read.
    """
    if not (folder / "tokenizer.json").is_file():
        raise corrupt("it has neither tokenizer.json nor tokenizer.model")
    try:
        meaning = _meaning(checkpoint_config.read(folder, "tokenizer.json"))
    except (AttributeError, TypeError) as error:
        raise corrupt(f"tokenizer.json cannot be read ({type(error).__name__})") from error
    return _digest(json.dumps(meaning, sort_keys=True).encode())


def _meaning(tokenizer: dict[str, Any]) -> list[Any]:
    model = tokenizer.get("model", {})
    # Two spellings of a merge: "a b" and ["a", "b"].
    merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges") or []]
    added = [
        [token.get("id"), token.get("content"), token.get("special")]
        for token in tokenizer.get("added_tokens") or []
    ]
    return [model.get("vocab"), merges, sorted(added, key=lambda token: str(token[0]))]


def _token(folder: Path, config: Mapping[str, Any], key: str) -> int | None:
    """A token id from config.json, or else generation_config.json; of several the first."""
    value = config.get(key)
    if value is None:
        value = checkpoint_config.optional(folder, "generation_config.json").get(key)
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _IDS else None


def _template(folder: Path) -> str | None:
    """Hash of the chat template, whichever of its three places it is in; blanks do not count."""
    if (folder / "chat_template.jinja").is_file():
        raw = checkpoint_config.content(folder / "chat_template.jinja")
        text: Any = raw.decode("utf-8", errors="replace")
    else:
        text = checkpoint_config.optional(folder, "tokenizer_config.json").get("chat_template")
        text = text or checkpoint_config.optional(folder, "chat_template.json").get(
            "chat_template"
        )
    if isinstance(text, list):
        # Several by name: that of plain chat is the one a server applies.
        text = next((t.get("template") for t in text if t.get("name") == "default"), None)
    return _digest(" ".join(text.split()).encode()) if isinstance(text, str) and text else None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
