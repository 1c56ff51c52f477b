"""The layout of 1.2.1 on a real server: the models load and take this release's input names."""

from typing import Any

import pytest
import tritonclient.grpc as grpc

from specdec.triton import contract
from specdec.triton.model_names import BLS
from support.triton_client import Arrays, RefusedError, ask, text
from support.triton_server import Server

VERSION = "1.2.1"
PROMPT = "def read_lines(path):\n"
HASH = 3
COUNTS = {"return_num_input_tokens": True, "return_num_output_tokens": True}

both_models = pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["unary", "streaming"])


def generate(server: Server, model: str, **values: Any) -> list[Arrays]:
    values = {"text_input": PROMPT, "max_tokens": 32, "exclude_input_in_output": True, **values}
    return ask(server.url, model, **values)


def count(parts: list[Arrays]) -> int:
    return sum(int(part["num_output_tokens"].item()) for part in parts)


@pytest.mark.parametrize(
    "model",
    [
        "ensemble",
        "preprocessing",
        "postprocessing",
        "tensorrt_llm",
        "tensorrt_llm_draft",
        "tensorrt_llm_bls",
    ],
)
def test_every_model_loads_with_the_tensors_of_the_release(
    newer_server: Server, model: str
) -> None:
    with grpc.InferenceServerClient(newer_server.url) as client:
        assert client.is_model_ready(model)
        metadata = client.get_model_metadata(model)
    names = {tensor.name for tensor in contract.inputs(model, VERSION)}
    if model == BLS:
        names.add(contract.STOP.name)
    assert {tensor.name for tensor in metadata.inputs} == names
    assert not {"min_length", "random_seed"} & names


@both_ways
def test_bls_and_ensemble_give_the_same_answer(newer_server: Server, stream: bool) -> None:
    plain = generate(newer_server, "ensemble", stream=stream)
    rounds = newer_server.metric("specdec_rounds_total")
    speculative = generate(newer_server, "tensorrt_llm_bls", stream=stream)
    assert text(plain)
    assert text(speculative) == text(plain)
    assert newer_server.metric("specdec_rounds_total") > rounds
    assert (len(plain) > 1) == (len(speculative) > 1) == stream


@both_ways
@both_models
def test_min_tokens_is_honoured(newer_server: Server, model: str, stream: bool) -> None:
    # The text has many `#`: without a minimum length, the answer ends early, at the first `#`.
    values: dict[str, Any] = {"end_id": HASH, "stream": stream, **COUNTS}
    early = generate(newer_server, model, **values)
    late = generate(newer_server, model, min_tokens=24, **values)
    assert count(early) < 24 <= count(late)
    assert text(late) == text(generate(newer_server, "ensemble", min_tokens=24, **values))


@both_models
def test_seed_is_honoured(newer_server: Server, model: str) -> None:
    hot: dict[str, Any] = {"temperature": 2.0, "top_k": 200}
    first, again, other = (
        text(generate(newer_server, model, seed=seed, **hot)) for seed in (5, 5, 6)
    )
    assert first == again != other


@both_ways
@both_models
def test_tokens_are_counted_when_asked_for(newer_server: Server, model: str, stream: bool) -> None:
    parts = generate(newer_server, model, stream=stream, max_tokens=20, **COUNTS)
    assert count(parts) == 20
    (tokenized,) = ask(newer_server.url, "preprocessing", QUERY=PROMPT, REQUEST_OUTPUT_LEN=1)
    length = tokenized["REQUEST_INPUT_LEN"].item()
    assert [part["num_input_tokens"].item() for part in parts] == [length] * len(parts)


@both_models
def test_tokens_are_not_counted_unasked(newer_server: Server, model: str) -> None:
    (part,) = generate(newer_server, model, return_num_output_tokens=False)
    assert not {"num_input_tokens", "num_output_tokens"} & set(part)


@both_models
@pytest.mark.parametrize("name", ["min_length", "random_seed"])
def test_an_older_spelling_is_refused_by_name(newer_server: Server, model: str, name: str) -> None:
    with pytest.raises(RefusedError, match=name):
        generate(newer_server, model, **{name: 1})
