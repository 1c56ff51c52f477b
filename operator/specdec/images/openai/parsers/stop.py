"""End an answer before its first stop string."""

from collections.abc import Sequence

from specdec.images.openai.parsers.split import held


class Stop:
    """Text that arrives in pieces, until a stop string.

    The server ends its answer after a stop string, and sends the stop string too. OpenAI's answers
    do not contain it.

    Attributes:
        stopped: a stop string has arrived.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._buffer = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Add text, and return what is certainly before every stop string."""
        if self.stopped:
            return ""
        self._buffer += text
        # The stop string that ends first counts, as in a search character by character.
        ends = [
            (at + len(word), at) for word in self._stop if (at := self._buffer.find(word)) >= 0
        ]
        if ends:
            self.stopped = True
            _, at = min(ends)
            text, self._buffer = self._buffer[:at], ""
            return text
        cut = len(self._buffer) - held(self._buffer, self._stop)
        text, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return text

    def end(self) -> str:
        """Return the text that might have been the beginning of a stop string."""
        text, self._buffer = self._buffer, ""
        return text
