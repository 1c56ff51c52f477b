"""Sends responses, and notices cancelled requests, on a thread of its own.

A response waits until the server has taken it. Meanwhile, the engine's loop goes on. One thread
does both, because Triton must not be asked about a request whose last response has been sent.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

# Time between two questions to Triton whether requests have been cancelled.
_SECONDS = 0.1
_Item = tuple["Sender", Callable[[], Any] | None, bool]


class Sender:
    """Where the responses to one request go.

    Args:
        own: Triton's response sender.
        thread: sends them.
    """

    def __init__(self, own: Any, thread: Senders) -> None:
        self.own, self._thread = own, thread
        # Called once when Triton reports that the request was cancelled.
        self.cancelled: Callable[[], Any] | None = None
        # Called once after the last response.
        self.sent: Callable[[], Any] | None = None
        self._ended = False

    def send(self, make: Callable[[], Any] | None, *, final: bool) -> None:
        """Send a response; nothing follows the final one.

        Args:
            make: creates the response on the sending thread; None for the flag alone.
            final: whether this is the last response.
        """
        if not self._ended:
            self._ended = final
            self._thread.put((self, make, final))


class Senders:
    """The thread.

    Args:
        final: Triton's flag of a last response.
        log: gets a line about a response that Triton refused.
    """

    def __init__(self, final: int, log: Callable[[str], Any]) -> None:
        self._final, self._log = final, log
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._watched: set[Sender] = set()
        self._next = 0.0
        self._thread = threading.Thread(target=self._run, name="responses", daemon=True)
        self._thread.start()

    def put(self, item: _Item) -> None:
        """Queue a response."""
        self._items.put(item)

    def watch(self, sender: Sender) -> None:
        """Ask Triton about a request until its last response."""
        self._items.put((sender, None, False))

    def close(self) -> None:
        """Send what is queued, and end."""
        self._items.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                item = self._items.get(timeout=_SECONDS if self._watched else None)
            except queue.Empty:
                self._ask()
                continue
            if item is None:
                return
            self._handle(*item)
            # Triton cannot unload the model while the sender of a request exists.
            del item
            if time.monotonic() > self._next:
                self._ask()

    def _handle(self, sender: Sender, make: Callable[[], Any] | None, final: bool) -> None:
        if not final and make is None:
            self._watched.add(sender)
            return
        if final:
            self._watched.discard(sender)
        flags = self._final if final else 0
        try:
            if make is None:
                sender.own.send(flags=flags)
            else:
                sender.own.send(make(), flags=flags)
        except Exception as error:  # noqa: BLE001 - the other requests go on
            self._log(f"a response was not sent: {type(error).__name__}: {error}")
        if final and sender.sent:
            sender.sent()

    def _ask(self) -> None:
        self._next = time.monotonic() + _SECONDS
        for sender in [s for s in self._watched if s.own.is_cancelled()]:
            self._watched.discard(sender)
            if sender.cancelled:
                sender.cancelled()
