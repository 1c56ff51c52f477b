"""The order in which responses are sent, and the checks for disconnected clients."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.backend.tensorrtllm.reference_engine import outbox as sending
from specdec.images.backend.tensorrtllm.reference_engine.outbox import (
    Answer,
    Exchange,
    Outbox,
)
from specdec.images.backend.tensorrtllm.reference_engine.request import Request, Ticket

FINAL = 1
Make = Callable[..., Outbox]


class Sender:
    """A response sender that records its calls and blocks those that the test holds."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.taken: list[str] = []
        self.flags: dict[str, int] = {}
        self.disconnected = False
        self.asked = 0
        self.refuses: set[str] = set()
        self.changed = threading.Condition()
        self._held: set[str] = set()

    def hold(self, *names: str) -> None:
        """Block these calls until the test calls `let`."""
        self._held |= set(names)

    def let(self, *names: str) -> None:
        """Let these calls return now."""
        with self.changed:
            self._held -= set(names)
            self.changed.notify_all()

    def send(self, response: str = "end", flags: int = 0) -> None:
        with self.changed:
            self.begun.append(response)
            self.flags[response] = flags
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: response not in self._held, DEADLINE_SECONDS)
            if response in self.refuses:
                raise RuntimeError("closed")
            self.taken.append(response)
            self.changed.notify_all()

    def is_cancelled(self) -> bool:
        with self.changed:
            self.asked += 1
            self.begun.append("question")
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: "question" not in self._held, DEADLINE_SECONDS)
            self.taken.append("question")
            return self.disconnected

    def await_begun(self, *names: str) -> None:
        """Wait until these calls have begun."""
        with self.changed:
            assert self.changed.wait_for(lambda: set(names) <= set(self.begun), DEADLINE_SECONDS)

    def await_taken(self, name: str) -> None:
        """Wait until this call has returned."""
        with self.changed:
            assert self.changed.wait_for(lambda: name in self.taken, DEADLINE_SECONDS)


@pytest.fixture
def make() -> Iterator[Make]:
    """Yield a function that creates outboxes; close them after the test."""
    made: list[Outbox] = []

    def start(period: float = 3600.0, warn: Callable[[str], None] = pytest.fail) -> Outbox:
        made.append(Outbox(period, FINAL, warn))
        return made[-1]

    yield start
    for outbox in made:
        outbox.close()


def begin(outbox: Outbox, sender: Sender, rows: int = 1) -> Exchange:
    exchange = Exchange(sender, "", ())
    request = Request(prompt=None, max_new=1)  # type: ignore[arg-type]
    exchange.tickets = [Ticket(request, lambda update: None) for _ in range(rows)]
    outbox.open(exchange)
    return exchange


def test_rows_are_sent_in_parallel_and_the_last_response_after_all(make: Make) -> None:
    outbox, sender = make(), Sender()
    exchange = begin(outbox, sender)
    sender.hold("0", "1", "2")
    for row in range(3):
        outbox.send(Answer(exchange, row, str(row), last=False))
    outbox.send(Answer(exchange, 3, "last", last=True))
    # All three are being sent, although the server has not taken one of them.
    sender.await_begun("0", "1", "2")
    sender.let("2")
    sender.await_taken("2")
    sender.let("0", "1")
    sender.await_taken("last")
    assert sender.begun[-1] == "last"
    assert sender.flags == {"0": 0, "1": 0, "2": 0, "last": FINAL}


def test_the_last_row_does_not_wait_for_the_others(make: Make) -> None:
    outbox, sender = make(), Sender()
    exchange = begin(outbox, sender, rows=3)
    sender.hold("0", "1")
    for row in range(2):
        outbox.send(Answer(exchange, row, str(row), last=False))
    outbox.send(Answer(exchange, 2, "last", last=True))
    sender.await_taken("last")
    # The end of the request is sent only after the responses of all rows.
    assert "end" not in sender.begun
    sender.let("0", "1")
    sender.await_taken("end")
    assert sender.begun[-1] == "end"
    assert sender.flags == {"0": 0, "1": 0, "last": 0, "end": FINAL}


def test_responses_of_a_row_are_sent_in_order(make: Make) -> None:
    outbox, sender = make(), Sender()
    exchange = begin(outbox, sender)
    sender.hold("0:0")
    for part in range(8):
        for row in range(2):
            outbox.send(Answer(exchange, row, f"{row}:{part}", last=False))
    # Row 1 does not wait for row 0, whose first response is blocked.
    sender.await_taken("1:7")
    assert sender.begun.count("0:0") == 1
    assert not {"0:1", "0:2"} & set(sender.begun)
    outbox.send(Answer(exchange, 0, "last", last=True))
    sender.let("0:0")
    sender.await_taken("last")
    assert sender.taken[-1] == "last"
    for row in range(2):
        parts = [name for name in sender.taken if name.startswith(f"{row}:")]
        assert parts == [f"{row}:{part}" for part in range(8)]


def test_rows_of_an_ordered_request_are_sent_in_order(make: Make) -> None:
    outbox, sender = make(), Sender()
    exchange = begin(outbox, sender, rows=2)
    exchange.ordered = True
    names = [f"{row}:{part}" for part in range(8) for row in range(2)]
    sender.hold(names[0])
    for name in names:
        outbox.send(Answer(exchange, int(name[0]), name, last=False))
    outbox.send(Answer(exchange, 1, "last", last=True))
    sender.await_begun(names[0])
    assert sender.begun == names[:1]
    sender.let(names[0])
    sender.await_taken("end")
    assert sender.taken == [*names, "last", "end"]


def test_requests_do_not_wait_for_each_other(make: Make) -> None:
    outbox, slow, quick = make(), Sender(), Sender()
    slow.hold("last")
    outbox.send(Answer(begin(outbox, slow), 0, "last", last=True))
    slow.await_begun("last")
    outbox.send(Answer(begin(outbox, quick), 0, "last", last=True))
    quick.await_taken("last")
    slow.let("last")


def test_a_response_is_not_sent_before_its_step_ends(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, sender = make(), Sender()
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: 50.0)
    monkeypatch.setattr(sending, "time", clock)
    exchange = begin(outbox, sender)
    outbox.send(Answer(exchange, 0, "late", last=False, due=49.0))
    sender.await_taken("late")
    outbox.send(Answer(exchange, 0, "early", last=False, due=50.25))
    sender.await_taken("early")
    assert slept == [0.25]


def test_disconnected_clients_are_cancelled_and_not_checked_after_the_last_response(
    make: Make,
) -> None:
    outbox, sender = make(period=0.001), Sender()
    sender.hold("question")
    exchange = begin(outbox, sender, rows=2)
    sender.await_begun("question")
    outbox.send(Answer(exchange, 0, "0", last=False))
    outbox.send(Answer(exchange, 1, "last", last=True))
    sender.await_taken("0")
    sender.await_taken("last")
    # The check for a disconnected client has not returned, so the end must wait.
    assert "end" not in sender.begun
    sender.disconnected = True
    sender.let("question")
    sender.await_taken("end")
    assert all(ticket.cancelled for ticket in exchange.tickets)
    asked = sender.asked
    # The outbox still checks the clients of other requests, but not this client.
    other = Sender()
    open_one = begin(outbox, other)
    with other.changed:
        assert other.changed.wait_for(lambda: other.asked > 3, DEADLINE_SECONDS)
    outbox.send(Answer(open_one, 0, "last", last=True))
    other.await_taken("last")
    assert sender.asked == asked


def test_a_response_that_cannot_be_sent_ends_its_request_only(make: Make) -> None:
    warnings: list[str] = []
    outbox, sender, other = make(warn=warnings.append), Sender(), Sender()
    sender.refuses = {"0"}
    exchange, neighbour = begin(outbox, sender, rows=2), begin(outbox, other)
    outbox.send(Answer(exchange, 0, "0", last=False))
    outbox.send(Answer(exchange, 1, "last", last=True))
    sender.await_taken("end")
    outbox.send(Answer(neighbour, 0, "last", last=True))
    other.await_taken("last")
    assert warnings == ["a response could not be sent: closed"]
    assert all(ticket.cancelled for ticket in exchange.tickets)
    assert not neighbour.tickets[0].cancelled


def test_a_request_is_cancelled_by_its_id_while_it_is_open(make: Make) -> None:
    outbox, sender = make(), Sender()
    exchange = begin(outbox, sender)
    exchange.request_id = "seven"
    assert outbox.cancel("eight") == 0
    assert outbox.cancel("seven") == 1
    assert exchange.tickets[0].cancelled
    outbox.send(Answer(exchange, 0, "last", last=True))
    sender.await_taken("last")
    until(lambda: outbox.cancel("seven") == 0, lambda: "it stays open", step=0.001)


def test_closing_sends_what_is_queued() -> None:
    outbox, sender = Outbox(3600.0, FINAL, pytest.fail), Sender()
    exchange = begin(outbox, sender)
    sender.hold("0:0")
    for part in range(5):
        outbox.send(Answer(exchange, 0, f"0:{part}", last=False))
    outbox.send(Answer(exchange, 0, "last", last=True))
    closing = threading.Thread(target=outbox.close)
    closing.start()
    sender.let("0:0")
    closing.join(DEADLINE_SECONDS)
    assert sender.taken == [*(f"0:{part}" for part in range(5)), "last"]
