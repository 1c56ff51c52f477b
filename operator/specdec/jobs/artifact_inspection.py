"""Look at what is no whole model: the heads of one, or an engine that is already built."""

import re
from pathlib import Path
from typing import Any

from specdec.jobs import checkpoint_config, weights
from specdec.jobs.checkpoint_config import Config, number, part, whole, word
from specdec.jobs.weights import Shapes, corrupt

# `<head>.<layer>.linear.weight` is a residual block of a Medusa head, `<head>.<layer>.weight`
# the projection at its end.
_BLOCK = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.weight")
_PROJECTION = re.compile(r"(?:medusa_head\.)?0\.\d+\.weight")


def heads(folder: Path) -> dict[str, Any]:
    """The facts of heads.

    Returns:
        method (Eagle, Eagle3, Medusa or ReDrafter), hiddenSize, vocabSize, layers, numHeads,
        architecture, parameters; None for what their files do not tell.

    Raises:
        JobError: CheckpointCorrupt: no configuration, no weights, a damaged file.
    """
    config = checkpoint_config.read(folder, "config.json")
    tensors, names = _tensors(folder)
    blocks = [(int(m[1]), int(m[2])) for name in names if (m := _BLOCK.fullmatch(name))]
    found: dict[str, Any] = {
        "method": _method(config, medusa=bool(blocks)),
        "architecture": checkpoint_config.architecture(config),
        "hiddenSize": whole(config, "hidden_size"),
        "vocabSize": whole(config, "vocab_size"),
        "layers": whole(config, "num_hidden_layers"),
        "parameters": weights.parameters(tensors) or None,
    }
    if found["method"] == "Medusa":
        # The configuration of published heads may state fewer heads than their file has.
        found["layers"] = _ends(b[1] for b in blocks) or whole(config, "medusa_num_layers")
        found["numHeads"] = _ends(b[0] for b in blocks) or whole(config, "medusa_num_heads")
        last = next((s for n, s in tensors.items() if _PROJECTION.fullmatch(n)), ())
        if len(last) == 2:
            found["vocabSize"], found["hiddenSize"] = last
    elif found["method"] == "ReDrafter":
        found["layers"] = whole(config, "num_draft_layers")
    return found


def engine(folder: Path) -> dict[str, Any]:
    """The facts of a prebuilt engine, all from its config.json, once every rank's file is there.

    Raises:
        JobError: CheckpointCorrupt: no configuration, or other files than its ranks.
    """
    config = checkpoint_config.read(folder, "config.json")
    model, build = part(config, "pretrained_config"), part(config, "build_config")
    if not model or not build:
        raise corrupt(
            "its config.json has no pretrained_config and build_config: name the directory that "
            "trtllm-build wrote"
        )
    mapping, quantization = part(model, "mapping"), part(model, "quantization")
    ranks = number(mapping, "world_size", 1)
    missing = [r for r in range(ranks) if not (folder / f"rank{r}.engine").is_file()]
    files = len(list(folder.glob("rank*.engine")))
    if missing or files != ranks:
        raise corrupt(
            f"its config.json speaks of {ranks} ranks and it has {files} files rankN.engine: "
            "copy the whole engine directory"
        )
    plugins = part(build, "plugin_config")
    return {
        "version": word(config.get("version")),
        "architecture": word(model.get("architecture")),
        "dtype": word(model.get("dtype")),
        "vocabSize": whole(model, "vocab_size"),
        "tensorParallel": whole(mapping, "tp_size"),
        "pipelineParallel": whole(mapping, "pp_size"),
        "quantization": word(quantization.get("quant_algo")),
        "maxBatchSize": whole(build, "max_batch_size"),
        "maxInputLen": whole(build, "max_input_len"),
        "maxSeqLen": whole(build, "max_seq_len"),
        "maxNumTokens": whole(build, "max_num_tokens"),
        "maxDraftLen": whole(build, "max_draft_len"),
        "speculativeDecodingMode": str(build.get("speculative_decoding_mode"))[:40],
        "pagedContextFmha": plugins.get("use_paged_context_fmha") is True,
    }


def _tensors(folder: Path) -> tuple[Shapes, frozenset[str]]:
    """Shapes where a file tells them without being executed, and the names of all tensors."""
    if list(folder.glob("*.safetensors")):
        index = checkpoint_config.optional(folder, "model.safetensors.index.json") or None
        found = weights.shapes(folder, index)
        return found, frozenset(found)
    pickled = [*folder.glob("*.pt"), *folder.glob("*.bin")]
    if not pickled:
        raise corrupt("the heads have no .safetensors, .bin or .pt file")
    return {}, frozenset().union(*(weights.pickled_names(path) for path in pickled))


def _method(config: Config, *, medusa: bool) -> str:
    if medusa or "medusa_num_heads" in config:
        return "Medusa"
    if "num_draft_layers" in config:
        return "ReDrafter"
    if "draft_vocab_size" in config or "Eagle3" in checkpoint_config.architecture(config):
        return "Eagle3"
    return "Eagle"


def _ends(numbers: Any) -> int:
    """How many there are when counted from zero."""
    return max(numbers, default=-1) + 1
