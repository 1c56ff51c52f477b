"""A report as one HTML file that needs nothing else."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from specdec.bench.export import length
from specdec.bench.plots import plots
from specdec.bench.report import Report
from specdec.bench.table import sentences


def as_html(report: Report) -> str:
    """The page: verdict, plots, and every number in tables that a screen reader follows."""
    environment = Environment(
        loader=PackageLoader("specdec.bench", "."), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("report.html.j2")
    drawn = plots(report)
    return page.render(
        report=report, plots=drawn, sentences=list(sentences(report)), length=length
    )
