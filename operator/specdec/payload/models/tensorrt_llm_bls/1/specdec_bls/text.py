"""Turns growing token lists into text that concatenates to exactly the text of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Tokens decoded again on every push. Enough that no decoder looks further back for its spacing,
# small enough that a long answer costs no more per token than a short one.
_WINDOW = 32
_REPLACEMENT = "\ufffd"


class Detokenizer:
    """Incremental decoding that never cuts a character.

    A token may end in the middle of a UTF-8 sequence, which decodes to a replacement character
    until the rest arrives; such a tail is held back.

    Args:
        decode: token ids to text.

    Attributes:
        held: characters at the end of the tokens' decoding that were not given out yet.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._sent = ""
        self.held = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Text that these tokens complete, possibly none."""
        self._ids.extend(tokens)
        text = self._decode(self._ids)
        complete = text.rstrip(_REPLACEMENT)
        self.held = len(text) - len(complete)
        if len(complete) <= len(self._sent):
            return ""
        new = complete[len(self._sent) :]
        self._sent = complete
        if complete == text and len(self._ids) > 2 * _WINDOW:
            self._ids = self._ids[-_WINDOW:]
            self._sent = self._decode(self._ids)
        return new

    def flush(self) -> str:
        """What was held back, when no token follows."""
        text = self._decode(self._ids)
        rest = text[len(self._sent) :]
        self._sent = text
        return rest


class StopText:
    """Finds stop words in growing text, also those that begin in earlier pieces.

    Args:
        words: stop words; empty ones are ignored.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [word for word in words if word]
        self._kept = max((len(word) for word in self._words), default=1) - 1
        self._tail = ""

    def cut(self, piece: str) -> int | None:
        """Length of `piece` up to the end of the first stop word in it, None without one."""
        text = self._tail + piece
        ends = [
            position + len(word) - len(self._tail)
            for word in self._words
            if (position := text.find(word)) >= 0
        ]
        self._tail = text[-self._kept :] if self._kept else ""
        return max(min(ends), 0) if ends else None
