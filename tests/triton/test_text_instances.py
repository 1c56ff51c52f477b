"""Several preprocessing processes, and a queue delay of the engines, do not change answers.

Several postprocessing processes would mix up the parts of a streamed answer, so the API allows
them only without streaming.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cluster.processes import DEADLINE_SECONDS
from specdec.client import Client, Request
from specdec.triton.repository import RepositoryPlan
from support.triton_server import Server
from triton.conftest import Serve

PROMPTS = [f"def read_{number}(path):" for number in range(16)]


def texts(server: Server, *, stream: bool = True) -> list[str]:
    """Return the ensemble's answers to concurrent clients, in the order of the prompts."""

    def ask(prompt: str) -> str:
        with Client(server.url, timeout=DEADLINE_SECONDS) as client:
            return client.ask(Request(prompt, max_tokens=8, model="ensemble", stream=stream)).text

    with ThreadPoolExecutor(len(PROMPTS)) as clients:
        return list(clients.map(ask, PROMPTS))


def test_answers_are_those_of_one_process(
    serve: Serve, draft_target_plan: RepositoryPlan, server: Server
) -> None:
    several = replace(draft_target_plan, preprocessing_instances=3, engine_queue_delay_us=500)
    with serve(several) as running:
        assert texts(running) == texts(server)
        assert "preprocessing_0_2" in running.log()


def test_answers_in_one_piece_are_those_of_one_process(
    serve: Serve, draft_target_plan: RepositoryPlan, server: Server
) -> None:
    whole = replace(
        draft_target_plan, decoupled=False, rows_per_call=1, postprocessing_instances=3
    )
    with serve(whole) as running:
        assert texts(running, stream=False) == texts(server)
        assert "postprocessing_0_2" in running.log()
