"""Render the page of a run: one HTML file without scripts or external resources."""

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

Json = dict[str, Any]
# How many of the last lines of a log the page shows; the archive has more.
LOG_LINES = 30


def as_html(document: Json, log: Callable[[str], str]) -> str:
    """The page of a document of `report`.

    Args:
        document: what it shows.
        log: reads the text of a log by its path.
    """

    def end(path: str) -> str:
        return "\n".join(log(path).splitlines()[-LOG_LINES:])

    return _template().render(report=document, log=end, log_lines=LOG_LINES)


@cache
def _template() -> Template:
    """The template, compiled once for all pages of a process."""
    environment = Environment(
        loader=PackageLoader("specdec.tools.certify", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    return environment.get_template("page.html.j2")


def duration(seconds: float) -> str:
    """Seconds in the two largest units: 8 s, 2 min 5 s, 1 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
