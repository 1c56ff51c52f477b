"""The golden file of `specdec migrate`: each TensorRT sample's changes, or its needs."""

from typing import Any

import yaml

from golden.delta import delta
from support.golden_cases import HERE
from support.migrations import ENGINES, now, sample

MIGRATIONS = HERE / "migrations.yaml"


def text() -> str:
    """Return the content of the golden file."""
    return yaml.safe_dump({name: _entry(name) for name in sorted(ENGINES)}, width=1000)


def _entry(name: str) -> dict[str, Any]:
    result = now(name)
    if result.body is None:
        return {"needs": list(result.needs)}
    return {"changes": list(result.changes), "delta": delta(sample(name), result.body)}
