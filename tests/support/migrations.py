"""Runs `specdec migrate` on the TensorRT samples."""

from specdec.backends.migration import Body, Migration
from specdec.backends.pytorch.migration import migrate
from specdec.tools.dry_run.resource import load
from support.golden_cases import SAMPLES

ENGINES = {name: path for name, path in SAMPLES.items() if name.startswith("tensorrt-")}


def sample(name: str) -> Body:
    """Return the resource of a sample as its file has it."""
    return load(str(ENGINES[name]))


def now(name: str) -> Migration:
    """Return the result of the command for a sample."""
    return migrate(sample(name))
