"""A new value of the chart needs changes in three files and a generated file."""

import shutil
from pathlib import Path

import pytest

from chart.helm import CHART, Helm, HelmError
from cluster import binaries
from support import chart_reference


def test_a_value_touches_four_files(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    edits = {
        "values.yaml": (
            "# A standby:",
            "# Colour of the operator.\ncolour: green\n\n# A standby:",
        ),
        "values.schema.json": (
            '    "watchNamespaces": {\n',
            '    "colour": {"enum": ["green", "blue"]},\n    "watchNamespaces": {\n',
        ),
        "templates/deployment.yaml": (
            "            - name: PYTHONUNBUFFERED\n",
            "            - name: SPECDEC_COLOUR\n"
            "              value: {{ .Values.colour | quote }}\n"
            "            - name: PYTHONUNBUFFERED\n",
        ),
    }
    for name, (old, new) in edits.items():
        file = chart / name
        text = file.read_text()
        assert text.count(old) == 1, name
        file.write_text(text.replace(old, new))
    readme = chart_reference.render(chart / "README.md")
    assert '\n| `colour` | `"green"` | Colour of the operator. |\n' in readme

    helm = Helm(tmp_path)
    command = ("template", "specdec-operator", chart, f"--kube-version={binaries.KUBERNETES}")
    rendered = helm(*command, values={"colour": "blue"})
    assert 'name: SPECDEC_COLOUR\n              value: "blue"' in rendered
    with pytest.raises(HelmError, match="colour"):
        helm(*command, values={"colour": "red"})
    assert len(edits) == 3
