"""The operator cleans and shortens text from other programs before people read it."""

import unicodedata

import pytest

from specdec.api.conditions import Condition, Type, merge
from specdec.api.reasons import AvailableReason, CommonReason
from specdec.api.text import LIMIT, bounded, cut, line, plain
from specdec.client.errors import RefusedError

COMMANDS = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    *"\u200b\u200c\u200d\u200e\u200f\u061c\u2028\u2029\ufeff\u00ad\u2060",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("character", COMMANDS, ids=lambda c: f"{ord(c):x}")
def test_no_character_that_commands_a_terminal_reaches_a_message(character: str) -> None:
    text = f"pod{character}ended"
    message = Condition(Type.READY, "False", AvailableReason.CRASH_LOOP, text).message
    assert character not in message
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in message)
    assert message.startswith("pod")
    assert message.endswith("ended")
    assert str(RefusedError(text)) == message == line(text)
    if character not in "\n":
        assert character not in plain(text)


@pytest.mark.parametrize("text", ["größer 10 % – 漢字 🦙", "a\\b 'c' $(d) <e>"])
def test_signs_of_any_script_stay(text: str) -> None:
    assert plain(text) == line(text) == text


def test_text_of_a_model_keeps_only_its_lines_and_tabs() -> None:
    assert plain("def f():\n\treturn\r\x1b[2J", "\n\t") == "def f():\n\treturn\\x0d\\x1b[2J"


def test_a_long_text_is_cut_at_a_word() -> None:
    assert cut("a" * LIMIT) == "a" * LIMIT
    shortened = cut("word " * 300)
    assert len(shortened) <= LIMIT
    assert shortened.endswith(" word…")
    assert cut("a" * 5000) == "a" * (LIMIT - 1) + "…"


def test_a_message_is_whole_in_a_condition_and_cut_in_the_status() -> None:
    condition = Condition(Type.READY, "False", CommonReason.REJECTED, "x" * 40_000)
    assert len(condition.message) == 40_000
    (merged,) = merge([], [condition], 1, "2026-01-01T00:00:00Z")
    assert merged["message"] == "x" * (LIMIT - 1) + "…"


def test_every_text_of_a_status_is_bounded() -> None:
    limited = bounded({"a": [{"b": "\x1b" + "y" * 5000}], "c": (1, None, True)})
    assert limited["c"] == [1, None, True]
    assert limited["a"][0]["b"].startswith("\\x1by")
    assert len(limited["a"][0]["b"]) == LIMIT
