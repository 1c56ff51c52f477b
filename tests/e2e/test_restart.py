"""A rolling restart on a real node while clients ask all the time."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from demo.story import prompts
from e2e.world import World
from specdec.client import Client, ClientError, Request

CLIENTS = 4
TOKENS = 32


@dataclass
class Seen:
    """What clients got: how many right answers, and what went wrong."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@contextmanager
def asking(url: str, wanted: dict[str, str]) -> Iterator[Seen]:
    """Clients of a Service, with a connection for each request; every second one streams."""
    seen, over = Seen(), threading.Event()

    def one(number: int) -> None:
        while not over.is_set():
            for prompt, text in wanted.items():
                request = Request(prompt, max_tokens=TOKENS, stream=number % 2 == 0)
                try:
                    with Client(url, timeout=60) as client:
                        found = client.ask(request).text
                except ClientError as error:
                    seen.failures.append(str(error))
                    continue
                if found == text:
                    seen.answers[prompt] += 1
                else:
                    seen.failures.append(f"{prompt!r} gave {found!r}, not {text!r}")

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(one, number) for number in range(CLIENTS)]
        try:
            yield seen
        finally:
            over.set()
        for client in running:
            client.result()


def test_a_rolling_restart_under_load_fails_no_request(world: World, served: str) -> None:
    url = world.address(served)
    wanted = {
        prompt: world.text(served, prompt, model="ensemble", max_tokens=TOKENS)
        for prompt in prompts(3)
    }
    (old,) = world.pods(served)
    uid = old["metadata"]["uid"]

    def gone() -> bool:
        selector = f"specdec.dev/model={served},app.kubernetes.io/component=server"
        return all(pod["metadata"]["uid"] != uid for pod in world.listed("pods", selector))

    with asking(url, wanted) as seen:
        world.wait(lambda: bool(seen.answers), 60, lambda: "no answer before the restart")
        # Another number of draft tokens is another repository: new pods, and nothing to build.
        world.patch(served, {"speculation": {"draftTokens": 3}})
        world.replaced(served, uid)
        world.wait(gone, 90, lambda: "the old pod is still there")
        before = seen.answers.total()
        world.wait(
            lambda: seen.answers.total() > before,
            60,
            lambda: "no answer after the restart",
        )
    assert seen.failures == []
    assert set(seen.answers) == set(wanted)
