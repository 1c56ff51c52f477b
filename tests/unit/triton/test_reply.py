"""What the BLS hands to Triton, whose threads free what nobody asked for without Python's lock."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unit.triton.payload import load

linger = load("specdec_bls.linger")


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array


class Sender:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, response: Any = None, flags: int = 0) -> None:
        self.sent.append((response, flags))


@pytest.fixture
def reply(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, beside stand-ins for what only a server's process has."""
    backend = ModuleType("triton_python_backend_utils")
    backend.__dict__.update(
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
        Tensor=Tensor,
        InferenceResponse=lambda tensors: SimpleNamespace(tensors=tensors),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    monkeypatch.delitem(sys.modules, "specdec_bls.reply", raising=False)
    yield load("specdec_bls.reply")
    sys.modules.pop("specdec_bls.reply", None)


def part() -> Any:
    return SimpleNamespace(text="x", extras={"context_logits": np.zeros((1, 2, 3), np.float32)})


def task() -> Any:
    return SimpleNamespace(
        log_probs=False, statistics=False, input_count=True, output_count=False, prompt=[1, 2]
    )


def names(sent: tuple[Any, int]) -> list[str]:
    return sorted(tensor.name for tensor in sent[0].tensors)


def test_only_what_was_asked_for_becomes_a_tensor(reply: Any) -> None:
    sender = Sender()
    stream = reply.StreamReply(sender, 1, {"text_output"}, accumulate=False)
    stream.part(0, task(), part())
    whole = reply.WholeReply(sender, 1, {"text_output", "num_input_tokens"})
    whole.part(0, task(), part())
    whole.done()
    assert [names(one) for one in sender.sent] == [
        ["text_output"],
        ["num_input_tokens", "text_output"],
    ]


def test_an_array_stays_until_nobody_else_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    keeper = linger.Linger()
    shared = [np.zeros(4)]
    lone = np.zeros(4)
    gone = [weakref.ref(lone), weakref.ref(shared[0])]
    keeper.keep("a response", [lone, shared[0]])
    del lone
    assert [one() is None for one in gone] == [False, False]

    now[0] += 1
    keeper.keep("another")
    assert [one() is None for one in gone] == [True, False]
    shared.clear()
    assert gone[1]() is not None

    now[0] += 1
    keeper.keep("a third")
    assert gone[1]() is None
