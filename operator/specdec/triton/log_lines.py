"""Lines of a server's log that name a cause or a step of its start, as patterns."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step of a server's start.

    Attributes:
        line: pattern of a line that shows it.
        name: for messages. The groups of the pattern replace {0}, {1} and so on.
    """

    line: re.Pattern[str]
    name: str


@dataclass(frozen=True)
class Fix:
    """What to do about a cause.

    Attributes:
        message: pattern of the cause.
        sentence: for messages, with the fields of the resource.
    """

    message: re.Pattern[str]
    sentence: str


@dataclass(frozen=True)
class LogLines:
    """Patterns of a server's log; the first group of a line's pattern is its message.

    Attributes:
        errors: patterns of lines with a cause. The first pattern that the log has decides: a
            server may log other errors and still run.
        harmless: errors that every server logs.
        prefix: what stands before the message and names no cause.
        trace: what follows the message and names no cause.
        noise: lines that show nothing to a person, such as rows of tables, frames of backtraces.
        fixes: what to do about some causes; the first that applies.
        steps: of a start; empty if the log does not show them.
    """

    errors: tuple[re.Pattern[str], ...]
    harmless: re.Pattern[str]
    prefix: re.Pattern[str]
    trace: re.Pattern[str]
    noise: re.Pattern[str]
    fixes: tuple[Fix, ...] = ()
    steps: tuple[Step, ...] = ()

    def fix(self, cause: str) -> str:
        """What to do about a cause; empty if that is not known."""
        return next((fix.sentence for fix in self.fixes if fix.message.search(cause)), "")

    def step(self, log: str) -> str:
        """The last step of the start that a log shows; empty without one."""
        last, name = -1, ""
        for step in self.steps:
            for line in step.line.finditer(log):
                if line.start() >= last:
                    last, name = line.start(), step.name.format(*line.groups())
        return name


# Of tritonserver and of TensorRT-LLM; first the models that failed to load.
TRITON = LogLines(
    errors=(
        re.compile(r"""^E\d{4} .*?\] "?failed to load '[^']*' version \d+: (.*)$""", re.MULTILINE),
        re.compile(
            r"""^(?:E\d{4} .*?\] "?|(?:\[[^\]]*\] ?)*\[TensorRT-LLM\]\[ERROR\] )(.*)$""",
            re.MULTILINE,
        ),
    ),
    # Every server without a GPU logs them.
    harmless=re.compile(r"CudaDriverHelper|CUDA driver version is insufficient|NVML|DCGM"),
    # How Triton introduces a model's error message.
    prefix=re.compile(
        r"^(?:(?:Internal|Invalid argument|Not found|Unavailable|Unsupported|Unknown): )?"
        r"(?:TritonModelException: )?"
    ),
    # A traceback follows the message, with its line breaks escaped or not.
    trace=re.compile(r"(?:\\n|\n)+(?:At:|Traceback|\[?TensorRT-LLM).*", re.DOTALL),
    # Rows of the table of a start, and frames of a backtrace (of Triton, Python and Open MPI).
    noise=re.compile(
        r"""^\s*(?:[+|].*|\d+#\s.*|\#\d+\s.*|File\s".*",\sline\s\d+.*"""
        r"""|\[[^\]]*\]\s(?:\[\s*\d+\]|\*\*\*)\s.*)?$""",
    ),
)
