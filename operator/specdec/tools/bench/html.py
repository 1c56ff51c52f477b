"""Render a report as one self-contained HTML file, without scripts or external resources.

`specdec bench --html` calls `as_html`.
"""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from specdec import __version__
from specdec.client.load.report import Report
from specdec.tools.bench.export import length
from specdec.tools.bench.table import sentences


def as_html(report: Report) -> str:
    """The page: summary, plots, and all numbers in accessible tables."""
    # The import takes half a second.
    from specdec.tools.bench.plots import plots

    drawn = plots(report)
    return _template().render(
        report=report,
        plots=drawn,
        sentences=list(sentences(report)),
        length=length,
        version=__version__,
    )


@cache
def _template() -> Template:
    """The template, compiled once for all reports of a process."""
    environment = Environment(
        loader=PackageLoader("specdec.tools.bench", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("report.html.j2")
