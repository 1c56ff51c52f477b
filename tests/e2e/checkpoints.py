"""Changed copies of the pair's checkpoints, which tests serve on the node."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from e2e.world import PAIR, World

# The output projections of a decoder layer. With zeros there, the layer adds nothing to its input.
_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
_LAYERS = "model.layers."


class Copies:
    """Makes copies of the pair's checkpoints on the same claim; a test may change them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: list[Path] = []

    def __call__(self, role: str, name: str) -> Path:
        """Copy a checkpoint; return the new folder, which has the path `name` as a source."""
        folder = self._root / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._root / role, folder)
        self._made.append(folder)
        return folder

    def clear(self) -> None:
        """Remove all copies."""
        while self._made:
            shutil.rmtree(self._made.pop())


@contextmanager
def copying(world: World) -> Iterator[Copies]:
    """Yield a maker of copies, and remove the copies at the end."""
    made = Copies(world.folder(PAIR))
    try:
        yield made
    finally:
        made.clear()


def deepen(folder: Path, layers: int) -> None:
    """Give a checkpoint more layers that add nothing: its answers stay equal, but take longer.

    Each new layer is a copy of the first layer, with zeros as output projections. The engine still
    computes the whole layer.
    """
    file, settings = folder / "model.safetensors", folder / "config.json"
    tensors, config = load_file(file), json.loads(settings.read_text())
    first = f"{_LAYERS}0."
    layer = {n.removeprefix(first): t for n, t in tensors.items() if n.startswith(first)}
    assert set(_OUTPUTS) < set(layer), sorted(layer)
    for index in range(config["num_hidden_layers"], layers):
        for name, tensor in layer.items():
            weights = np.zeros_like(tensor) if name in _OUTPUTS else tensor
            tensors[f"{_LAYERS}{index}.{name}"] = weights
    save_file(tensors, file, {"format": "pt"})
    # The library writes files that only their owner may read, but pods run as another user.
    file.chmod(0o644)
    settings.write_text(json.dumps({**config, "num_hidden_layers": layers}))
