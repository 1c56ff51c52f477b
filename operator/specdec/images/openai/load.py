"""Read how loaded a server is, for routers, from the page of its metrics port."""

import asyncio
from http.client import HTTPException
from urllib.request import urlopen

from specdec.servers.counting import Counters
from specdec.servers.totals import Load

_SECONDS = 1.0


async def read(url: str, counters: Counters, model: str, in_flight: int) -> Load | None:
    """The load of the server whose metrics are at `url` (`host:port`); None without metrics."""
    try:
        page = await asyncio.to_thread(_page, url)
        return counters.load(page, model, in_flight)
    except (HTTPException, OSError, ValueError):
        return None


def _page(url: str) -> str:
    with urlopen(f"http://{url}/metrics", timeout=_SECONDS) as reply:
        page: str = reply.read().decode()
        return page
