"""Answers that wait for a process that died, and how such a process is known."""

from __future__ import annotations

import gc
import http.server
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from cluster.processes import until
from specdec.payload.serving import alive
from unit.triton.loop import Letters, Meter, Model, parts, policy, task_module
from unit.triton.payload import load

guard_module = load("specdec_bls.guard")
answer_module = load("specdec_bls.answer")


class Stuck:
    """An engine that answers a number of calls, and then none until it is let go."""

    def __init__(self, engine: Model, calls: int) -> None:
        self._engine = engine
        self._left = calls
        self.waits = threading.Event()
        self.free = threading.Event()

    def call(self, inputs: Any, outputs: Any) -> Any:
        if not self._left:
            self.waits.set()
            assert self.free.wait(60)
        self._left -= 1
        return self._engine.call(inputs, outputs)


class Life:
    """A process by word of the test."""

    def __init__(self) -> None:
        self.lives = True

    def alive(self) -> bool:
        return self.lives


def task(*, stream: bool) -> Any:
    return task_module.Task(
        prompt=(5, 6, 7),
        max_tokens=30,
        min_tokens=30,
        draft_tokens=3,
        stream=stream,
        exclude_input=True,
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("calls", [0, 2])
def test_an_answer_goes_on_without_a_draft_that_never_answers(stream: bool, calls: int) -> None:
    wanted = parts(task(stream=stream), Model(1, verifies=True), None)
    draft, process = Stuck(Model(1, verifies=False), calls), Life()
    guard = guard_module.Guard(find=lambda name: process if name == "draft" else None, period=0.01)
    meter, taken = Meter(), threading.Event()
    turn = guard_module.Turn(lambda engine: taken.set())
    answer = answer_module.Answer(
        task(stream=stream),
        guard_module.GuardedEngine("target", Model(1, verifies=True), turn),
        guard_module.GuardedEngine("draft", draft, turn),
        Letters(),
        policy.FixedLength(3),
        meter,
        lambda: False,
    )
    found: list[Any] = []
    ends: list[BaseException] = []

    def work() -> None:
        try:
            found.extend(answer.parts())
        except guard_module.LostError as error:
            ends.append(error)

    first = threading.Thread(target=work)
    try:
        guard.add(turn, ["target", "draft"])
        first.start()
        assert draft.waits.wait(60)
        assert not taken.is_set()
        process.lives = False
        assert taken.wait(60)
        rest = list(answer.without_draft("the draft is gone"))
        text = "".join(part.text for part in [*found, *rest])
        assert text == "".join(part.text for part in wanted)
        assert (meter.reasons, meter.generated) == (["the draft is gone"], 30)
        before = len(found)
    finally:
        draft.free.set()
        first.join()
        guard.close()
    # The call came back after all: its thread changes nothing any more.
    assert (len(ends), len(found), guard.lost) == (1, before, 1)


def test_a_process_that_is_started_again_is_looked_after() -> None:
    lives = [Life(), Life()]
    found = iter(lives)
    guard = guard_module.Guard(find=lambda name: next(found, None), period=0.01)
    try:
        for life in lives:
            taken = threading.Event()
            turn = guard_module.Turn(lambda engine, taken=taken: taken.set())
            engine = Stuck(Model(1, verifies=False), 0)
            guarded = guard_module.GuardedEngine("draft", engine, turn)

            def call(guarded: Any = guarded) -> None:
                with pytest.raises(guard_module.LostError):
                    guarded.call({}, ())

            guard.add(turn, ["draft"])
            thread = threading.Thread(target=call)
            thread.start()
            assert engine.waits.wait(60)
            life.lives = False
            assert taken.wait(60)
            guard.remove(turn)
            engine.free.set()
            thread.join()
    finally:
        guard.close()


@contextmanager
def server(folder: Path, port: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A parent that starts one model's process as Triton does, and never looks after it."""
    stub = folder / "triton_python_backend_stub"
    stub.symlink_to(sys.executable)
    model = folder / "tensorrt_llm_draft" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(stub)!r}, {str(model)!r}, 'x'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, f"--http-port={port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield parent, child
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()


class _Live(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v2/health/live" else 404)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


def test_a_process_is_known_by_its_model_and_dead_while_nobody_looks(tmp_path: Path) -> None:
    listener = http.server.HTTPServer(("127.0.0.1", 0), _Live)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    port = int(listener.server_address[1])
    try:
        with server(tmp_path, port) as (parent, child):
            assert guard_module.process_of("tensorrt_llm", parent.pid) is None
            process = guard_module.process_of("tensorrt_llm_draft", parent.pid)
            assert process.folder == Path(f"/proc/{child}")
            assert process.alive()
            assert alive.check(port) is None
            os.kill(child, signal.SIGKILL)
            until(lambda: not process.alive(), 30, lambda: "the process is not dead")
            assert guard_module.process_of("tensorrt_llm_draft", parent.pid) is None
            assert "has died" in str(alive.check(port))
            # Another server's is none of its business.
            assert list(alive.dead(port + 1)) == []
    finally:
        listener.shutdown()
        listener.server_close()
    assert "does not answer" in str(alive.check(port))


def test_who_comes_back_late_leaves_the_call_of_the_other_alone() -> None:
    draft, target = Stuck(Model(1, verifies=False), 0), Stuck(Model(1, verifies=True), 0)
    turn = guard_module.Turn(lambda engine: None)
    ends: dict[str, Any] = {}

    def call(name: str, engine: Stuck) -> threading.Thread:
        def work() -> None:
            inputs = task(stream=False).inputs(np.array([[5, 6]], np.int32), 1, 1)
            try:
                ends[name] = turn.call(name, engine, inputs, ())
            except guard_module.LostError as error:
                ends[name] = error

        thread = threading.Thread(target=work)
        thread.start()
        assert engine.waits.wait(60)
        return thread

    first = call("draft", draft)
    assert turn.give_up("draft")
    second = call("target", target)
    draft.free.set()
    first.join()
    assert isinstance(ends["draft"], guard_module.LostError)
    target.free.set()
    second.join()
    assert "output_ids" in ends["target"]


def test_an_answer_that_has_ended_is_let_go_of_at_once() -> None:
    """Its sender holds shared memory of Triton's, which a cycle would keep until a collection."""

    class Reply:
        turn: Any = None

    reply = Reply()
    reply.turn = guard_module.Turn(lambda engine, reply=reply: None)
    gone = weakref.ref(reply)
    gc.disable()
    try:
        reply.turn.close()
        del reply
        assert gone() is None
    finally:
        gc.enable()
