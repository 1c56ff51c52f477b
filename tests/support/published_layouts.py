"""The published repository layouts as test data, and the differences of a `config.pbtxt`."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

TABLES = Path(__file__).parents[1] / "unit" / "triton" / "contract"
VERSIONS = tuple(sorted(path.stem for path in TABLES.glob("*.txt")))
ENGINES = ("tensorrt_llm", "tensorrt_llm_draft")
# Queue delays (microseconds), which the layout leaves open; the second is for calls of few rows.
DELAYS = (0, 500)
STEPS = ("preprocessing", "tensorrt_llm", "postprocessing")
# Parameters that our own models have beside those of the layout.
OURS = {
    "preprocessing": {"max_seq_len"},
    "tensorrt_llm_bls": {
        "num_draft_tokens",
        "max_draft_tokens",
        "max_seq_len",
        "draft_ahead",
        "lookup_min_match",
        "lookup_memory_megabytes",
        "rows_per_call",
        "synchronize_rounds",
        "draft_length_policy",
        "min_draft_length",
        "max_draft_length",
        "use_draft_logits",
        "max_in_flight",
        "tokenizer_dir",
        "skip_special_tokens",
        "add_special_tokens",
    },
}
# Inputs and outputs that our own models have beside those of the layout.
OUR_TENSORS = {
    "in": {"tensorrt_llm_bls": {"lookup_scope STRING [1] o", "stop BOOL [1] o"}},
    "out": {"tensorrt_llm_bls": {"acceptance_histogram INT32 [-1] -"}},
}
# Models that the layout runs in Python, and that the operator runs in its own backend.
BACKENDS = {"tensorrt_llm_bls": "specdec"}
Table = dict[str, list[list[str]]]


def parse(text: str) -> Any:
    """Return a `config.pbtxt` as Triton reads it."""
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(_parsed(text))
    return config


@cache
def _parsed(text: str) -> Any:
    # The parser is in Python and takes 20 ms; many tests read the same files.
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@cache
def table(version: str) -> Table:
    """Return the lines of a release's table by section, split at white space."""
    table: Table = {}
    for line in (TABLES / f"{version}.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = table.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line.split())
    return table


def differences(config: Any, version: str, logits: str = "FP32") -> list[str]:
    """Return a sentence for every field of a configuration that differs from the layout.

    Args:
        config: a parsed ModelConfig.
        version: a release of VERSIONS.
        logits: data type of the engine's logits, without the prefix `TYPE_`.
    """
    # The draft's model is a copy of the target's under another name.
    model = "tensorrt_llm" if config.name in ENGINES else config.name
    published = table(version)
    differences = [*_tensors(config, published, model, logits), *_head(config, published, model)]
    if model == "ensemble":
        differences += _steps(config, published)
    else:
        differences += _parameters(config, published[f"{model} key"], OURS.get(model, set()))
    return [f"{config.name} of {version}: {difference}" for difference in differences]


def _tensors(config: Any, published: Table, model: str, logits: str) -> Iterator[str]:
    for side, tensors in (("in", config.input), ("out", config.output)):
        expected = Counter(
            f"{name} {kind.replace('LOGITS', logits)} {dims} {flags}"
            for kind, dims, flags, *names in published[f"{model} {side}"]
            for name in names
        )
        declared = Counter(_tensor(tensor) for tensor in tensors)
        yield from (f"{side} lacks {tensor}" for tensor in (expected - declared).elements())
        more = declared - expected
        ours = OUR_TENSORS[side].get(model, set())
        yield from (f"{side} has {tensor}" for tensor in more.elements() if tensor not in ours)


def _tensor(tensor: Any) -> str:
    kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    dims = ",".join(str(size) for size in tensor.dims)
    flags = "o" * bool(getattr(tensor, "optional", False))
    if tensor.HasField("reshape"):
        flags += "r" if not tensor.reshape.shape else f"reshape{list(tensor.reshape.shape)}"
    flags += "g" * bool(getattr(tensor, "allow_ragged_batch", False))
    return f"{tensor.name} {kind} [{dims}] {flags or '-'}"


def _head(config: Any, published: Table, model: str) -> Iterator[str]:
    ((_, backend, *others),) = published[f"{model} head"]
    expected = [BACKENDS.get(model, backend), *others]
    if model != "ensemble" and expected[1] == "none":
        # The layout has no batcher here; ours has one, and everything else must be equal.
        expected[1] = "bounded" if model == "tensorrt_llm_bls" else "default"
    kinds = {model_config_pb2.ModelInstanceGroup.Kind.Name(g.kind) for g in config.instance_group}
    head = [
        config.platform or config.backend,
        _batching(config),
        "decoupled" if config.HasField("model_transaction_policy") else "none",
        "+".join(kinds) or "none",
    ]
    if head != expected:
        yield f"head is {' '.join(head)}, not {' '.join(expected)}"
    if config.max_batch_size < 1:
        yield f"max_batch_size is {config.max_batch_size}"
    if model in ENGINES and [group.count for group in config.instance_group] != [1]:
        yield "the number of instances is not 1"
    known = {field.name for field, _ in config.ListFields()} - _KNOWN
    yield from (f"sets {name}" for name in sorted(known))


_KNOWN = {"name", "platform", "backend", "max_batch_size", "input", "output", "parameters"}
_KNOWN |= {"instance_group", "dynamic_batching", "model_transaction_policy"}
_KNOWN |= {"ensemble_scheduling"}


def _batching(config: Any) -> str:
    if not config.HasField("dynamic_batching"):
        return "none"
    batching = config.dynamic_batching
    if not batching.ListFields():
        return "default"
    if not batching.preferred_batch_size:
        # Our BLS has a batcher, because Triton corrupts its heap without one, and a bounded queue.
        bound = batching.default_queue_policy.max_queue_size
        return "bounded" if bound and not batching.max_queue_delay_microseconds else "odd"
    whole = list(batching.preferred_batch_size) == [config.max_batch_size]
    delays = DELAYS if config.name in ENGINES else DELAYS[:1]
    usual = whole and batching.max_queue_delay_microseconds in delays
    return "queue" if usual and batching.HasField("default_queue_policy") else "odd"


def _parameters(config: Any, lines: list[list[str]], ours: set[str]) -> Iterator[str]:
    present = {key: value.string_value for key, value in config.parameters.items()}
    keys = {key for kind, *names in lines if kind == "key" for key in names} | ours
    allowed = keys | {key for kind, *names in lines if kind == "may" for key in names}
    yield from (f"lacks parameter {key}" for key in sorted(keys - present.keys()))
    yield from (f"has parameter {key}" for key in sorted(present.keys() - allowed))
    for kind, *values in lines:
        if kind == "required":
            yield from (f"parameter {key} is empty" for key in values if not present.get(key))
        elif kind == "value" and (value := present.get(values[0])) and value not in values[1:]:
            yield f"parameter {values[0]} is {value!r}"


def _steps(config: Any, published: Table) -> Iterator[str]:
    steps = config.ensemble_scheduling.step
    if (names := tuple(step.model_name for step in steps)) != STEPS:
        yield f"its steps are {names}"
    for step in steps:
        if step.model_version != -1:
            yield f"step {step.model_name} asks for version {step.model_version}"
        lines = published.get(f"{step.model_name} map", [])
        for arrow, tensors in (("<-", step.input_map), ("->", step.output_map)):
            expected = {inner: outer for _, inner, way, outer in lines if way == arrow}
            pairs = set(tensors.items()) ^ set(expected.items())
            yield from (f"step {step.model_name}: {a} {arrow} {b}" for a, b in sorted(pairs))
