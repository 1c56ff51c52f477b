"""Modules that Jobs and commands import at their start."""

import subprocess
import sys

import pytest

# The fetch Job is not one of them: it judges checkpoints by the spec.
MODULES = [
    *(f"jobs.{job}" for job in ("benchmark", "prune", "publish", "verify")),
    *(f"tools.cli.{command}" for command in ("bench", "generate", "speculate", "top", "verify")),
]
# The types of the resource, and the table of backends.
SLOW = ("pydantic", "specdec.api.matrix")


@pytest.mark.parametrize("module", MODULES)
def test_module_loads_neither_the_resource_nor_the_table_of_backends(module: str) -> None:
    code = (
        f"import sys, specdec.{module}\n"
        f"sys.exit(', '.join(name for name in {SLOW!r} if name in sys.modules) or None)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
