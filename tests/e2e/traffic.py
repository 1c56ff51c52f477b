"""Clients that constantly send requests to a Service and never retry.

Over HTTP, every request has its own connection. Over gRPC, a client keeps one channel until it
ends. All channels of this process share one connection to the Service, which is never idle.
"""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from cluster.processes import DEADLINE_SECONDS
from demo.story import prompts
from e2e.world import World
from specdec.client import Client, ClientError, Request

CLIENTS = 8
TOKENS = 32
_PAUSE = 0.02
_UNARY = "/v2/models/tensorrt_llm_bls/generate"

Ask = Callable[[str], str]


@dataclass
class Seen:
    """Results of the clients: correct answers by kind of client, and failures as text."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def more(self, world: World, count: int = 2 * CLIENTS) -> None:
        """Wait until the clients have received `count` further correct answers."""
        goal = self.answers.total() + count
        world.wait(
            lambda: self.answers.total() >= goal,
            lambda: f"clients get no answers: {self.failures[-3:]}",
        )


@contextmanager
def asking(world: World, name: str) -> Iterator[Seen]:
    """Run clients, half with streams, half over gRPC; compare answers with the plain path."""
    host = world.host(name)
    expected = {
        prompt: world.text(name, prompt, model="ensemble", max_tokens=TOKENS)
        for prompt in prompts(3)
    }
    seen, over = Seen(), threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [
            pool.submit(_client, number, host, expected, seen, over) for number in range(CLIENTS)
        ]
        try:
            seen.more(world)
            yield seen
        finally:
            over.set()
        for client in running:
            client.result()


def _client(
    number: int, host: str, expected: Mapping[str, str], seen: Seen, over: threading.Event
) -> None:
    stream, grpc = bool(number & 1), bool(number & 2)
    kind = f"{'gRPC' if grpc else 'HTTP'} {'stream' if stream else 'unary'}"
    with _way(host, stream=stream, grpc=grpc) as ask:
        while not over.wait(_PAUSE):
            for prompt, text in expected.items():
                try:
                    answer = ask(prompt)
                except (ClientError, OSError, http.client.HTTPException) as error:
                    why = error.__cause__ or error
                    seen.failures.append(f"{time.strftime('%X')} {kind}: {error!r} ({why!r})")
                    continue
                if answer == text:
                    seen.answers[kind] += 1
                else:
                    seen.failures.append(f"{kind}: {prompt!r} gave {answer!r}, not {text!r}")


@contextmanager
def _way(host: str, *, stream: bool, grpc: bool) -> Iterator[Ask]:
    """Yield the function by which a client sends a prompt and receives the answer."""
    if not grpc and not stream:
        yield lambda prompt: _generate(host, prompt)
        return
    port, protocol = (8001, "grpc") if grpc else (8000, "http")
    with Client(f"{host}:{port}", timeout=DEADLINE_SECONDS, protocol=protocol) as client:  # type: ignore[arg-type]
        yield lambda prompt: client.ask(Request(prompt, max_tokens=TOKENS, stream=stream)).text


def _generate(host: str, prompt: str) -> str:
    """Call Triton's generate endpoint without a client library, as the guides do."""
    body = {
        "text_input": prompt,
        "max_tokens": TOKENS,
        "stream": False,
        "exclude_input_in_output": True,
    }
    link = http.client.HTTPConnection(host, 8000, timeout=DEADLINE_SECONDS)
    try:
        link.request("POST", _UNARY, json.dumps(body), {"content-type": "application/json"})
        reply = link.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise http.client.HTTPException(f"{reply.status} {content!r}")
        return str(json.loads(content)["text_output"])
    finally:
        link.close()
