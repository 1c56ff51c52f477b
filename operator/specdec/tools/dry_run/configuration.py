"""Read a model's sizes from its `config.json`, without the checkpoint's weights.

`plan` calls it for `--checkpoint ROLE=config.json`. The memory plan needs nothing else.
"""

import json
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.backends.checkpoint_sizes import AUTO_BYTES, FILE_BYTES, sizes_of
from specdec.backends.facts import Checkpoint
from specdec.jobs import inspection, parameter_count
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError
from specdec.tools.dry_run.resource import InputError

_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".nemo"})
# Bytes of a parameter in the files of a quantized checkpoint, with its scales, by the start of the
# name that the quantization tool wrote. A name that is not here counts with 16 bits.
_QUANTIZED = {
    **dict.fromkeys(("int4-g32", "w4a16_nvfp4", "mlx"), 0.5625),
    "mxfp8": 1.03125,
    **dict.fromkeys(("fp8", "fbgemm_fp8", "int8", "w8a8"), 1.0),
    **dict.fromkeys(("nvfp4", "modelopt_fp4"), 0.5625),
    **dict.fromkeys(("w4a8", "w4a16", "int4", "awq", "gptq", "auto-round"), 0.53),
    **dict.fromkeys(("bitsandbytes", "fp4"), 0.53125),
    "mxfp4": 0.53125,
}


def file(path: Path) -> Path:
    """The configuration in a folder without weights; any other path as it is."""
    config = path / "config.json"
    has_weights = any(entry.suffix in _WEIGHTS for entry in path.glob("*"))
    return config if config.is_file() and not has_weights else path


def read(path: Path) -> dict[str, Any]:
    """A configuration, by its file or its folder.

    Raises:
        InputError: the file is not a valid configuration.
    """
    place = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(place.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{place} is not a valid config.json ({error}): name the file of a checkpoint"
        ) from error
    if not isinstance(config, dict):
        raise InputError(f"{place} is not a valid config.json: it is not a JSON object")
    return config


def facts(path: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> CheckpointFacts:
    """The facts that a configuration states, with those of the files beside a `config.json`.

    Raises:
        InputError: the file is not a valid configuration.
    """
    config = read(path)
    place = path if path.is_dir() else path.parent
    beside = place if path.is_dir() or path.name == "config.json" else None
    try:
        stated = inspection.stated(config, kind, beside)
    except JobError as error:
        raise InputError(f"{path}: {error}") from error
    if stated.parameters is not None or kind is ArtifactKind.ENGINE:
        return stated
    # A mixture's number of parameters, and that of a quantized model, do not follow from bytes.
    counted = parameter_count.parameters(config)
    if counted is None and stated.quantization is not None:
        sizes = sizes_of(Checkpoint("", "", "", 0, stated), None)
        counted = sizes.parameters if sizes else None
    return stated.updated(CheckpointFacts(parameters=counted))


def stored_bytes(role: str, facts: CheckpointFacts) -> int:
    """The estimated bytes of a checkpoint's files, from its configuration; 0 if not known.

    Embedding and output projection are never quantized.
    """
    sizes = sizes_of(Checkpoint(role, "", "", 0, facts), None)
    if sizes is None:
        return 0
    own = FILE_BYTES.get(facts.dtype or "", AUTO_BYTES)
    name = (facts.quantization or "").lower()
    each = next((size for start, size in _QUANTIZED.items() if name.startswith(start)), own)
    each = 1.0 if name.endswith("-8bit") else each
    # MXFP4 is a format of experts alone.
    only_experts = facts.quantizes_experts_only or name == "mxfp4"
    small = sizes.routed if only_experts and sizes.routed else sizes.body
    return int(small * each + (sizes.parameters - small) * own)
