"""A served repository: every model loads, and whole answers continue the prompt."""

import pytest
import tritonclient.grpc as grpc

from support.triton_client import ask, text
from support.triton_server import Server

MODELS = (
    "ensemble",
    "postprocessing",
    "preprocessing",
    "tensorrt_llm",
    "tensorrt_llm_bls",
    "tensorrt_llm_draft",
)
PROMPT = "def read_lines(path):\n"


@pytest.mark.parametrize("model", MODELS)
def test_every_model_loads(server: Server, model: str) -> None:
    with grpc.InferenceServerClient(server.url) as client:
        assert client.is_model_ready(model)


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_a_whole_answer_continues_the_prompt(server: Server, model: str) -> None:
    parts = ask(server.url, model, text_input=PROMPT, max_tokens=24, stream=False)
    assert len(parts) == 1
    assert text(parts).startswith(PROMPT)
    assert len(text(parts)) > len(PROMPT)
