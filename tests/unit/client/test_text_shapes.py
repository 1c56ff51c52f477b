"""The client reads texts of every shape that a server may return."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from specdec.client import tokenization
from specdec.client.grpc_calls import Calls, Tensors
from specdec.client.load.exchange import Exchange, sample
from specdec.servers.chunk import Deltas, chunk

# [rows x beams] is the published shape; earlier releases of this project returned [rows, beams].
every_shape = pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1)])


def texts(shape: tuple[int, ...]) -> Any:
    return np.array([b"first", b"second"], object).reshape(shape)


@every_shape
def test_chunk_has_the_text_of_every_beam(shape: tuple[int, ...]) -> None:
    read = chunk({"text_output": texts(shape)}, frozenset())
    assert read is not None
    assert (read.text, read.beams) == ("first", ("first", "second"))


@every_shape
def test_benchmark_reads_a_response(shape: tuple[int, ...]) -> None:
    message = service_pb2.ModelInferResponse()
    message.outputs.add(name="text_output", datatype="BYTES", shape=shape)
    message.raw_output_contents.append(serialize_byte_tensor(texts(shape)).item())
    read = sample(Exchange(0, sent=1.0, arrivals=[1.5], messages=[message]), Deltas())
    assert (read.error, read.chunks, read.first) == (None, (0.5,), 0.5)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_detokenized_text_is_read(shape: tuple[int, ...]) -> None:
    class Server:
        async def call(self, model: str, tensors: Tensors, outputs: Collection[str]) -> Tensors:
            assert (model, set(outputs)) == ("postprocessing", {"OUTPUT"})
            return {"OUTPUT": np.array([b"text"], object).reshape(shape)}

    assert asyncio.run(tokenization.text(cast(Calls, Server()), [1, 2])) == "text"
