"""A rolling restart under load: clients that connect anew for each request lose none."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from campaigns.traffic import Baseline, Client, Tally
from cluster.processes import until
from specdec.triton import launch
from specdec.triton.ranks import PLAIN
from specdec.triton.repository import RepositoryPlan, render
from triton.server import Server

CLIENTS = 6
# A client that chose its endpoint just before connects within it, on a crowded machine too.
LINGER_SECONDS = 3
MIX = {"stream": 3, "unary": 2, "long": 1}


class Service:
    """As a Kubernetes Service: a new connection goes to the endpoint that is ready."""

    def __init__(self, server: Server) -> None:
        self.endpoint = server
        self.asked = 0

    @property
    def url(self) -> str:
        self.asked += 1
        return self.endpoint.url


@contextmanager
def load(service: Service, baseline: Baseline) -> Iterator[Tally]:
    """Clients that ask all the time; their numbers are whole at the end."""
    total, over = Tally(), threading.Event()

    def one(number: int) -> Tally:
        client = Client(service, baseline, MIX, number)
        while not over.is_set():
            client.request()
        return client.tally

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(one, number) for number in range(CLIENTS)]
        try:
            yield total
        finally:
            over.set()
        for tally in running:
            total.add(tally.result())


def answered(service: Service, more: int) -> None:
    """Wait until so many further requests were begun."""
    goal = service.asked + more
    until(lambda: service.asked >= goal, 120, lambda: "clients get no answers")


def test_a_rolling_restart_loses_no_request(
    executable: Path, newer_plan: RepositoryPlan, prompts: list[str], tmp_path: Path
) -> None:
    files = render(newer_plan)
    with (
        Server(executable, files, tmp_path / "old") as old,
        Server(executable, files, tmp_path / "new") as new,
    ):
        service = Service(old)
        baseline = Baseline(old, prompts[:16])
        with load(service, baseline) as tally:
            answered(service, 3 * CLIENTS)
            # As a Deployment with maxSurge 1: the new pod is ready, the old one is told.
            service.endpoint = new
            hook = launch.pre_stop(
                PLAIN,
                linger_seconds=LINGER_SECONDS,
                exit_timeout_seconds=60,
                metrics_port=old.metrics_port,
            )
            subprocess.run([sys.executable, *hook[1:]], check=True, timeout=120)
            assert old.stop() == 0
            answered(service, 3 * CLIENTS)
    assert tally.wrong == []
    assert sum(tally.did.values()) >= 6 * CLIENTS
