"""Plans of model repositories, and their rendered configurations."""

from dataclasses import replace
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from specdec.backends.facts import NO_VOLUME
from specdec.backends.methods import lookahead
from specdec.desired.repository import content_hash
from specdec.triton.repository import ModelPlan, RepositoryPlan

PLAN = RepositoryPlan(
    version="0.19.0",
    tokenizer_dir="/models/checkpoints/abc",
    target=ModelPlan("/models/engines/target", (0, 1), kv_cache_fraction="0.40"),
    draft=ModelPlan("/models/engines/draft", (2,), max_tokens_in_paged_kv_cache=2560),
    draft_tokens=4,
    max_draft_tokens=8,
)
LOOKAHEAD = replace(
    PLAN,
    target=replace(PLAN.target, parameters=lookahead.parameters(5, 4, 3)),
    draft=None,
    draft_tokens=0,
)
PLAIN = replace(PLAN, version="0.18.0", draft=None, draft_tokens=0)


def config(files: dict[str, str], model: str) -> Any:
    return text_format.Parse(files[f"{model}/config.pbtxt"], model_config_pb2.ModelConfig())


def parameters(files: dict[str, str], model: str) -> dict[str, str]:
    return {k: v.string_value for k, v in config(files, model).parameters.items()}


def digest(files: dict[str, str]) -> str:
    """Return the hash that is the name of a published repository."""
    return content_hash(files, [], NO_VOLUME)


def models(files: dict[str, str]) -> set[str]:
    return {path.split("/")[0] for path in files}
