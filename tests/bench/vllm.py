"""The speed of vLLM in Triton with a draft model, against vLLM without drafts.

`make bench NAME=vllm` prints one JSON line a figure and exits 1 when a goal is missed. Two servers
of the shipped pair answer the same greedy requests in turns. They need `make vllm` and 4 GiB.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from specdec.triton import vllm
from specdec.triton.model_names import VLLM
from support.bench_report import Report
from support.shipped_pair import PAIR
from support.triton_client import Arrays, ask
from support.triton_server import Server
from support.vllm_generate import SMALL, TARGET
from support.vllm_tests import alone, installed
from support.vllm_triton import executable

LENGTH = 4
TOKENS = 128
CLIENTS = 16
_DRAFTS = {
    "method": "draft_model",
    "model": str(PAIR / "draft"),
    "num_speculative_tokens": LENGTH,
}


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark vLLM in Triton with a draft model")
    parser.add_argument("--runs", type=int, default=3)
    report = Report()
    runs: int = parser.parse_args().runs
    with alone(), _server({}) as plain, _server({"speculative_config": _DRAFTS}) as drafted:
        for server in (plain, drafted):
            speed(server, CLIENTS)
        for clients, goal in ((1, 1.2), (CLIENTS, None)):
            turns = [(speed(plain, clients), speed(drafted, clients)) for _ in range(runs)]
            name = f"vllm.clients_{clients}"
            report.figure(f"{name}_plain", [a for a, _ in turns], "tokens/s", better="higher")
            report.figure(f"{name}_drafts", [b for _, b in turns], "tokens/s", better="higher")
            ratios = [b / a for a, b in turns]
            report.figure(f"{name}_speedup", ratios, "ratio", goal=goal, better="higher")
    report.figure("vllm.machine_load", [os.getloadavg()[0]], "processes")
    return report.exit_status()


def speed(server: Server, clients: int) -> float:
    """Return the tokens per second of all clients, with two requests each."""
    prompts = _prompts()[: 2 * clients] if clients > 1 else _prompts()[:12]
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        parts = threads.map(lambda prompt: ask(server.url, VLLM, **_inputs(prompt))[-1], prompts)
        tokens = sum(int(part["num_output_tokens"][0]) for part in parts)
    return tokens / (time.perf_counter() - begun)


@contextmanager
def _server(arguments: dict[str, Any]) -> Iterator[Server]:
    files = vllm.files(vllm.VllmPlan(json.dumps(SMALL | TARGET | arguments)))
    with tempfile.TemporaryDirectory(prefix="vllm-") as name:
        folder = Path(name)
        environment = {
            **installed().environment(folder / "caches"),
            "VLLM_RPC_BASE_PATH": name,
        }
        with Server(executable(installed(), folder), files, folder, env=environment) as server:
            yield server


def _prompts() -> list[str]:
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [str(json.loads(line)["prompt"]) for line in lines]


def _inputs(prompt: str) -> Arrays:
    sampling = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    texts = {"text_input": prompt, "sampling_parameters": json.dumps(sampling)}
    coded = {name: np.array([text.encode()], np.object_) for name, text in texts.items()}
    return {**coded, "return_num_output_tokens": np.array([True])}


if __name__ == "__main__":
    raise SystemExit(main())
