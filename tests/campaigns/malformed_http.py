"""Kinds of malformed requests over HTTP: in JSON, and with binary data after the JSON."""

import json
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from campaigns.good import GOOD, Kind, bytes_of, wire_type
from specdec.triton.contract import Tensor

# Values of a JSON field that every tensor or some tensors must refuse.
_JSON: dict[str, Any] = {
    "null": None,
    "true": True,
    "an object": {"a": 1},
    "a list": [1],
    "an empty list": [],
    "lists": [["a"], [1]],
    "a mixed list": [1, "a", None],
    "a fraction": 1.5,
    "a huge number": 10**30,
    "a negative number": -7,
    "a text": "text",
    "an empty text": "",
    "a text with NUL": "a\0b",
    "half of a character": "\ud800",
}


def of_json(model: str, tensors: tuple[Tensor, ...]) -> Iterator[Kind]:
    plain = {name: _plain(array) for name, array in GOOD[model].items()}
    for tensor in tensors:
        for name, value in _JSON.items():
            body = json.dumps({**plain, tensor.name: value}).encode()
            yield Kind(f"{model} generate: {tensor.name} is {name}", model, "generate", body)
    for name, text in _TEXTS.items():
        for route in ("generate", "generate_stream", "infer"):
            yield Kind(f"{model} {route}: {name}", model, route, text)
    for name, fields in _INFER.items():
        inputs = [
            {"name": key, "shape": list(array.shape), "datatype": "INT32", "data": [1], **fields}
            for key, array in GOOD[model].items()
        ]
        body = json.dumps({"inputs": inputs}).encode()
        yield Kind(f"{model} infer: {name}", model, "infer", body)


def _plain(array: NDArray[Any]) -> Any:
    item = array.reshape(-1)[0]
    return item.decode() if isinstance(item, bytes) else item.item()


_TEXTS = {
    "no body": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "a text": b'"a"',
    "bytes": b"\xff\xfe\0",
    "an empty object": b"{}",
    "a field twice": b'{"text_input": "a", "text_input": "b", "max_tokens": 1}',
    "inputs of a number": b'{"inputs": 1}',
    "inputs of null": b'{"inputs": [null]}',
    "inputs of numbers": b'{"inputs": [1, 2]}',
    "outputs of a number": b'{"inputs": [], "outputs": 1}',
    "parameters of a list": b'{"inputs": [], "parameters": [1]}',
    "a number without end": b'{"max_tokens": 1' + b"0" * 400 + b"}",
    "NaN": b'{"max_tokens": NaN}',
}
_INFER: dict[str, dict[str, Any]] = {
    "numbers for all": {},
    "shapes of text": {"shape": "one"},
    "shapes of texts": {"shape": ["1", "1"]},
    "negative shapes": {"shape": [-1, -1]},
    "fractions for shapes": {"shape": [1.5]},
    "huge shapes": {"shape": [2**62, 2**62]},
    "types of numbers": {"datatype": 7},
    "unknown types": {"datatype": "INT7"},
    "data of an object": {"data": {"a": 1}},
    "data of null": {"data": None},
    "data of mixed values": {"data": [1, "a", None, [2]]},
    "names of numbers": {"name": 7},
    "binary data that is not there": {"parameters": {"binary_data_size": 10**9}},
    "negative binary data": {"parameters": {"binary_data_size": -1}},
    "binary data of text": {"parameters": {"binary_data_size": "ten"}},
    "regions": {"parameters": {"shared_memory_region": "absent", "shared_memory_byte_size": 9}},
    "lists for parameters": {"parameters": [1]},
}


def of_binary(model: str) -> Iterator[Kind]:
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": wire_type(array),
            "parameters": {"binary_data_size": len(bytes_of(array))},
        }
        for name, array in GOOD[model].items()
    ]
    head = json.dumps({"inputs": inputs}).encode()
    data = b"".join(bytes_of(array) for array in GOOD[model].values())
    size = len(head)
    lengths = ("", "x", "-1", "0", "1", str(size - 1), str(size + 1), str(2**31), str(2**64))
    for length in lengths:
        headers = (("Inference-Header-Content-Length", length),)
        yield Kind(f"{model} infer: header of {length!r}", model, "infer", head + data, headers)
    right = (("Inference-Header-Content-Length", str(size)),)
    for name, tail in (("no", b""), ("half the", data[: len(data) // 2]), ("more", data * 2)):
        yield Kind(f"{model} infer: {name} binary data", model, "infer", head + tail, right)
    odd = (*right, ("Content-Encoding", "gzip"))
    yield Kind(f"{model} infer: not compressed", model, "infer", head + data, odd)
