"""Kinds of malformed requests, made from the tables of the contract; each has a name.

A kind is a valid request of a model with one defect: in a tensor's type, shape, bytes or value, in
the request around the tensors, or in its JSON form. Three inputs are left out, because they end
Triton 2.51 itself, outside every model: deeply nested JSON, bodies sent in chunks of one byte, and
classification of an output of strings (tests/triton/test_battery.py shows the last).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaigns.good import GOOD, TYPES, Kind, Request, add, request_of, value_of
from campaigns.malformed_http import of_binary, of_json
from specdec.triton import contract
from specdec.triton.contract import Tensor

Spoil = Callable[[Request, int], None]


def kinds(model: str, version: str) -> Iterator[Kind]:
    """Yield all kinds for one model of a release."""
    tensors = contract.inputs(model, version)
    for tensor in tensors:
        yield from _of_tensor(model, tensor)
    yield from _of_requests(model)
    yield from of_json(model, tensors)
    yield from of_binary(model)


def _of_tensor(model: str, tensor: Tensor) -> Iterator[Kind]:
    good = dict(GOOD[model])
    value = good.get(tensor.name, value_of(tensor))
    arrays = {**good, tensor.name: value}
    place = list(arrays).index(tensor.name)
    for name, spoil in _SPOILT.items():
        request = request_of(model, arrays)
        spoil(request, place)
        yield _grpc(model, f"{tensor.name} {name}", request)
    for name, other in _values(value):
        yield _grpc(
            model, f"{tensor.name} {name}", request_of(model, {**arrays, tensor.name: other})
        )
    if not tensor.optional:
        rest = {key: array for key, array in good.items() if key != tensor.name}
        yield _grpc(model, f"{tensor.name} is missing", request_of(model, rest))


def _grpc(model: str, name: str, request: Request) -> Kind:
    return Kind(f"{model} grpc: {name}", model, "grpc", request.SerializeToString())


def _typed(kind: str) -> Spoil:
    def spoil(request: Request, place: int) -> None:
        tensor = request.inputs[place]
        tensor.datatype = kind
        count = math.prod(tensor.shape)
        data = b"\x01\0\0\0x" * count
        if kind != "BYTES" and kind in TYPES:
            data = bytes(np.dtype(TYPES[kind]).itemsize * count)
        request.raw_input_contents[place] = data

    return spoil


def _shaped(change: Callable[[list[int]], list[int]], *, filled: bool = True) -> Spoil:
    """Return a defect that changes the shape; with `filled` the bytes fit the new shape."""

    def spoil(request: Request, place: int) -> None:
        tensor = request.inputs[place]
        before = math.prod(tensor.shape)
        shape = change(list(tensor.shape))
        del tensor.shape[:]
        tensor.shape.extend(shape)
        if filled:
            data = request.raw_input_contents[place]
            item = len(data) // before
            request.raw_input_contents[place] = data[:item] * math.prod(shape)

    return spoil


def _bytes_of(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(request: Request, place: int) -> None:
        request.raw_input_contents[place] = change(request.raw_input_contents[place])

    return spoil


def _parameter(name: str, **value: Any) -> Spoil:
    def spoil(request: Request, place: int) -> None:
        for key, content in value.items():
            setattr(request.inputs[place].parameters[name], key, content)

    return spoil


def _shared(request: Request, place: int) -> None:
    tensor = request.inputs[place]
    tensor.parameters["shared_memory_region"].string_param = "absent"
    tensor.parameters["shared_memory_byte_size"].int64_param = 64
    del request.raw_input_contents[place]


def _twice(request: Request, place: int) -> None:
    request.inputs.add().CopyFrom(request.inputs[place])
    request.raw_input_contents.append(request.raw_input_contents[place])


def _both_forms(request: Request, place: int) -> None:
    request.inputs[place].contents.int_contents.append(1)


def _unnamed(request: Request, place: int) -> None:
    request.inputs[place].name = ""


_SPOILT: dict[str, Spoil] = {
    **{
        f"as {kind}": _typed(kind)
        for kind in ("BOOL", "INT32", "INT64", "UINT8", "FP16", "FP32", "BYTES", "", "NUMBER")
    },
    "without rows": _shaped(lambda shape: [0, *shape[1:]]),
    "with an empty last dimension": _shaped(lambda shape: [*shape[:-1], 0]),
    "without its first dimension": _shaped(lambda shape: shape[1:]),
    "with one more dimension": _shaped(lambda shape: [*shape, 1]),
    "with eight more dimensions": _shaped(lambda shape: [1] * 8 + shape),
    "without a shape": _shaped(lambda _: []),
    "of two rows": _shaped(lambda shape: [2, *shape[1:]]),
    "of seventeen rows": _shaped(lambda shape: [17, *shape[1:]]),
    "one longer": _shaped(lambda shape: [*shape[:-1], shape[-1] + 1]),
    "a thousand times longer": _shaped(lambda shape: [*shape[:-1], shape[-1] * 1000]),
    "with a dimension of -1": _shaped(lambda shape: [*shape[:-1], -1], filled=False),
    "with two negative dimensions": _shaped(lambda _: [-1, -1], filled=False),
    "of 2^31 elements by its shape": _shaped(lambda shape: [1, 2**31], filled=False),
    "of 2^64 elements by its shape": _shaped(lambda _: [2**32, 2**32], filled=False),
    "of 2^62 rows by its shape": _shaped(lambda shape: [2**62, *shape[1:]], filled=False),
    "a byte short": _bytes_of(lambda data: data[:-1]),
    "a byte long": _bytes_of(lambda data: data + b"\0"),
    "without bytes": _bytes_of(lambda _: b""),
    "of ones": _bytes_of(lambda data: b"\xff" * len(data)),
    "of two bytes": _bytes_of(lambda _: b"\x01\x02"),
    "in an unknown region": _shared,
    "twice": _twice,
    "in two forms": _both_forms,
    "without a name": _unnamed,
    "with a binary size": _parameter("binary_data_size", int64_param=1 << 40),
    "with an odd parameter": _parameter("classification", int64_param=-1),
}


def _values(value: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    if value.dtype == np.object_:
        given: dict[str, Any] = {
            "empty": b"",
            "no UTF-8": b"\xff\xfe\xfa",
            "half of a character": b"\xf0\x9f\x98",
            "a NUL": b"a\0b",
            "blanks": b" \n\t ",
            "escapes": b"\x1b[31m\xe2\x80\xae",
            "20 kB": b"x" * 20_000,
        }
    elif np.issubdtype(value.dtype, np.integer):
        limits = np.iinfo(value.dtype)
        given = {"0": 0, "the least": limits.min, "the most": limits.max, "300": 300 % 256}
        given |= {"-1": -1, "-2": -2} if limits.min < 0 else {}
    elif value.dtype == np.bool_:
        given = {"false": False}
    else:
        given = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf, "0": 0, "-1": -1, "tiny": 6e-8}
        given |= {"the most": np.finfo(value.dtype).max, "the least": np.finfo(value.dtype).min}
    for name, item in given.items():
        other = np.empty_like(value)
        other[...] = item
        yield f"is {name}", other


def _of_requests(model: str) -> Iterator[Kind]:
    for name, spoil in _REQUESTS.items():
        request = request_of(model, GOOD[model])
        spoil(request)
        yield _grpc(model, name, request)
    data = request_of(model, GOOD[model]).SerializeToString()
    for name, body in (("half a message", data[: len(data) // 2]), ("no message", b"\xff" * 9)):
        yield Kind(f"{model} grpc: {name}", model, "grpc", body)


def _set(**values: Any) -> Callable[[Request], None]:
    def spoil(request: Request) -> None:
        for key, value in values.items():
            setattr(request, key, value)

    return spoil


def _option(name: str, **value: Any) -> Callable[[Request], None]:
    def spoil(request: Request) -> None:
        for key, content in value.items():
            setattr(request.parameters[name], key, content)

    return spoil


def _output(name: str, **parameters: int | str) -> Callable[[Request], None]:
    def spoil(request: Request) -> None:
        output = request.outputs.add(name=name)
        for key, value in parameters.items():
            field = "string_param" if isinstance(value, str) else "int64_param"
            setattr(output.parameters[key], field, value)

    return spoil


def _stranger(request: Request) -> None:
    add(request, "stranger", "INT32", (1, 1), bytes(4))


def _uneven(request: Request) -> None:
    request.raw_input_contents.append(b"1234")


def _bare(request: Request) -> None:
    del request.raw_input_contents[:]


def _without_inputs(request: Request) -> None:
    del request.inputs[:]
    del request.raw_input_contents[:]


def _two_rows(request: Request) -> None:
    for place in range(len(request.inputs)):
        _SPOILT["of two rows" if place == 0 else "of seventeen rows"](request, place)


_REQUESTS: dict[str, Callable[[Request], None]] = {
    "an unknown input": _stranger,
    "an unknown output": _output("stranger"),
    "an output in an unknown region": _output(
        "text_output", shared_memory_region="absent", shared_memory_byte_size=8
    ),
    "an output as classes": _output("batch_index", classification=3),
    "more bytes than inputs": _uneven,
    "inputs without bytes": _bare,
    "no inputs": _without_inputs,
    "rows that differ": _two_rows,
    "an unknown model": _set(model_name="absent"),
    "a model by its path": _set(model_name="../../etc/passwd"),
    "an unknown version": _set(model_version="9"),
    "a version of letters": _set(model_version="newest"),
    "a long id": _set(id="x" * 100_000),
    "an id with line breaks": _set(id="a\r\nb\x1b[0m"),
    "a sequence": _option("sequence_id", int64_param=7),
    "a sequence of text": _option("sequence_id", string_param="seven"),
    "the start of a sequence": _option("sequence_start", bool_param=True),
    "the end of a sequence": _option("sequence_end", bool_param=True),
    "a sequence by a wrong type": _option("sequence_start", string_param="yes"),
    "a negative priority": _option("priority", int64_param=-5),
    "a high priority": _option("priority", int64_param=2**62),
    "a priority of text": _option("priority", string_param="first"),
    "a negative timeout": _option("timeout", int64_param=-1),
    "a timeout of a microsecond": _option("timeout", int64_param=1),
    "a timeout of text": _option("timeout", string_param="soon"),
    "a reserved parameter": _option("triton_odd", bool_param=True),
    "an own parameter": _option("odd", string_param="\x1b[31m" * 10),
    "an empty parameter": _option("odd"),
    "a parameter of a fraction": _option("odd", double_param=math.nan),
    "binary outputs": _option("binary_data_output", bool_param=True),
}
