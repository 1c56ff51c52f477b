"""Compare the tokenizers of target and draft token by token, where their hashes differ.

Speculative decoding compares ids. So only an id that the draft can produce, and that is another
token in the target, is a difference. Merges, and renamed reserved tokens, do not count.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs import checkpoint_config

# Names of tokens without a meaning of their own, which fine-tuned models rename.
_RESERVED = re.compile(r"[<\[].*(reserved|unused|placeholder|extra_|dummy|special_\d)", re.I)
_CHARACTERS = 24


def compared(
    facts: Mapping[str, CheckpointFacts], folders: Mapping[str, Path]
) -> dict[str, CheckpointFacts]:
    """The facts by role; those of a draft have the differences from its target.

    They stay as they are if the hashes are equal, or if a folder has no tokenizer.json.

    Raises:
        JobError: CheckpointCorrupt: a tokenizer.json is damaged.
    """
    target, draft = facts.get("target"), facts.get("draft")
    places = [folders.get(role, Path()) / "tokenizer.json" for role in ("target", "draft")]
    if target is None or draft is None or target.tokenizer == draft.tokenizer:
        return dict(facts)
    if not all(place.is_file() for place in places):
        return dict(facts)
    known, own = (_tokens(checkpoint_config.read(place.parent, place.name)) for place in places)
    differing = [number for number in sorted(own) if _differ(own[number], known.get(number))]
    first = ""
    if differing:
        one = differing[0]
        first = f"{one} ({_shown(own[one])} in the draft, {_shown(known.get(one))} in the target)"
    added = CheckpointFacts(
        compared_tokenizer=target.tokenizer,
        token_differences=len(differing),
        first_difference=first or None,
    )
    return {**facts, "draft": draft.updated(added)}


def _tokens(tokenizer: Mapping[str, Any]) -> dict[int, str]:
    """Token by id; an entry of another type is left out."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs: list[tuple[Any, Any]] = []
    if isinstance(vocabulary, dict):
        pairs = [(number, token) for token, number in vocabulary.items()]
    elif isinstance(vocabulary, list):
        # Unigram: tokens with scores, in the order of their ids.
        pairs = [(n, entry[0]) for n, entry in enumerate(vocabulary) if isinstance(entry, list)]
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict):
            pairs.append((entry.get("id"), entry.get("content")))
    return {n: text for n, text in pairs if isinstance(n, int) and isinstance(text, str)}


def _differ(own: str, known: str | None) -> bool:
    if own == known:
        return False
    return not (_RESERVED.match(own) or (known is not None and _RESERVED.match(known)))


def _shown(token: str | None) -> str:
    return "none" if token is None else ascii(token[:_CHARACTERS])
