"""The page states the limits of the program."""

import re
from pathlib import Path

import pytest

from specdec.images.openai import limits
from specdec.images.openai.limits import Limits
from specdec.images.openai.proxy.upstream import MOST_BYTES
from specdec.images.openai.template import CHARACTERS, SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "openai.md"
MIB = 1 << 20
STATED = {
    "a head": f"{limits.HEAD_BYTES} bytes, {limits.HEADERS} headers, {limits.HEAD_SECONDS:g} s",
    "the arrival of a body": (
        f"{Limits.body_seconds:g} s, and one more for each "
        f"{limits.BODY_BYTES_PER_SECOND >> 10} KiB"
    ),
    "a body in chunks": (
        f"{limits.FREE_CHUNKS} chunks of any size, and one more for each {limits.CHUNK_BYTES} "
        f"bytes; {limits.FRAMING_BYTES >> 10} KiB"
    ),
    "bodies that arrive at a time": f"{limits.BODIES}, and {Limits().arriving_bytes // MIB} MiB",
    "requests in flight": f"and {Limits().held_bytes // MIB} MiB of bodies together",
    "JSON values of a body": f"{limits.VALUES}, and {limits.KEYS} keys",
    "`messages`": (
        f"{limits.MESSAGES}; each with {limits.PARTS} parts and {limits.TOOL_CALLS} tool calls"
    ),
    "`tools`": f"{limits.TOOLS} ",
    "`stop`": f"{limits.STOP} ",
    "`logit_bias`": f"{limits.BIASES} ",
    "`chat_template_kwargs`": f"{limits.TEMPLATE_VARIABLES} ",
    "the chat template": (
        f"{SECONDS} s of processor time and {CHARACTERS // MIB} Mi characters for a prompt; "
        f"{limits.WAITING_CHATS} chats wait, for {limits.WAITING_SECONDS:g} s each"
    ),
    "answers of the proxy that are not streams": (
        f"{MOST_BYTES // MIB} MiB each, and {limits.ANSWER_BYTES // MIB} MiB together"
    ),
    "a client that does not read": f"{2 * limits.WRITE_SECONDS:g} s",
    "the rest of a refused body": f"{limits.DRAINED_SECONDS:g} s",
    "requests on a connection before an answer": f"{limits.PIPELINED} ",
    "connections": f"and {limits.SPARE_CONNECTIONS} more",
}


@pytest.mark.parametrize(("of", "stated"), STATED.items())
def test_page_states_each_limit(of: str, stated: str) -> None:
    section = PAGE.read_text("utf-8").partition("\n## Limits\n")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| {re.escape(of)} \|(.*)\|$", section, re.MULTILINE)
    assert stated in row


def test_limits_of_bytes_follow_the_largest_body() -> None:
    largest = Limits(body_bytes=256 * MIB)
    assert (largest.arriving_bytes, largest.held_bytes) == (512 * MIB, 1024 * MIB)
