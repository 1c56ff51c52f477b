"""Server messages are printed without terminal control sequences."""

import io

import pytest
from typing_extensions import override

from specdec.tools.cli import options

HOSTILE_TEXT = "def f():\n\tpass \x1b]0;title\x07 \u202egnp\u200b"


class Terminal(io.StringIO):
    """A stdout that claims to be a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def test_terminal_gets_no_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    options.print_text(HOSTILE_TEXT, nl=False)
    assert terminal.getvalue() == ("def f():\n\tpass \\x1b]0;title\\x07 \\x202egnp\\x200b")


def test_file_gets_no_control_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    """A pager, a CI system's log or `cat` of the file would interpret them later."""
    options.print_text(HOSTILE_TEXT)
    written = capsys.readouterr().out
    assert written == "def f():\n\tpass \\x1b]0;title\\x07 \\x202egnp\\x200b\n"


def test_terminal_gets_joiners_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    text = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f4bb"
    options.print_text(text)
    assert terminal.getvalue() == text + "\n"
