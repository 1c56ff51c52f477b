"""The values table of each chart's README, generated from the comments of its values.yaml.

`python -m support.chart_reference` writes the tables; a test compares them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

CHARTS = Path(__file__).parents[2] / "charts"
DOCUMENTS = sorted(CHARTS.glob("*/README.md"))
_TABLE = re.compile(r"(?<=<!-- values -->\n).*?(?=<!-- end of values -->\n)", re.DOTALL)


def render(document: Path) -> str:
    """Return the README with the current table of its chart's values."""
    text = document.with_name("values.yaml").read_text("utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    rows = "\n".join(_rows(root, text.splitlines()))
    table = f"\n| Value | Default | Description |\n|---|---|---|\n{rows}\n\n"
    return _TABLE.sub(lambda _: table, document.read_text("utf-8"))


def _rows(node: yaml.MappingNode, lines: list[str], above: str = "") -> Iterator[str]:
    """Yield a row for each value; a section with a comment gets a row without a default."""
    for key, value in node.value:
        path = f"{above}.{key.value}" if above else str(key.value)
        comment = _comment(lines, key.start_mark.line)
        nested = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        if nested:
            if comment:
                yield f"| `{path}` | | {comment} |"
            yield from _rows(value, lines, path)
        else:
            default = json.dumps(yaml.SafeLoader("").construct_object(value, deep=True))
            yield f"| `{path}` | `{default}` | {comment} |"


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that ends directly above a line, as one line."""
    text: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        text.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(text).replace("|", "\\|")


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(render(document), "utf-8")
