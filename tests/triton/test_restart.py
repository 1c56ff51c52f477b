"""A rolling restart under load: a client with an open channel loses no request."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from campaigns.traffic import Baseline, Client, Tally
from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton import launch
from specdec.triton.layout import PLAIN
from specdec.triton.repository import RepositoryPlan, render
from support.programs import local
from support.triton_server import Server
from triton.conftest import Serve
from triton.service import Service

CLIENTS = 6
# In a process, all gRPC clients of an address share one connection. While they send requests, the
# connection ends only at its maximum age.
AGE_SECONDS = 2
MIX = {"stream": 3, "unary": 2, "long": 1}


@contextmanager
def load(service: Service, baseline: Baseline) -> Iterator[list[Tally]]:
    """Run clients that send requests all the time, and yield the tally of each client."""
    clients = [Client(service, baseline, MIX, number) for number in range(CLIENTS)]
    over = threading.Event()

    def ask(client: Client) -> None:
        while not over.is_set():
            client.request()

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(ask, client) for client in clients]
        try:
            yield [client.tally for client in clients]
        finally:
            over.set()
        for future in running:
            future.result()


def answered(tallies: list[Tally], more: int) -> None:
    """Wait until the clients have begun this many more requests."""

    def requests() -> int:
        return sum(tally.did.total() for tally in tallies)

    goal = requests() + more
    until(lambda: requests() >= goal, lambda: "clients get no answers")


def test_a_rolling_restart_loses_no_request(
    serve: Serve, newer_plan: RepositoryPlan, newer_server: Server, prompts: list[str]
) -> None:
    # SIMULATION: a step of the target takes 40 ms, so that answers are in flight all the time.
    target = replace(newer_plan.target, step_latency_ms=40.0)
    files = render(replace(newer_plan, target=target))
    with (
        serve(files, connection_age=AGE_SECONDS) as old,
        serve(files, connection_age=AGE_SECONDS) as new,
        Service(old.grpc_port) as service,
    ):
        baseline = Baseline(newer_server, prompts[:16])
        with load(service, baseline) as tallies:
            answered(tallies, 3 * CLIENTS)
            before = service.connections
            # As with a Deployment and maxSurge 1: the old pod must stop once the new pod is ready.
            service.endpoint = new.grpc_port
            hook = launch.pre_stop(
                PLAIN,
                linger_seconds=0,
                reconnect_seconds=DEADLINE_SECONDS,
                exit_timeout_seconds=DEADLINE_SECONDS,
                metrics_port=old.metrics_port,
                client_ports=(old.http_port, old.grpc_port),
            )
            subprocess.run(local(hook), check=True)
            assert service.connections > before, "the old server went while clients were with it"
            assert old.stop() == 0
            answered(tallies, 3 * CLIENTS)
    assert [message for tally in tallies for message in tally.wrong] == []
