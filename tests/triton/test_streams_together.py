"""Plain and speculative streams together: this mix once locked up the server (ADR 0070)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.baseline import cycle, load
from support.triton_client import ask, text
from support.triton_server import Server

CLIENTS = 32
REQUESTS = 10


@pytest.fixture(scope="module")
def quick_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server whose engines compute almost nothing: messages take most of the time."""
    folder: Path = tmp_path_factory.mktemp("cycle")
    pair = cycle.build(folder, 0.8, 64, 2 * load.LENGTH)
    with load.serving(load.repository(pair, streaming=True, target_ms=1, draft_ms=0.5)) as server:
        yield server


def test_plain_and_speculative_streams_all_end(quick_server: Server) -> None:
    def answers(client: int) -> set[str]:
        length = load.LENGTH if client % 2 else 0
        values = {"text_input": f"{client} ", "max_tokens": 64, "end_id": -1}
        return {
            text(ask(quick_server.url, load.BLS, stream=True, num_draft_tokens=length, **values))
            for _ in range(REQUESTS)
        }

    with ThreadPoolExecutor(CLIENTS) as pool:
        texts_of_clients = list(pool.map(answers, range(CLIENTS)))
    assert [len(texts) for texts in texts_of_clients] == [1] * CLIENTS
