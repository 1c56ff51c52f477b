"""The largest number of bytes of text that one token of a vocabulary stands for.

The BLS has the same rule (operator/bls/specdec-bls/src/tokenizer/longest.rs).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

# Factor on the bytes of the longest token, for a tokenizer that may leave out or merge characters.
# It is large enough: Unicode composition keeps at least a third of the bytes, most characters of a
# text are not blanks or marks, and few tokens are as long as the longest.
_MARGIN = 4
# Steps before the model that keep every byte of the text, besides `Split` and `Sequence`.
_KEEPING = frozenset({"ByteLevel", "Digits", "FixedLength", "Prepend", "UnicodeScripts"})


def bytes_per_token(fast: Any) -> int:
    """The most bytes of text that one token stands for; 0 for an empty vocabulary.

    A byte-level vocabulary writes every byte of a text as one character, so the bound is the
    number of characters of its longest token. Any other tokenizer may leave out or merge
    characters.
    """
    steps = [_step(fast.normalizer), _step(fast.pre_tokenizer)]
    byte_level = any(map(_is_byte_level, steps))
    learned = fast.get_vocab(with_added_tokens=False)
    added = [token.content for token in fast.get_added_tokens_decoder().values()]
    longest = max(map(len, learned), default=0) if byte_level else _longest(learned)
    longest = max(longest, _longest(added))
    return longest if byte_level and all(map(_keeps, steps)) else _MARGIN * longest


def bytes_per_learned_token(tokens: Iterable[str]) -> int:
    """The same for a vocabulary whose tokenizer does not describe its steps."""
    return _MARGIN * _longest(tokens)


def _longest(tokens: Iterable[str]) -> int:
    return max((len(token.encode("utf-8", "replace")) for token in tokens), default=0)


def _step(step: Any) -> dict[str, Any]:
    # Only the pickle state of the library's objects has the form of tokenizer.json.
    return {} if step is None else dict(json.loads(step.__getstate__()))


def _steps(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [*step.get("normalizers", ()), *step.get("pretokenizers", ())]


def _is_byte_level(step: dict[str, Any]) -> bool:
    return step.get("type") == "ByteLevel" or any(map(_is_byte_level, _steps(step)))


def _keeps(step: dict[str, Any]) -> bool:
    """Whether a step leaves every byte of the text to the model."""
    match step.get("type"):
        case "Sequence":
            return all(map(_keeps, _steps(step)))
        case "Split":
            return bool(step["behavior"] != "Removed")
        case kind:
            return not step or kind in _KEEPING
