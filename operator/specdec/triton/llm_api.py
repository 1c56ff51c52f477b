"""The model repository of TensorRT-LLM's LLM API: one Triton model that reads `model.yaml`.

The model's program is in the server's image. `1/model.py` of the repository finds it there.
Sources: `triton_backend/all_models/llmapi` of TensorRT-LLM.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from specdec.api.defaults import MAX_QUEUE_SIZE
from specdec.triton import pbtxt
from specdec.triton.contract import Tensor
from specdec.triton.model_names import TARGET
from specdec.triton.pbtxt import Batching, ModelConfig

CONFIGURATION = "model.yaml"
# A module that the model's program imports.
PACKAGES = "image_packages.py"
# Optional inputs by type. Every image reads them by name and ignores those that it does not know.
_OPTIONAL = {
    "BOOL": (
        "streaming",
        "sampling_param_exclude_input_from_output",
        "sampling_param_return_perf_metrics",
        "return_finish_reason",
        "return_stop_reason",
        "return_cumulative_logprob",
        "stop",
    ),
    "INT32": ("sampling_param_best_of", "sampling_param_top_k", "sampling_param_max_tokens"),
    "FP32": (
        "sampling_param_temperature",
        "sampling_param_top_p",
        "sampling_param_frequency_penalty",
        "sampling_param_presence_penalty",
    ),
    "UINT64": ("sampling_param_seed",),
}
_LORA = {"UINT64": ("lora_id",), "STRING": ("lora_name", "lora_path", "lora_ckpt_source")}
# Outputs by type and length; -1 is any length.
_OUTPUTS = (
    ("STRING", -1, ("text_output", "finish_reason", "stop_reason")),
    ("FP32", -1, ("cumulative_logprob", "kv_cache_hit_rate")),
    (
        "INT32",
        -1,
        (
            "kv_cache_reused_block",
            "kv_cache_missed_block",
            "kv_cache_alloc_new_blocks",
            "kv_cache_alloc_total_blocks",
        ),
    ),
    (
        "INT64",
        1,
        (
            "arrival_time_ns",
            "first_scheduled_time_ns",
            "first_token_time_ns",
            "last_token_time_ns",
        ),
    ),
    ("FP32", 1, ("acceptance_rate",)),
    ("INT32", 1, ("total_accepted_draft_tokens", "total_draft_tokens")),
)


@dataclass(frozen=True)
class LlmApiPlan:
    """Everything the repository depends on; two equal plans give the same bytes.

    Attributes:
        configuration: text of `model.yaml`.
        decoupled: whether the model streams, as `triton_config` of `model.yaml` has it.
        gpu_device_ids: ordinals inside the pod by instance; one instance needs none.
        max_queue_size: requests that may wait for the model; further ones are refused at once.
        lora: whether requests may name an adapter.
    """

    configuration: str
    decoupled: bool = True
    gpu_device_ids: tuple[tuple[int, ...], ...] = ()
    max_queue_size: int = MAX_QUEUE_SIZE
    lora: bool = False


def files(plan: LlmApiPlan) -> dict[str, str]:
    """Every file of the repository: path below its root -> text.

    Batch size and transaction policy are written out, because the operator starts servers without
    automatic completion of configurations.
    """
    lists = ";".join(",".join(map(str, ids)) for ids in plan.gpu_device_ids)
    config = ModelConfig(
        name=TARGET,
        backend="python",
        max_batch_size=0,
        inputs=tuple(_inputs(plan)),
        outputs=tuple(
            Tensor(name, f"TYPE_{kind}", (length,))
            for kind, length, names in _OUTPUTS
            for name in names
        ),
        parameters=(("gpu_device_ids", lists),) if lists else (),
        batching=Batching(max_queue_size=plan.max_queue_size),
        decoupled=plan.decoupled,
        instances=len(plan.gpu_device_ids) or 1,
    )
    payload = resources.files("specdec").joinpath("images")
    program = payload.joinpath("models", "llm_api", "1", "model.py")
    return {
        f"{TARGET}/1/model.py": program.read_text("utf-8"),
        f"{TARGET}/1/{PACKAGES}": payload.joinpath("build", PACKAGES).read_text("utf-8"),
        f"{TARGET}/1/{CONFIGURATION}": plan.configuration,
        f"{TARGET}/config.pbtxt": pbtxt.model(config),
    }


def _inputs(plan: LlmApiPlan) -> Iterator[Tensor]:
    yield Tensor("text_input", "TYPE_STRING", (-1,))
    yield Tensor("sampling_param_stop", "TYPE_STRING", (-1,), optional=True)
    tables = (_OPTIONAL, _LORA) if plan.lora else (_OPTIONAL,)
    for table in tables:
        for kind, names in table.items():
            for name in names:
                yield Tensor(name, f"TYPE_{kind}", (1,), optional=True)
