"""Read the facts of draft heads (Medusa, EAGLE, ReDrafter) and of prebuilt engines.

`inspection` calls `heads` and `engine` for directories that are no complete checkpoint. Both read
configuration files and tensor headers only, and never execute a pickle.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.jobs import checkpoint_config, weights
from specdec.jobs.checkpoint_config import Config, number, optional_number, section, short_text
from specdec.jobs.weights import Shapes, corrupt

# `<head>.<layer>.linear.weight` is a residual block of a Medusa head, `<head>.<layer>.weight`
# the projection at its end.
_BLOCK = re.compile(r"(?:medusa_head\.)?(\d{1,4})\.(\d{1,4})\.linear\.weight", re.ASCII)
# A larger number is no index of a layer.
_MOST_LAYERS = 10_000
# Head and layer of each residual block of Medusa.
Blocks = Sequence[tuple[int, int]]
_PROJECTION = re.compile(r"(?:medusa_head\.)?0\.\d+\.weight")


def heads(folder: Path) -> CheckpointFacts:
    """The facts of draft heads.

    Raises:
        JobError: CheckpointCorrupt: no configuration, no weights, a damaged file.
    """
    config = checkpoint_config.read(folder, "config.json")
    tensors, names = _tensors(folder)
    blocks = [(int(m[1]), int(m[2])) for name in names if (m := _BLOCK.fullmatch(name))]
    form = _MEDUSA if blocks else _form(config)
    facts = CheckpointFacts(
        architecture=checkpoint_config.architecture(config),
        layers=optional_number(config, form.layers),
        heads=optional_number(config, "num_attention_heads"),
        kv_heads=optional_number(config, "num_key_value_heads"),
        parameters=weights.parameters(tensors) or None,
    )
    facts = facts.updated(_configuration(config, form))
    return facts.updated(form.facts(config, tensors, blocks))


def heads_configuration(folder: Path) -> CheckpointFacts:
    """The facts of draft heads that do not depend on their tensors.

    Raises:
        JobError: CheckpointCorrupt: no configuration.
    """
    config = checkpoint_config.read(folder, "config.json")
    form = _form(config)
    return _configuration(config, form) if form.by_configuration else NO_FACTS


def _configuration(config: Config, form: "_Form") -> CheckpointFacts:
    facts = CheckpointFacts(
        method=form.method,
        hidden_size=optional_number(config, "hidden_size"),
        vocab_size=optional_number(config, "vocab_size"),
        # EAGLE-3 heads may be narrower than the target, and have a smaller vocabulary.
        target_hidden_size=optional_number(config, "target_hidden_size"),
        draft_vocab_size=optional_number(config, "draft_vocab_size"),
    )
    return facts.updated(block_draft(config))


def block_draft(config: Config) -> CheckpointFacts:
    """The facts of a draft that proposes a block of tokens from hidden states of the target.

    Other heads have none.
    """
    form = _form(config)
    if not form.reads_target:
        return NO_FACTS
    own = section(config, "dflash_config")
    stated = own.get("target_layer_ids")
    layers = [each for each in stated if _is_layer(each)] if isinstance(stated, list) else []
    heads, hidden = (
        optional_number(config, key) or 0 for key in ("num_attention_heads", "hidden_size")
    )
    mask = optional_number(own, "mask_token_id")
    return CheckpointFacts(
        method=form.method,
        head_dim=optional_number(config, "head_dim") or (hidden // heads if heads else None),
        max_position=optional_number(config, "max_position_embeddings"),
        block_size=optional_number(config, "block_size"),
        mask_token=optional_number(config, "mask_token_id") if mask is None else mask,
        target_layers=optional_number(config, "num_target_layers"),
        captured_layers=len(layers) or None,
        last_target_layer=max(layers, default=None),
    )


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


@dataclass(frozen=True)
class _Form:
    """How the heads of a method are stored.

    Attributes:
        method: whose heads they are.
        layers: the key of the number of layers.
        facts: what the tensors of such heads show.
        by_configuration: the configuration alone shows the method.
        reads_target: they propose a block of tokens from hidden states of the target.
    """

    method: str
    layers: str = "num_hidden_layers"
    facts: Callable[[Config, Shapes, Blocks], CheckpointFacts] = lambda *_: NO_FACTS
    by_configuration: bool = True
    reads_target: bool = False


# Only tensors distinguish heads of EAGLE from those of Medusa.
_MEDUSA = _Form("Medusa", "medusa_num_layers", _medusa, by_configuration=False)
_EAGLE = _Form("Eagle", by_configuration=False)
_RE_DRAFTER, _EAGLE3 = _Form("ReDrafter", "num_draft_layers"), _Form("Eagle3")
_DFLASH, _DSPARK = _Form("DFlash", reads_target=True), _Form("DSpark", reads_target=True)


def _form(config: Config) -> _Form:
    """The form of heads by their configuration."""
    architecture = checkpoint_config.architecture(config)
    if "medusa_num_heads" in config:
        return _MEDUSA
    if "num_draft_layers" in config:
        return _RE_DRAFTER
    if _is_dspark(config):
        return _DSPARK
    if "dflash_config" in config or _DFLASH.method in architecture:
        return _DFLASH
    if "draft_vocab_size" in config or _EAGLE3.method in architecture:
        return _EAGLE3
    return _EAGLE


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
