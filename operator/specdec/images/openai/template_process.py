"""Render chat templates in a process: `python -m specdec.images.openai.template_process`.

It reads one JSON object per line and writes one per line. A template is code from a checkpoint:
Jinja's sandbox restricts what it reaches, and the limits of this process restrict processor time
and memory. The first object has the `templates`, each further one the `variables` of a prompt.
"""

import json
import resource
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

MEMORY_BYTES = 256 << 20


class TemplateError(Exception):
    """A template refuses a conversation, with its own message."""


class Generation(Extension):
    """`{% generation %}`, with which templates mark text for training; its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 -- Jinja's own declaration

    @override
    def parse(self, parser: Parser) -> list[Node]:
        """Parse the block, and keep only its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> ImmutableSandboxedEnvironment:
    """The environment that templates of Hugging Face expect."""
    result = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    result.filters["tojson"] = _json
    result.globals["raise_exception"] = _refuse
    result.globals["strftime_now"] = _now
    return result


def render(template: jinja2.Template, variables: Mapping[str, Any], limit: int) -> str:
    """Render a template, up to a number of characters.

    Raises:
        TemplateError: the template refuses, fails, or exceeds the limit.
    """
    parts, size = [], 0
    try:
        for part in template.generate(**variables):
            parts.append(part)
            size += len(part)
            if size > limit:
                break
    except TemplateError:
        raise
    except MemoryError:
        raise TemplateError("it needs too much memory") from None
    except RecursionError:
        raise TemplateError("it is nested too deeply") from None
    except Exception as error:
        # A template can raise any exception, for example if it adds a number to a text.
        raise TemplateError(f"{error or type(error).__name__}") from error
    if size > limit:
        raise TemplateError(f"it gives more than {limit} characters")
    return "".join(parts)


def answer(templates: Mapping[str, jinja2.Template], line: str, limit: int) -> dict[str, str]:
    """The answer to one request: `text` or `error`."""
    request = json.loads(line)
    try:
        return {"text": render(templates[request["template"]], request["variables"], limit)}
    except TemplateError as error:
        return {"error": str(error)}


def main() -> None:
    """Serve until the end of the input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    setup = json.loads(sys.stdin.readline())
    seconds, limit = setup["seconds"], setup["characters"]
    try:
        # Jinja computes constant expressions when it compiles: 10 ** 10 ** 8 takes half a minute.
        _limit_processor_time(seconds)
        made = environment()
        templates = {name: made.from_string(source) for name, source in setup["templates"].items()}
    except Exception as error:  # noqa: BLE001 - a template decides which error the compiler raises
        _write({"error": f"{error}" or type(error).__name__})
        return
    _write({"ready": "true"})
    for line in sys.stdin:
        # The limit also ends a loop if the waiting process cannot stop it.
        _limit_processor_time(seconds)
        _write(answer(templates, line, limit))


def _limit_processor_time(seconds: int) -> None:
    """From now on, let the system end this process after so many seconds, rounded up."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds + 1, resource.RLIM_INFINITY))


def _write(value: Mapping[str, str]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _refuse(message: str) -> NoReturn:
    raise TemplateError(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates expect it: without escapes of HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


if __name__ == "__main__":
    main()
