"""Valid requests of every model, and their wire format."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from specdec.triton.contract import Tensor

Arrays = Mapping[str, NDArray[Any]]
TYPES = {
    "BOOL": np.bool_,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "UINT8": np.uint8,
    "FP16": np.float16,
    "FP32": np.float32,
    "BYTES": np.object_,
}
_PROMPT, _LIMIT = np.array([[b"def f("]], object), np.array([[2]], np.int32)
_TEXT: Arrays = {"text_input": _PROMPT, "max_tokens": _LIMIT}
_IDS: Arrays = {
    "input_ids": np.array([[5, 6, 7]], np.int32),
    "input_lengths": np.array([[3]], np.int32),
    "request_output_len": np.array([[2]], np.int32),
}
# A valid request of each model.
GOOD: Mapping[str, Arrays] = {
    "tensorrt_llm_bls": _TEXT,
    "ensemble": _TEXT,
    "preprocessing": {"QUERY": _PROMPT, "REQUEST_OUTPUT_LEN": _LIMIT},
    "postprocessing": {
        "TOKENS_BATCH": np.array([[[5, 6, 7]]], np.int32),
        "SEQUENCE_LENGTH": np.array([[3]], np.int32),
    },
    "tensorrt_llm": _IDS,
    "tensorrt_llm_draft": _IDS,
}


@dataclass(frozen=True)
class Kind:
    """One malformed request.

    Attributes:
        name: the model, the malformed part and its defect.
        model: name of the model that receives it.
        route: `grpc`, or the last part of the path of an HTTP request.
        body: the bytes on the wire.
        headers: the headers of an HTTP request.
    """

    name: str
    model: str
    route: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Request = Any


def request_of(model: str, arrays: Arrays) -> Request:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        add(request, name, wire_type(array), array.shape, bytes_of(array))
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def add(request: Request, name: str, kind: str, shape: tuple[int, ...], data: bytes) -> None:
    tensor = request.inputs.add()
    tensor.name, tensor.datatype = name, kind
    tensor.shape.extend(shape)
    request.raw_input_contents.append(data)


def wire_type(array: NDArray[Any]) -> str:
    return next(kind for kind, type_ in TYPES.items() if array.dtype == type_)


def bytes_of(array: NDArray[Any]) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(item)) + item for item in array.reshape(-1))


def value_of(tensor: Tensor) -> NDArray[Any]:
    """Return one row that the tensor's declaration allows."""
    kind = tensor.data_type.removeprefix("TYPE_").replace("STRING", "BYTES")
    shape = (1, *(size if size > 0 else 2 for size in tensor.dims))
    if kind == "BYTES":
        return np.full(shape, b"x", object)
    return np.ones(shape, TYPES[kind])
