"""The shapes of all outputs of the ensemble and the BLS, for each release and both protocols."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from cluster.processes import DEADLINE_SECONDS
from specdec.triton import contract
from specdec.triton.repository import RepositoryPlan, render
from support.triton_client import Arrays, ask, ask_once
from support.triton_server import Server
from triton.conftest import Serve

PROMPT = "def read_lines(path):\n"
NEW = 6
BLS = "tensorrt_llm_bls"
MODELS = ("ensemble", BLS)
SERVERS = {"0.18.0": "older_server", "0.19.0": "server", "1.2.1": "newer_server"}


@dataclass(frozen=True)
class Row:
    """Outputs that share a shape.

    Attributes:
        names: names of the outputs.
        shape: for one prompt; `prompt` and `new` are the tokens of the prompt and of the answer.
        flags: inputs that request the outputs.
        source: section of the fact sheet on Triton and TensorRT-LLM; empty if not from upstream.
        since: first release with the outputs.
        models: models with the outputs.
    """

    names: tuple[str, ...]
    shape: tuple[int | str, ...]
    flags: tuple[str, ...] = ()
    source: str = "1.2"
    since: str = "0.18.0"
    models: tuple[str, ...] = MODELS


# Except for the text, a shape is a batch dimension of one, then the section's declared shape.
TABLE = (
    Row(("text_output",), (1,), source="13, Text shape"),
    Row(("batch_index", "sequence_index"), (1, 1)),
    Row(("cum_log_probs",), (1, 1), ("return_log_probs",)),
    Row(("output_log_probs",), (1, 1, "new"), ("return_log_probs",)),
    Row(("context_logits",), (1, "prompt", 1024), ("return_context_logits",)),
    Row(("generation_logits",), (1, 1, "new", 1024), ("return_generation_logits",)),
    Row(
        ("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks"),
        (1, 1),
        ("return_kv_cache_reuse_stats", "return_perf_metrics"),
        "1.2 and 1.6",
    ),
    Row(
        (
            "arrival_time_ns",
            "first_scheduled_time_ns",
            "first_token_time_ns",
            "last_token_time_ns",
            "acceptance_rate",
            "total_accepted_draft_tokens",
            "total_draft_tokens",
        ),
        (1, 1),
        ("return_perf_metrics",),
        "1.6",
        "0.19.0",
    ),
    # An output of specdec, not of upstream: see ADR 0128.
    Row(("acceptance_histogram",), (1, "bins"), ("return_perf_metrics",), "", "0.19.0", (BLS,)),
    Row(("num_input_tokens",), (1, 1), ("return_num_input_tokens",), "1.6", "1.2.0"),
    Row(("num_output_tokens",), (1, 1), ("return_num_output_tokens",), "1.6", "1.2.0"),
)


def rows(release: str, model: str) -> list[Row]:
    """Return the table's rows for a model in a release."""

    def key(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    return [row for row in TABLE if key(row.since) <= key(release) and model in row.models]


def asking(model: str, release: str) -> dict[str, Any]:
    """Return a request for every output."""
    inputs = {tensor.name for tensor in contract.inputs(model, release)}
    flags = {flag for row in rows(release, model) for flag in row.flags} & inputs
    return {"text_input": PROMPT, "max_tokens": NEW, "end_id": -1, **dict.fromkeys(flags, True)}


def shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def expected(
    server: Server, release: str, model: str, bins: int = 1
) -> dict[str, tuple[int, ...]]:
    """Return the table's shapes for this prompt and this number of histogram bins."""
    (tokenized,) = ask(server.url, "preprocessing", QUERY=PROMPT, REQUEST_OUTPUT_LEN=1)
    sizes = {"prompt": int(tokenized["REQUEST_INPUT_LEN"].item()), "new": NEW, "bins": bins}
    return {
        name: tuple(sizes[size] if isinstance(size, str) else size for size in row.shape)
        for row in rows(release, model)
        for name in row.names
    }


def post(server: Server, model: str, endpoint: str, **body: Any) -> dict[str, Any]:
    """Return the answer of a model's HTTP endpoint."""
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{model}/{endpoint}"
    content = json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, content), timeout=DEADLINE_SECONDS
    ) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


every_release = pytest.mark.parametrize("release", SERVERS)
both_models = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def running(request: pytest.FixtureRequest, release: str) -> Server:
    """Return the server of the release."""
    server: Server = request.getfixturevalue(SERVERS[release])
    return server


@every_release
@both_models
def test_table_has_every_declared_output(release: str, model: str) -> None:
    declared = {tensor.name: tensor.dims for tensor in contract.outputs(model, release)}
    listed = {name: row for row in rows(release, model) for name in row.names}
    assert set(listed) == set(declared)
    for name, row in listed.items():
        # Only the published text has no batch dimension.
        assert len(row.shape) == len(declared[name]) + (name != "text_output"), name


@every_release
@both_models
def test_grpc_returns_the_published_shapes(running: Server, release: str, model: str) -> None:
    values = asking(model, release)
    (arrays,) = ask(running.url, model, **values)
    assert shapes(arrays) == expected(running, release, model)


@every_release
@both_models
def test_grpc_returns_the_published_shapes_of_a_speculated_answer(
    running: Server, release: str, model: str
) -> None:
    logits = ("return_context_logits", "return_generation_logits")
    values = {k: v for k, v in asking(model, release).items() if k not in logits}
    (arrays,) = ask(running.url, model, **values)
    actual = shapes(arrays)
    bins = actual.get("acceptance_histogram", (1, 1))[1]
    declared = expected(running, release, model, bins)
    without = {"context_logits", "generation_logits"}
    assert {name: shape for name, shape in actual.items() if name not in without} == {
        name: shape for name, shape in declared.items() if name not in without
    }


@both_models
def test_http_returns_the_published_shapes(older_server: Server, model: str) -> None:
    """Over HTTP, Triton serves decoupled models only with its generate extension."""
    values = asking(model, "0.18.0")
    kinds = {str: "BYTES", bool: "BOOL", int: "INT32"}
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": kinds[type(value)], "data": [value]}
        for name, value in values.items()
    ]
    outputs = {
        tensor["name"]: tensor
        for tensor in post(older_server, model, "infer", inputs=inputs)["outputs"]
    }
    actual = {name: tuple(tensor["shape"]) for name, tensor in outputs.items()}
    assert actual == expected(older_server, "0.18.0", model)
    assert outputs["text_output"]["data"][0].startswith(PROMPT)


@every_release
@both_models
def test_http_generate_returns_the_text_alone(running: Server, model: str) -> None:
    text = post(running, model, "generate", text_input=PROMPT, max_tokens=NEW)["text_output"]
    assert isinstance(text, str)
    assert text.startswith(PROMPT)


def test_texts_of_several_prompts_are_one_dimension(older_server: Server) -> None:
    prompts = [[PROMPT], ["import os\n\n"], ["class Node:\n"]]
    values = {"text_input": prompts, "max_tokens": [[NEW]] * 3, "return_log_probs": [[True]] * 3}
    arrays = ask_once(older_server.url, "tensorrt_llm_bls", **values)
    assert shapes(arrays) == {
        "text_output": (3,),
        "batch_index": (3, 1),
        "sequence_index": (3, 1),
        "cum_log_probs": (3, 1),
        "output_log_probs": (3, 1, NEW),
    }
    texts = [text.decode() for text in arrays["text_output"]]
    assert all(text.startswith(prompt) for text, (prompt,) in zip(texts, prompts, strict=True))


# The last step of the published ensemble, for beams and rows that the Reference engine lacks.
ENSEMBLE = """
name: "beams"
platform: "ensemble"
max_batch_size: 16
input { name: "tokens" data_type: TYPE_INT32 dims: [ -1, -1 ] }
input { name: "lengths" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }
ensemble_scheduling {
  step {
    model_name: "postprocessing"
    model_version: -1
    input_map { key: "TOKENS_BATCH" value: "tokens" }
    input_map { key: "SEQUENCE_LENGTH" value: "lengths" }
    output_map { key: "OUTPUT" value: "text_output" }
  }
}
"""


@pytest.fixture(scope="module")
def beams_server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server of the postprocessing model, alone and as the only step of an ensemble."""
    repository = render(draft_target_plan).items()
    files = {path: text for path, text in repository if path.startswith("postprocessing/")}
    files |= {"beams/config.pbtxt": ENSEMBLE, "beams/1/.keep": ""}
    with serve(files) as started:
        yield started


@pytest.mark.parametrize("texts", [(1, 1), (1, 3), (2, 1), (2, 3)])
@pytest.mark.parametrize("through", ["model", "ensemble"])
def test_triton_passes_rows_times_beams_on(
    beams_server: Server, texts: tuple[int, int], through: str
) -> None:
    tokens, lengths = np.full((*texts, 2), 33, np.int32), np.full(texts, 2, np.int32)
    names = {
        "model": ("postprocessing", "TOKENS_BATCH", "SEQUENCE_LENGTH", "OUTPUT"),
        "ensemble": ("beams", "tokens", "lengths", "text_output"),
    }
    model, first, second, output = names[through]
    arrays = ask_once(beams_server.url, model, **{first: tokens, second: lengths})
    assert arrays[output].tolist() == [b"AA"] * (texts[0] * texts[1])
    values = ((first, tokens), (second, lengths))
    inputs = [
        {"name": name, "shape": array.shape, "datatype": "INT32", "data": array.tolist()}
        for name, array in values
    ]
    (returned,) = post(beams_server, model, "infer", inputs=inputs)["outputs"]
    assert returned["shape"] == [texts[0] * texts[1]]
    # The declared shape, unlike the returned one, has a batch dimension.
    with grpc.InferenceServerClient(beams_server.url) as client:
        (declared,) = client.get_model_metadata(model).outputs
    assert list(declared.shape) == [-1, -1]
