"""The thread that sends the responses of vLLM's Triton model."""

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.processes import until
from support.payload import MODELS

sys.path.insert(0, str(MODELS / "vllm" / "1"))

from specdec_vllm.senders import Sender, Senders  # type: ignore[import-not-found]

FINAL = 1


class Own:
    """Triton's sender of one request."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, int]] = []
        self.cancelled = False

    def send(self, response: Any = None, flags: int = 0) -> None:
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.cancelled


@pytest.fixture
def senders() -> Iterator[Any]:
    made = Senders(FINAL, lambda _: None)
    yield made
    made.close()


def test_responses_are_sent_in_order_and_nothing_follows_the_final_one(senders: Any) -> None:
    own = Own()
    sender = Sender(own, senders)
    sender.send(lambda: "a", final=False)
    sender.send(lambda: "b", final=True)
    sender.send(lambda: "c", final=True)
    until(lambda: len(own.sent) == 2, lambda: f"sent {own.sent}")
    assert own.sent == [("a", 0), ("b", FINAL)]


def test_end_of_the_responses_is_reported_once(senders: Any) -> None:
    own, calls = Own(), []
    sender = Sender(own, senders)
    sender.sent = lambda: calls.append(len(own.sent))
    for final in (False, True, True):
        sender.send(lambda: "a", final=final)
    until(lambda: bool(calls), lambda: "not reported")
    assert calls == [2]


def test_sender_is_released_after_its_final_response(senders: Any) -> None:
    """Triton unloads a model only when no sender of a request exists."""
    own = Own()
    released = weakref.ref(own)
    sender = Sender(own, senders)
    senders.watch(sender)
    sender.send(None, final=True)
    del own, sender
    until(lambda: released() is None, lambda: "the sender exists")


def test_cancellation_is_noticed_once(senders: Any) -> None:
    own, calls = Own(), []
    sender = Sender(own, senders)
    sender.cancelled = lambda: calls.append(1)
    senders.watch(sender)
    own.cancelled = True
    until(lambda: bool(calls), lambda: "not noticed")
    sender.send(None, final=True)
    until(lambda: own.sent == [(None, FINAL)], lambda: f"sent {own.sent}")
    assert calls == [1]
