"""Logs of vLLM 0.27.1: the cause of a crash, and the step of a start."""

import dataclasses
from pathlib import Path
from unittest.mock import patch

import pytest

from specdec import servers
from specdec.pipeline.decide import decide
from specdec.pipeline.observed import server_log_key
from specdec.pipeline.pods.server_log import summary
from specdec.servers.vllm_log import VLLM
from support.simulated_cluster import World
from unit.pipeline.test_serving import deployed, mark_checked, pod

LOGS = Path(__file__).parent / "logs"
INFO = "(EngineCore pid=7) INFO 11-29 10:00:00"
ERROR = "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1349]"
SIZES = "lower spec.target.limits, or choose GPUs with more memory"
END = """\
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.
"""


def log(name: str) -> str:
    return (LOGS / f"vllm-{name}.log").read_text("utf-8")


def traceback(error: str) -> str:
    """Return the log of an engine that fails to start."""
    lines = ["EngineCore failed to start.", "Traceback (most recent call last):"]
    lines += ['  File "/usr/lib/vllm/core.py", line 1323, in run_engine_core', error]
    return "".join(f"{ERROR} {line}\n" for line in lines) + END


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            log("argument"),
            "unrecognized arguments: --max-modle-len: correct spec.runtime.arguments",
        ),
        (
            log("missing"),
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/models/nowhere'. Use `repo_type` argument if needed: check "
            "the files of the checkpoint on the volume",
        ),
        (
            traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB: " + SIZES,
        ),
        (
            traceback("ValueError: No available memory for the cache blocks. Try increasing."),
            "No available memory for the cache blocks. Try increasing: " + SIZES,
        ),
        (
            traceback(
                "ValueError: To serve at least one request with the model's max seq len (4096), "
                "(0.50 GiB KV cache is needed, which is larger than the available KV cache memory "
                "(0.25 GiB)."
            ),
            "To serve at least one request with the model's max seq len (4096), (0.50 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (0.25 GiB): "
            + SIZES,
        ),
        (
            traceback("KeyError: 'model.layers.7.mlp'"),
            "KeyError: 'model.layers.7.mlp'; end of its log: (APIServer pid=1) RuntimeError: "
            "Engine core initialization failed. See root cause above.",
        ),
    ],
)
def test_summary_is_the_cause_and_what_to_do(text: str, expected: str) -> None:
    assert summary(text, VLLM) == expected


def test_summary_of_the_model_in_triton_is_the_cause_within_vllm() -> None:
    triton = (
        "E1129 10:00:00.100000 7 model_lifecycle.cc:654] \"failed to load 'vllm_model' version 1: "
        'Internal: TritonModelException: RuntimeError: Engine core initialization failed."\n'
    )
    text = traceback("ValueError: No available memory for the cache blocks.") + triton
    assert summary(text, VLLM) == f"No available memory for the cache blocks: {SIZES}"
    assert summary(triton, VLLM) == "Engine core initialization failed."


START = [
    (f"{INFO} [cpu_model_runner.py:131] Starting to load model /models/a...", "loading weights"),
    (
        "\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]",
        "loading weights, 50 %",
    ),
    (f"{INFO} [default_loader.py:431] Loading weights took 12.34 seconds", "weights loaded"),
    (f"{INFO} [backends.py:1156] Dynamo bytecode transform time: 5.00 s", "compiling"),
    (
        f"{INFO} [kv_cache_utils.py:2235] GPU KV cache size: 12,345 tokens",
        "KV cache of 12,345 tokens allocated",
    ),
    (
        "\rCapturing CUDA graphs (decode, FULL):  40%|####      | 4/10 [00:01<00:01,  3.1it/s]",
        "capturing CUDA graphs, 40 %",
    ),
    (
        f"{INFO} [core.py:356] init engine (profile, create kv cache, warmup model) took 63.20 s",
        "engine started",
    ),
    ("(APIServer pid=1) INFO:     Application startup complete.", "waiting for a first token"),
]


def test_each_step_of_a_start_follows_the_one_before() -> None:
    text = ""
    assert VLLM.step(text) == ""
    for line, name in START:
        text += f"{line}\n"
        assert VLLM.step(text) == name


@pytest.mark.parametrize(
    "line",
    [
        "GPU KV cache size: 12,352 tokens",
        "CPU KV cache size: 12,352 tokens, Maximum concurrency for 2,048 tokens per request: 6x",
    ],
)
def test_size_of_the_cache_is_read_in_each_release(line: str) -> None:
    step = VLLM.step(f"{INFO} [kv_cache_utils.py:2235] {line}\n")
    assert step == "KV cache of 12,352 tokens allocated"
    assert VLLM.step("KV cache") == ""


def test_available_has_the_step_of_a_server_that_starts() -> None:
    kind = servers.kind("bls")
    own = dataclasses.replace(kind.serving, log=VLLM)
    world: World = deployed()
    mark_checked(world)
    pod(world, {"phase": "Running"})
    world.logs[server_log_key(world.pods[-1])] = START[1][0]
    with patch.dict(vars(kind), {"serving": own}):
        decision = decide(world.model(), world.observed(), world.images)
    (available,) = (each for each in decision.conditions if each.type == "Available")
    assert "pair-abc loads its models: loading weights, 50 %" in available.message
