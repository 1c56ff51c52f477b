"""Read the facts that identify a tokenizer: vocabulary, special tokens and chat template.

`inspection` adds them to the facts of a checkpoint. The operator compares them between target and
draft: equal hashes mean that token ids have the same meaning.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs import checkpoint_config
from specdec.jobs.checkpoint_config import Config
from specdec.jobs.model_keys import language_model
from specdec.jobs.weights import corrupt

_HASH_DIGITS = 12
_TOKEN_ID_LIMIT = 2**31
# Published models have up to five.
_MOST_END_TOKENS = 16
_NONE: Config = {}


def facts(folder: Path, config: Mapping[str, Any]) -> CheckpointFacts:
    """The facts of a checkpoint's tokenizer; a hash has 12 hex digits.

    Raises:
        JobError: CheckpointCorrupt if there is no tokenizer.
    """
    sentence_piece = folder / "tokenizer.model"
    model_hash = (
        _hash(checkpoint_config.content(sentence_piece)) if sentence_piece.is_file() else None
    )
    json_file = (folder / "tokenizer.json").is_file()
    return CheckpointFacts(
        tokenizer=tokenizer_hash(folder) if json_file or model_hash is None else model_hash,
        tokenizer_file="tokenizer.json" if json_file else "tokenizer.model",
        sentence_piece=model_hash,
        chat_template=_template(folder),
    ).updated(special(config, checkpoint_config.optional(folder, "generation_config.json")))


def exist(folder: Path) -> bool:
    """Whether a folder has a tokenizer."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model"))


def special(config: Config, generation: Config = _NONE) -> CheckpointFacts:
    """The special tokens of config.json, or else of generation_config.json.

    Each of the two may list several end tokens. A runtime stops at all of them.
    """
    own = language_model(config)
    ids = {
        key: [_ids(own.get(f"{key}_token_id")), _ids(generation.get(f"{key}_token_id"))]
        for key in ("eos", "bos", "pad")
    }
    one = {key: next((i for stated in lists for i in stated), None) for key, lists in ids.items()}
    ends = sorted({i for stated in ids["eos"] for i in stated})[:_MOST_END_TOKENS]
    return CheckpointFacts(
        eos=one["eos"], bos=one["bos"], pad=one["pad"], end_tokens=tuple(ends) or None
    )


def tokenizer_hash(folder: Path) -> str:
    """The hash of everything that defines the token ids: vocabulary, merges and added tokens.

    Raises:
        JobError: CheckpointCorrupt if tokenizer.json is missing or cannot be read.
    """
    if not (folder / "tokenizer.json").is_file():
        raise corrupt("it has neither tokenizer.json nor tokenizer.model")
    try:
        definition = _definition(checkpoint_config.read(folder, "tokenizer.json"))
    except (AttributeError, TypeError) as error:
        raise corrupt(f"tokenizer.json cannot be read ({type(error).__name__})") from error
    return _hash(json.dumps(definition, sort_keys=True).encode())


def _definition(tokenizer: dict[str, Any]) -> list[Any]:
    model = tokenizer.get("model", {})
    # A merge is written as "a b" or as ["a", "b"].
    merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges") or []]
    added = [
        [token.get("id"), token.get("content"), token.get("special")]
        for token in tokenizer.get("added_tokens") or []
    ]
    return [model.get("vocab"), merges, sorted(added, key=lambda token: str(token[0]))]


def _ids(stated: object) -> list[int]:
    """The valid token ids of a value or of a list."""
    listed = stated if isinstance(stated, list) else [stated]
    whole = [each for each in listed if isinstance(each, int) and not isinstance(each, bool)]
    return [each for each in whole if abs(each) < _TOKEN_ID_LIMIT]


def _template(folder: Path) -> str | None:
    """The hash of the chat template in any of its three files, without regard to white space."""
    if (folder / "chat_template.jinja").is_file():
        raw = checkpoint_config.content(folder / "chat_template.jinja")
        text: Any = raw.decode("utf-8", errors="replace")
    else:
        text = checkpoint_config.optional(folder, "tokenizer_config.json").get("chat_template")
        text = text or checkpoint_config.optional(folder, "chat_template.json").get(
            "chat_template"
        )
    if isinstance(text, list):
        # A list of named templates: servers apply the one named `default`.
        named = (t for t in text if isinstance(t, dict))
        text = next((t.get("template") for t in named if t.get("name") == "default"), None)
    if not isinstance(text, str) or not text:
        return None
    # JSON may hold halves of surrogate pairs.
    return _hash(" ".join(text.split()).encode("utf-8", "surrogatepass"))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]
