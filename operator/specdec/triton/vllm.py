"""The model repository of vLLM: one Triton model, whose program this package has.

The model has the inputs and outputs of NVIDIA's vLLM backend, and its own besides.
Source of the former: `src/model.py` of triton-inference-server/vllm_backend.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources

from specdec.api.defaults import MAX_QUEUE_SIZE
from specdec.triton import pbtxt
from specdec.triton.contract import STOP, Tensor
from specdec.triton.model_names import VLLM
from specdec.triton.pbtxt import Batching, ModelConfig

ARGUMENTS = "model.json"
ADAPTERS = "multi_lora.json"
_LENGTH = "max_model_len"
# Inputs by type and length, of which a request needs `text_input` or `input_ids`.
_INPUTS = (
    ("STRING", 1, ("text_input", "sampling_parameters")),
    (
        "BOOL",
        1,
        (
            "stream",
            "exclude_input_in_output",
            "return_finish_reason",
            "return_cumulative_logprob",
            "return_logprobs",
            "return_num_input_tokens",
            "return_num_output_tokens",
        ),
    ),
)
_OUTPUTS = (
    ("STRING", -1, ("text_output", "finish_reason", "logprobs")),
    ("FP32", -1, ("cumulative_logprob",)),
    ("UINT32", 1, ("num_input_tokens",)),
    ("UINT32", -1, ("num_output_tokens",)),
)
# Not in NVIDIA's backend.
_OWN_INPUTS = (
    Tensor("input_ids", "TYPE_INT32", (-1,), optional=True, added=True),
    Tensor("return_token_ids", "TYPE_BOOL", (1,), optional=True, added=True),
    STOP,
)
_OWN_OUTPUTS = (
    Tensor("output_ids", "TYPE_INT32", (-1,), added=True),
    Tensor("total_draft_tokens", "TYPE_INT32", (1,), added=True),
    Tensor("total_accepted_draft_tokens", "TYPE_INT32", (1,), added=True),
    Tensor("acceptance_histogram", "TYPE_INT32", (-1,), added=True),
)


@dataclass(frozen=True)
class VllmPlan:
    """Everything the repository depends on; two equal plans give the same bytes.

    Attributes:
        arguments: text of `model.json`, the arguments of vLLM's AsyncEngineArgs by name.
        decoupled: whether the model streams.
        gpu_device_ids: ordinals inside the pod by instance; one instance needs none.
        max_queue_size: requests that may wait for the model; further ones are refused at once.
        lora: the adapters that requests may name, name -> path.
    """

    arguments: str
    decoupled: bool = True
    gpu_device_ids: tuple[tuple[int, ...], ...] = ()
    max_queue_size: int = MAX_QUEUE_SIZE
    lora: Mapping[str, str] = field(default_factory=dict, hash=False)


def files(plan: VllmPlan) -> dict[str, str]:
    """Every file of the repository: path below its root -> text.

    Batch size and transaction policy are written out, because the operator starts servers without
    automatic completion of configurations.
    """
    config = ModelConfig(
        name=VLLM,
        backend="python",
        max_batch_size=0,
        inputs=(*_published(_INPUTS, optional=True), *_OWN_INPUTS),
        outputs=(*_published(_OUTPUTS), *_OWN_OUTPUTS),
        parameters=tuple(_parameters(plan)),
        batching=Batching(max_queue_size=plan.max_queue_size),
        decoupled=plan.decoupled,
        instances=len(plan.gpu_device_ids) or 1,
    )
    adapters = json.dumps(dict(plan.lora), indent=2) + "\n"
    return {
        **{f"{VLLM}/1/{name}": text for name, text in _program()},
        f"{VLLM}/1/{ARGUMENTS}": plan.arguments,
        **({f"{VLLM}/1/{ADAPTERS}": adapters} if plan.lora else {}),
        f"{VLLM}/config.pbtxt": pbtxt.model(config),
    }


def _program() -> Iterator[tuple[str, str]]:
    """The files of the program by their paths beside `model.py`."""
    folder = resources.files("specdec").joinpath("images", "models", "vllm", "1")
    yield "model.py", folder.joinpath("model.py").read_text("utf-8")
    package = folder.joinpath("specdec_vllm")
    for file in sorted(package.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".py"):
            yield f"{package.name}/{file.name}", file.read_text("utf-8")


def _parameters(plan: VllmPlan) -> Iterator[tuple[str, str]]:
    if plan.gpu_device_ids:
        lists = ";".join(",".join(map(str, ids)) for ids in plan.gpu_device_ids)
        yield "gpu_device_ids", lists
    # The OpenAI endpoint reads the longest sequence here.
    if longest := json.loads(plan.arguments).get(_LENGTH):
        yield "max_seq_len", str(longest)


def _published(
    table: tuple[tuple[str, int, tuple[str, ...]], ...], *, optional: bool = False
) -> Iterator[Tensor]:
    for kind, length, names in table:
        for name in names:
            yield Tensor(name, f"TYPE_{kind}", (length,), optional=optional)
