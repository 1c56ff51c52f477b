"""The first errors in the log of a server that ended, and the end of the log's last line."""

import re

# How many characters of the errors, and of the log's last line, a condition quotes.
_ERRORS = 480
_END = 100
_FAILED = re.compile(
    r"""^E\d{4} .*?\] "?failed to load '[^']*' version \d+: (.*)$""", re.MULTILINE
)
_ERROR = re.compile(
    r"""^(?:E\d{4} .*?\] "?|(?:\[[^\]]*\] ?)*\[TensorRT-LLM\]\[ERROR\] )(.*)$""", re.MULTILINE
)
# Errors that every server without a GPU logs.
_HARMLESS = re.compile(r"CudaDriverHelper|CUDA driver version is insufficient|NVML|DCGM")
# How Triton introduces a model's error message.
_STATUS = re.compile(
    r"^(?:(?:Internal|Invalid argument|Not found|Unavailable|Unsupported|Unknown): )?"
    r"(?:TritonModelException: )?"
)
# A traceback follows the message, with its line breaks escaped or not.
_TRACE = re.compile(r"(?:\\n|\n)+(?:At:|Traceback|\[?TensorRT-LLM).*", re.DOTALL)


# Rows of the table of a start, and frames of a backtrace (of Triton, Python and Open MPI).
_NOISE = re.compile(
    r"""^\s*(?:[+|].*|\d+#\s.*|\#\d+\s.*|File\s".*",\sline\s\d+.*"""
    r"""|\[[^\]]*\]\s(?:\[\s*\d+\]|\*\*\*)\s.*)?$""",
)


def clean(text: str) -> str:
    """The lines of a log without rows of tables and frames of backtraces."""
    return "\n".join(line for line in text.splitlines() if not _NOISE.match(line))


def summary(log: str) -> str:
    """The first errors of a log and another last line, on one line; empty where it has no error.

    If models failed to load, only their errors are returned: a server may log other errors and
    still run.
    """
    errors = _messages(_FAILED, log) or _messages(_ERROR, log)
    if not errors:
        return ""
    text = "; ".join(errors[:3])
    first = text if len(text) <= _ERRORS else text[:_ERRORS] + "…"
    end = clean(log).rstrip().rpartition("\n")[2]
    if any(error in " ".join(end.split()) for error in errors[:3]):
        return first
    return f"{first}; end of its log: {end[-_END:]}"


def _messages(pattern: re.Pattern[str], log: str) -> list[str]:
    """The distinct messages of a log's lines, in their order."""
    lines = (line for line in pattern.findall(log) if not _HARMLESS.search(line))
    texts = (_STATUS.sub("", _TRACE.sub("", line)).strip().removesuffix('"') for line in lines)
    return list(dict.fromkeys(" ".join(text.split()) for text in texts if text))
