"""What `specdec migrate` does with each TensorRT sample."""

from specdec.backends.pytorch.migration import Body, Migration, migrate
from specdec.dry_run.resource import load
from support.golden_cases import SAMPLES

ENGINES = {name: path for name, path in SAMPLES.items() if name.startswith("tensorrt-")}


def sample(name: str) -> Body:
    """The resource of a sample as it is written."""
    return load(str(ENGINES[name]))


def now(name: str) -> Migration:
    """What the command does with a sample."""
    return migrate(sample(name))
