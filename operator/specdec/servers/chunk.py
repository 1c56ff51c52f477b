"""One response with a part of an answer, and how it is read from the outputs of a Triton model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# Optional outputs that a request can ask for.
OPTIONAL_OUTPUTS = (
    "cum_log_probs",
    "output_log_probs",
    "context_logits",
    "generation_logits",
    "num_input_tokens",
    "num_output_tokens",
)
OUTPUT_TOKENS = "num_output_tokens"
TEXT, DRAFTED, ACCEPTED = "text_output", "total_draft_tokens", "total_accepted_draft_tokens"
REASON = "finish_reason"
ALWAYS = (TEXT, DRAFTED, ACCEPTED, REASON)
# A text ends with this character as long as its last character is incomplete.
_INCOMPLETE = "\ufffd"
# Before the end of an answer, the output with the reason has another text.
REASONS = ("stop", "length")


@dataclass(frozen=True)
class Counts:
    """The numbers of drafted and of accepted tokens in one answer."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Chunk:
    """One response with a part of the answer.

    Attributes:
        text: new text, of the first beam if there are several.
        counts: totals so far; None if the server does not report them.
        beams: the texts of all beams.
        optional_outputs: arrays by their Triton names, in the server's shapes.
        reason: why the answer ended, `stop` or `length`; None before its end, or if the server
            does not report it.
    """

    text: str
    counts: Counts | None = None
    beams: tuple[str, ...] = ()
    optional_outputs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    reason: str | None = None


class Deltas:
    """Reads responses that have new text only; see `encoding.Reader`.

    Args:
        requested: names of the requested outputs; servers fill the others with placeholders.
    """

    def __init__(self, requested: frozenset[str] = frozenset()) -> None:
        self._requested = requested

    def read(self, response: Mapping[str, Any]) -> Chunk | None:
        """The chunk of a response: arrays by the names of Triton's outputs."""
        return chunk(response, self._requested)

    def end(self) -> Chunk | None:
        """None: this reader holds no text."""
        return None


class WholeTexts:
    """Reads responses that have the whole text so far; see `encoding.Reader`."""

    def __init__(self) -> None:
        self._new = NewText()

    def read(self, response: Mapping[str, Any]) -> Chunk | None:
        """The chunk with the new part of the text."""
        part = chunk(response, frozenset())
        return None if part is None else self._cut(part, self._new.of(part.text))

    def end(self) -> Chunk | None:
        """The rest of a text that ends within a character."""
        text = self._new.rest()
        return self._cut(Chunk(text), text) if text else None

    def _cut(self, part: Chunk, text: str) -> Chunk:
        return replace(part, text=text, beams=(text,))


class NewText:
    """Cuts the whole text so far to what is new in it.

    It holds back a character that is not complete, because a later text replaces it.
    """

    def __init__(self) -> None:
        self._text, self._given = "", 0

    def of(self, text: str) -> str:
        """What a text adds to the earlier texts."""
        self._text = text
        return self._until(len(text.rstrip(_INCOMPLETE)))

    def rest(self) -> str:
        """The rest of a text that ends within a character."""
        return self._until(len(self._text))

    def _until(self, end: int) -> str:
        new = self._text[self._given : end]
        self._given = max(self._given, end)
        return new


def chunk(outputs: Mapping[str, Any], requested: frozenset[str]) -> Chunk | None:
    """Convert the output arrays of a response to a chunk; None without a text output.

    Args:
        outputs: arrays of numpy by their Triton names.
        requested: names of the requested outputs; servers fill the others with placeholders.
    """
    beams = tuple(_text(beam) for beam in _flat(outputs, TEXT))
    if not beams:
        return None
    optional_outputs = {
        name: outputs[name] for name in OPTIONAL_OUTPUTS if name in requested and name in outputs
    }
    drafted, accepted = _flat(outputs, DRAFTED), _flat(outputs, ACCEPTED)
    counts = Counts(int(drafted[0]), int(accepted[0])) if drafted and accepted else None
    return Chunk(beams[0], counts, beams, optional_outputs, _reason(_flat(outputs, REASON)))


def _flat(outputs: Mapping[str, Any], name: str) -> list[Any]:
    return outputs[name].reshape(-1).tolist() if name in outputs else []


def _reason(values: list[Any]) -> str | None:
    text = _text(values[0]) if values else ""
    return text if text in REASONS else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
