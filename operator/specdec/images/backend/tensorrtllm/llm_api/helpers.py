"""What the program of the LLM API reads from a request, beside it as in TensorRT-LLM's images."""

from typing import Any

import triton_python_backend_utils as pb_utils


def get_sampling_params_from_request(request: Any) -> dict[str, Any]:
    """Arguments of the LLM API's `SamplingParams`; here only the stop texts.

    As in TensorRT-LLM, these are the tensor's values: an array of bytes, which no tokenizer takes.
    """
    tensor = pb_utils.get_input_tensor_by_name(request, "sampling_param_stop")
    return {"stop": None if tensor is None else tensor.as_numpy()}
