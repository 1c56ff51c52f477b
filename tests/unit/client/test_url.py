"""How a URL selects the protocol of a server."""

from __future__ import annotations

import pytest

from specdec.client.connection import of_url
from specdec.client.errors import BadRequestError


@pytest.mark.parametrize(
    ("url", "where", "path", "tls"),
    [
        ("localhost:8001", "localhost:8001", "", False),
        ("http://host/v1/", "host:80", "/v1", False),
        ("https://host/team/v1", "host:443", "/team/v1", True),
        ("http://[::1]:9000/v1", "[::1]:9000", "/v1", False),
    ],
)
def test_the_url_selects_the_protocol(url: str, where: str, path: str, tls: bool) -> None:
    connection = of_url(url)
    assert (connection.url, connection.path, connection.tls) == (where, path, tls)


@pytest.mark.parametrize(
    "url", ["http://host:8000", "ftp://host/v1", "http:///v1", "http://h:x/v1", "http://h/v1?a=b"]
)
def test_a_wrong_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadRequestError, match="http://localhost:9000/v1"):
        of_url(url)
