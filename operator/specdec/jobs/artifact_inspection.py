"""Read the facts of draft heads (Medusa, EAGLE, ReDrafter) and of prebuilt engines.

`inspection` calls `heads` and `engine` for directories that are no complete checkpoint. Both read
configuration files and tensor headers only, and never execute a pickle.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.jobs import checkpoint_config, configuration_facts, weights
from specdec.jobs.checkpoint_config import Config, number, optional_number, section, short_text
from specdec.jobs.model_keys import count, keys, value
from specdec.jobs.weights import Shapes, corrupt

# `<head>.<layer>.linear.weight` is a residual block of a Medusa head, `<head>.<layer>.weight`
# the projection at its end.
_BLOCK = re.compile(r"(?:medusa_head\.)?(\d{1,4})\.(\d{1,4})\.linear\.weight", re.ASCII)
# A larger number is no index of a layer.
_MOST_LAYERS = 10_000
# Head and layer of each residual block of Medusa.
Blocks = Sequence[tuple[int, int]]
_PROJECTION = re.compile(r"(?:medusa_head\.)?0\.\d+\.weight")
# Without a sign in the configuration, only tensors distinguish heads of EAGLE-1 and Medusa.
_MEDUSA, _EAGLE, _DFLASH, _DSPARK = "Medusa", "Eagle", "DFlash", "DSpark"


def heads(folder: Path) -> CheckpointFacts:
    """The facts of draft heads.

    Raises:
        JobError: CheckpointCorrupt: no configuration, no weights, a damaged file.
    """
    config = checkpoint_config.read(folder, "config.json")
    tensors, names = _tensors(folder)
    blocks = [(int(m[1]), int(m[2])) for name in names if (m := _BLOCK.fullmatch(name))]
    method = _MEDUSA if blocks else _method(config) or _EAGLE
    facts = _stated(config, method).updated(
        CheckpointFacts(parameters=weights.parameters(tensors) or None)
    )
    return facts.updated(_medusa(config, tensors, blocks)) if "blocks" in _row(method) else facts


def stated(config: Config) -> CheckpointFacts:
    """The facts of draft heads that do not depend on their tensors.

    Without tensors the method is None for heads of EAGLE-1 or Medusa whose configuration does not
    show it.
    """
    return _stated(config, _method(config))


def _stated(config: Config, method: str | None) -> CheckpointFacts:
    row, layers = _row(method), _layer_ids(config)
    trained, last = optional_number(config, "num_target_layers"), max(layers, default=0)
    verifier = short_text(_first(config, "verifier"))
    facts = configuration_facts.checkpoint(config)
    if "layers" in row:
        facts = facts.updated(CheckpointFacts(layers=optional_number(config, row["layers"])))
    return facts.updated(
        CheckpointFacts(
            method=method,
            # EAGLE-3 heads may be narrower than the target, and have a smaller vocabulary.
            target_hidden_size=count(_first(config, "target_hidden_size")) or None,
            draft_vocab_size=optional_number(config, "draft_vocab_size"),
            block_size=count(_first(config, "block_size")) or None,
            mask_token=count(_first(config, "mask_token")),
            # A number that the layers exceed counts these.
            target_layers=None if trained is None or trained <= last else trained,
            captured_layers=len(layers) or None,
            last_target_layer=last if layers else None,
            verifier=verifier if verifier and verifier.isprintable() else None,
            layout="speculators" if "speculators_model_type" in config else None,
        )
    )


def _row(method: str | None) -> Config:
    """What the table has about heads of a method."""
    rows: Iterator[Config] = (row for row in keys()["heads"] if row["method"] == method)
    return next(rows, {})


def _method(config: Config) -> str | None:
    """The method that a configuration shows; None for EAGLE-1 and Medusa without a sign of it."""
    architecture = checkpoint_config.architecture(config)
    rows, kind = keys()["heads"], config.get("speculators_model_type")
    # Another method names itself in the class of its drafts.
    own = architecture.removesuffix("DraftModel")
    signs = (
        *(row["method"] for row in rows if row.get("architecture", "\n") in architecture),
        *([own] if own not in (architecture, "") else ()),
        *(row["method"] for row in rows if kind and kind == row.get("speculators")),
        *(row["method"] for row in rows if row.get("key") in config),
    )
    method: str | None = next(iter(signs), None)
    return _DSPARK if method == _DFLASH and _is_dspark(config) else method


def _first(config: Config, name: str) -> Any:
    """The value of the first of the keys of a fact about heads."""
    stated = (value(config, key) for key in keys()["head_keys"][name])
    return next((each for each in stated if each is not None), None)


def _layer_ids(config: Config) -> list[int]:
    stated = _first(config, "layer_ids")
    return [each for each in stated if _is_layer(each)] if isinstance(stated, list) else []


def _is_layer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_LAYERS


def engine(folder: Path) -> CheckpointFacts:
    """The facts of a prebuilt engine, read from its config.json.

    Raises:
        JobError: CheckpointCorrupt: no configuration, or the rank files do not match the
            ranks that it states.
    """
    config = checkpoint_config.read(folder, "config.json")
    model, build = section(config, "pretrained_config"), section(config, "build_config")
    if not model or not build:
        raise corrupt(
            "its config.json has no pretrained_config and build_config: name the directory that "
            "trtllm-build wrote"
        )
    mapping, quantization = section(model, "mapping"), section(model, "quantization")
    ranks = number(mapping, "world_size", 1)
    files = len(list(folder.glob("rank*.engine")))
    # The number is compared first: config.json may state any.
    if files != ranks or not all((folder / f"rank{r}.engine").is_file() for r in range(ranks)):
        raise corrupt(
            f"its config.json states {ranks} ranks and it has {files} files rankN.engine: "
            "copy the whole engine directory"
        )
    plugins = section(build, "plugin_config")
    return CheckpointFacts(
        version=short_text(config.get("version")),
        architecture=short_text(model.get("architecture")),
        dtype=short_text(model.get("dtype")),
        vocab_size=optional_number(model, "vocab_size"),
        tensor_parallel=optional_number(mapping, "tp_size"),
        pipeline_parallel=optional_number(mapping, "pp_size"),
        quantization=short_text(quantization.get("quant_algo")),
        max_batch_size=optional_number(build, "max_batch_size"),
        max_input_len=optional_number(build, "max_input_len"),
        max_seq_len=optional_number(build, "max_seq_len"),
        max_num_tokens=optional_number(build, "max_num_tokens"),
        max_draft_len=checkpoint_config.draft_length(model, build),
        speculative_decoding_mode=str(build.get("speculative_decoding_mode"))[:40],
        paged_context_fmha=plugins.get("use_paged_context_fmha") is True,
    )


def _tensors(folder: Path) -> tuple[Shapes, frozenset[str]]:
    """Tensor shapes from safetensors headers, and the names of all tensors.

    A pickled file yields names alone: reading shapes would mean executing it.
    """
    if list(folder.glob("*.safetensors")):
        index = checkpoint_config.optional(folder, "model.safetensors.index.json") or None
        shapes = weights.shapes(folder, index)
        return shapes, frozenset(shapes)
    pickled = [*folder.glob("*.pt"), *folder.glob("*.bin")]
    if not pickled:
        raise corrupt("the heads have no .safetensors, .bin or .pt file")
    return {}, frozenset().union(*(weights.pickled_names(path) for path in pickled))


def _medusa(config: Config, tensors: Shapes, blocks: Blocks) -> CheckpointFacts:
    """The configuration of published heads may state fewer heads than their file has."""
    layers, heads = (_count(block[place] for block in blocks) for place in (1, 0))
    last = next((s for n, s in tensors.items() if _PROJECTION.fullmatch(n)), ())
    vocabulary, hidden = last if len(last) == 2 else (None, None)
    return CheckpointFacts(
        layers=layers or None,
        num_heads=heads or optional_number(config, "medusa_num_heads"),
        vocab_size=vocabulary,
        hidden_size=hidden,
    )


def _is_dspark(config: Config) -> bool:
    """Whether a draft has the further heads of DSpark, which TensorRT-LLM refuses as DFlash."""
    places = (config, section(config, "dflash_config"), section(config, "dspark_config"))
    return "DSpark" in checkpoint_config.architecture(config) or any(
        optional_number(place, "markov_rank")
        or place.get("shift_label") is True
        or place.get("use_confidence_head") is True
        or str(place.get("projector_type")).lower() == "dspark"
        for place in places
    )


def _count(indices: Any) -> int:
    """The length of a list whose indices are given."""
    return max(indices, default=-1) + 1
