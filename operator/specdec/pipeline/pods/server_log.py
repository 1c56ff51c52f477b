"""What the log of a server that ended shows: its first errors, what to do, and its last line."""

import re

from specdec.triton.log_lines import LogLines

# How many characters of the errors, and of the log's last line, a condition quotes.
_ERRORS = 480
_END = 100


def clean(text: str, lines: LogLines) -> str:
    """The lines of a log without rows of tables and frames of backtraces."""
    return "\n".join(line for line in text.splitlines() if not lines.noise.match(line))


def summary(log: str, lines: LogLines) -> str:
    """The first errors of a log and another last line, on one line; empty without an error."""
    errors = next(filter(None, (_messages(each, log, lines) for each in lines.errors)), [])
    if not errors:
        return ""
    text = "; ".join(errors[:3])
    first = text if len(text) <= _ERRORS else text[:_ERRORS] + "…"
    if fix := lines.fix(text):
        return f"{first.rstrip('.')}: {fix}"
    end = clean(log, lines).rstrip().rpartition("\n")[2]
    if any(error in " ".join(end.split()) for error in errors[:3]):
        return first
    return f"{first}; end of its log: {end[-_END:]}"


def _messages(pattern: re.Pattern[str], log: str, lines: LogLines) -> list[str]:
    """The distinct messages of a log's lines, in their order."""
    errors = (line for line in pattern.findall(log) if not lines.harmless.search(line))
    texts = (
        lines.prefix.sub("", lines.trace.sub("", line)).strip().removesuffix('"')
        for line in errors
    )
    return list(dict.fromkeys(" ".join(text.split()) for text in texts if text))
