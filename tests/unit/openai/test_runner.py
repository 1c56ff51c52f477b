"""What both endpoints do alike when they start."""

import socket
import subprocess
import sys

import pytest

from cluster.processes import DEADLINE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        ("specdec.images.openai",),
        (
            "specdec.images.openai.proxy",
            "--upstream",
            "127.0.0.1:1",
            "--upstream-model",
            "m",
            "--kind",
            "trtllm_serve",
        ),
    ],
    ids=["endpoint", "proxy"],
)
def test_port_in_use_ends_the_program_with_a_sentence(program: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [
                *(sys.executable, "-m", *program, "--served-model-name", "m"),
                *("--host", "127.0.0.1", "--port", str(port)),
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    assert ended.returncode == 2
    sentence = f"cannot listen on 127.0.0.1:{port} (Address already in use); free it"
    assert ended.stderr == f"{program[0]}: {sentence}\n"
