"""What the image check expects of the images of each backend, for the command `specdec image`."""

from collections.abc import Callable
from typing import Any

from specdec.backends.pytorch import image as pytorch
from specdec.backends.tensorrt import image as tensorrt

_CHECKS: dict[str, tuple[Callable[[], tuple[str, ...]], Callable[[str], dict[str, Any]]]] = {
    "TensorRT": (tensorrt.releases, tensorrt.expectations),
    "PyTorch": (pytorch.releases, pytorch.expectations),
}
# The backends whose images have a check; the first one is the default.
BACKENDS = tuple(_CHECKS)


def releases(backend: str) -> tuple[str, ...]:
    """Releases that an image can be compared with; the last one is the default."""
    return _CHECKS[backend][0]()


def expectations(backend: str, version: str) -> dict[str, Any]:
    """What an image of a release has to hold, as JSON."""
    return _CHECKS[backend][1](version)
