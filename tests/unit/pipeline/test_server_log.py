"""The errors in logs of a real tritonserver 2.51 that crashed."""

import dataclasses
from pathlib import Path

import pytest

from specdec.pipeline.decide import decide
from specdec.pipeline.pods.server_log import summary
from specdec.triton.log_lines import TRITON
from support.simulated_cluster import World
from unit.pipeline.test_serving import crashed, deployed, mark_checked, pod

LOGS = Path(__file__).parent / "logs"
END = "end of its log: error: creating server: Internal - failed to load all models"
REASONS = {
    "engine": "tensorrt_llm_draft: /models/engines/draft/rank0.engine cannot be read (it ends "
    "before byte 1114752); build the engine again",
    "tokenizer": "tokenizer_dir /models/nowhere has no tokenizer.json and transformers is not "
    "installed: point tokenizer_dir at a directory with tokenizer.json",
}
RANK = """\
[TensorRT-LLM][INFO] Rank 0 is using GPU 0
[TensorRT-LLM][ERROR] Assertion failed: out of memory (/src/cudaUtils.h:12)
E1122 10:00:00.100000 7 server.cc:241] "CudaDriverHelper has not been initialized."
E1122 10:00:01.100000 7 model.cc:12] the backend ended
"""


def log(name: str) -> str:
    return (LOGS / f"crash-{name}.log").read_text("utf-8")


@pytest.mark.parametrize("name", REASONS)
def test_summary_is_the_message_of_the_model_that_failed(name: str) -> None:
    assert summary(log(name), TRITON) == f"{REASONS[name]}; {END}"


def test_summary_has_other_errors_in_order_without_harmless_ones() -> None:
    errors = "Assertion failed: out of memory (/src/cudaUtils.h:12); the backend ended"
    assert summary(RANK, TRITON) == errors
    assert summary(f"{RANK}bye\n", TRITON) == f"{errors}; end of its log: bye"


@pytest.mark.parametrize("text", ["", "failed to load model", "I1122 10:00:00.1 7 a.cc:1] fine"])
def test_a_log_without_errors_has_no_summary(text: str) -> None:
    assert summary(text, TRITON) == ""


def test_a_last_line_that_is_an_error_is_not_repeated() -> None:
    end = "failed to stop server: Internal - Exit timeout expired. Exiting immediately."
    row = f'E1128 22:55:56.397251 1 main.cc:535] "{end}"'
    assert summary(f"I1128 22:55:56.1 1 server.cc:345] fine\n{row}\n", TRITON) == end


def test_a_summary_is_short() -> None:
    line = "E1122 10:00:00.1 7 a.cc:1] " + "x" * 5000
    assert len(summary(f"{line}\n{line}y\n", TRITON)) < 700


def test_available_has_the_error_of_a_crashing_server() -> None:
    """The termination message has only the last two kilobytes of the log, without the error."""
    world: World = deployed()
    mark_checked(world)
    end = log("engine")[-2048:]
    assert REASONS["engine"] not in end
    pod(world, crashed(5, message=end))
    observed = dataclasses.replace(world.observed(), crashes={"pair-abc": log("engine")})
    decision = decide(world.model(), observed, world.images)
    available = next(c for c in decision.conditions if c.type == "Available")
    assert available.reason == "CrashLoop"
    assert REASONS["engine"] in available.message


TABLE = """\
+----------------------------------+----------------------------------+
| Option                           | Value                            |
| server_id                        | triton                           |
+----------------------------------+----------------------------------+
"""
FRAMES = """\
Signal (11) received.
 0# 0x000055D1 in /opt/tritonserver/bin/tritonserver
 1# 0x00007F3A in /lib/x86_64-linux-gnu/libc.so.6
[pair-abc:00007] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f2a]
[pair-abc:00007] *** End of error message ***
  File "/opt/model.py", line 12 in execute
"""


def available(message: str, end: dict[str, int], probe: str = "") -> str:
    world: World = deployed()
    mark_checked(world)
    pod(world, crashed(5, message=message, **end))
    observed = dataclasses.replace(world.observed(), probes={"pair-abc": probe})
    decision = decide(world.model(), observed, world.images)
    (condition,) = (c for c in decision.conditions if c.type == "Available")
    return condition.message


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        (TABLE, {"exitCode": 137}, "restarted 3 times; last message: exit code 137, SIGKILL; no"),
        (
            TABLE + FRAMES,
            {"exitCode": 139},
            "restarted 3 times; last message: Signal (11) received. (exit code 139, SIGSEGV); no",
        ),
        ("the last line", {"exitCode": 2}, "last message: the last line (exit code 2); no"),
        ("", {"exitCode": 143, "signal": 15}, "last message: exit code 143, SIGTERM; no"),
    ],
)
def test_message_of_a_killed_server_has_its_exit_and_neither_table_nor_frames(
    text: str, end: dict[str, int], expected: str
) -> None:
    message = available(text, end)
    assert expected in message
    assert not any(part in message for part in ("|", "+--", "0#", "[ 0]", "File "))


def test_message_of_a_server_that_its_probe_ended_has_the_probe_s_message() -> None:
    note = (
        "Liveness probe failed: the process of a model has died: the server refuses its requests"
    )
    assert "; its liveness probe failed: the process of a model has died" in available(
        "x", {}, note
    )
    assert "probe" not in available("x", {}, "Startup probe failed: the server is not ready")
