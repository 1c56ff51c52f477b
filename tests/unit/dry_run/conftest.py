"""A fixture that writes a resource to a file for the commands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.simulated_cluster import resource
from unit.dry_run.commands import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a resource to a file, with changed fields of its spec."""

    def writer(name: str = "cr", method: str = "DraftTarget", **changed: Any) -> Path:
        body = resource(method)
        for field, value in changed.items():
            *parents, last = field.split("__")
            part = body["spec"]
            for parent in parents:
                part = part.setdefault(parent, {})
            part[last] = value
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(body))
        return path

    return writer
