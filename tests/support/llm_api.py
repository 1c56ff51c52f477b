"""The published Triton model of TensorRT-LLM's LLM API, and the schemas of its `model.yaml`.

The tables are written from TensorRT-LLM's documentation and sources, not from our own output.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tritonclient.grpc import model_config_pb2

_DATA = Path(__file__).with_name("llm_api.yaml")


@cache
def _data() -> Any:
    return yaml.safe_load(_DATA.read_text("utf-8"))


def llm_api_differences(config: Any) -> list[str]:
    """Return the differences between a parsed `config.pbtxt` and the published model."""
    tables = _data()["model"]
    differing: list[str] = []
    for kind in ("input", "output"):
        ours = {
            tensor.name: f"{model_config_pb2.DataType.Name(tensor.data_type)} {list(tensor.dims)}"
            for tensor in getattr(config, kind)
        }
        published = {
            name: f"TYPE_{dtype} [{length}]"
            for dtype, length, names in tables[kind]
            for name in names
        }
        later = {name for _, _, names in tables.get(f"later_{kind}", ()) for name in names}
        differing += [
            f"{kind} {name} is only in {'ours' if name in ours else 'theirs'}"
            for name in sorted((ours.keys() ^ published.keys()) - later)
        ]
        differing += [
            f"{kind} {name} is {ours[name]}, published as {published[name]}"
            for name in sorted(ours.keys() & published.keys())
            if ours[name] != published[name]
        ]
    required = [tensor.name for tensor in config.input if not tensor.optional]
    if required != ["text_input"]:
        differing.append(f"required inputs are {required}")
    return differing


def options_schema(version: str) -> dict[str, Any]:
    """Return the schema of the options file of `trtllm-serve`, which has only LLM arguments."""
    own = schema(version)
    known = dict(own["properties"])
    for name in ("model", "backend", "triton_config"):
        del known[name]
    flags = {"enable_iter_perf_stats": {"type": "boolean"}}
    return {**own, "required": ["tensor_parallel_size"], "properties": {**known, **flags}}


def schema(version: str) -> dict[str, Any]:
    """Return the JSON schema of `model.yaml` that applies to a version."""
    numbers = tuple(int(part) for part in version.split("."))
    schemas = _data()["schemas"]
    known = {tuple(int(p) for p in since.split(".")): s for since, s in schemas.items()}
    result: dict[str, Any] = known[max(since for since in known if since <= numbers)]
    return result
