"""Engines for tests, from the product's own build program, and calls that wait for an answer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from specdec.payload.backend.tensorrtllm.reference_engine.config import EngineConfig
from specdec.payload.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.payload.backend.tensorrtllm.reference_engine.request import Request, Ticket, Update
from specdec.payload.backend.tensorrtllm.reference_engine.scheduler import Scheduler
from specdec.payload.backend.tensorrtllm.reference_engine.weights import load

PAYLOAD = Path(__file__).resolve().parents[3] / "operator" / "specdec" / "payload"
BUILD = PAYLOAD / "build" / "build_engine.py"
DEADLINE = 120.0


def plan(checkpoint: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """Return a build plan."""
    return {
        "backend": "Reference",
        "role": "target",
        "checkpoint": str(checkpoint),
        "output": str(output),
        "key": output.name,
        "dtype": "auto",
        "limits": {
            "maxBatchSize": 8,
            "maxInputLen": 256,
            "maxSeqLen": 384,
            "maxNumTokens": 1024,
        },
        "maxDraftTokens": 16,
        "speculativeDecodingMode": "draft_tokens_external",
        "tensorParallel": 1,
        "pipelineParallel": 1,
        "version": "0.19.0",
        **changes,
    }


def build(checkpoint: Path, output: Path, **changes: Any) -> Path:
    """Build an engine directory."""
    subprocess.run(
        [sys.executable, str(BUILD), "--plan", "-"],
        input=json.dumps(plan(checkpoint, output, **changes)),
        text=True,
        check=True,
        capture_output=True,
        env={"SPECDEC_TERMINATION_LOG": str(output.parent / "termination.json")},
    )
    return output


def open_engine(directory: Path) -> Llama:
    """Load an engine directory."""
    return Llama(EngineConfig.read(directory), load(directory / "rank0.engine"))


class Call:
    """A submitted request, collected until its last update."""

    def __init__(self, scheduler: Scheduler, request: Request) -> None:
        self.updates: list[Update] = []
        self._done = threading.Event()
        self.ticket: Ticket = scheduler.submit(request, self._listen)

    def _listen(self, update: Update) -> None:
        self.updates.append(update)
        if update.finished:
            self._done.set()

    def wait(self) -> Update:
        """Return the last update."""
        assert self._done.wait(DEADLINE), "no answer"
        return self.updates[-1]

    def tokens(self) -> list[int]:
        """Return the whole answer's tokens."""
        assert not self.wait().error, self.updates[-1].error
        return [token for update in self.updates for token in update.tokens]


def ask(scheduler: Scheduler, prompt: list[int], max_new: int, **fields: Any) -> Call:
    """Submit a request of plain lists."""
    if fields.get("draft") is not None:
        fields["draft"] = np.array(fields["draft"], np.int64)
    return Call(scheduler, Request(np.array(prompt, np.int64), max_new, **fields))


def rounds(
    target: Scheduler, draft: Scheduler, prompt: list[int], new: int, k: int, **fields: Any
) -> tuple[list[int], int, int]:
    """Run the loop of a BLS; returns (tokens, drafted, accepted)."""
    ids, drafted, accepted = list(prompt), 0, 0
    while len(ids) < len(prompt) + new:
        length = min(k, len(prompt) + new - len(ids) - 1)
        proposal = ask(draft, ids, length, **fields).tokens() if length else None
        call = ask(target, ids, length + 1, draft=proposal or None, **fields)
        fresh = call.tokens()
        drafted, accepted = drafted + call.wait().drafted, accepted + call.wait().accepted
        if not fresh:
            break
        ids += fresh
    return ids[len(prompt) :], drafted, accepted
