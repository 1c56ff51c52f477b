"""Render a report as one self-contained HTML file, without scripts or external resources.

`specdec bench --html` calls `as_html`.
"""

from jinja2 import Environment, PackageLoader, StrictUndefined

from specdec.bench.export import length
from specdec.bench.plots import plots
from specdec.bench.report import Report
from specdec.bench.table import sentences


def as_html(report: Report) -> str:
    """The page: summary, plots, and all numbers in accessible tables."""
    environment = Environment(
        loader=PackageLoader("specdec.bench", "."), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("report.html.j2")
    drawn = plots(report)
    return page.render(
        report=report, plots=drawn, sentences=list(sentences(report)), length=length
    )
