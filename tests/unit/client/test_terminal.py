"""Server messages are printed without terminal control sequences."""

import io

import pytest
from typing_extensions import override

from specdec.cli import options

SAID = "def f():\n\tpass \x1b]0;title\x07 \u202egnp\u200b"


class Terminal(io.StringIO):
    """A stdout that says it is one."""

    @override
    def isatty(self) -> bool:
        return True


def test_a_models_text_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    options.print_text(SAID, nl=False)
    assert terminal.getvalue() == ("def f():\n\tpass \\x1b]0;title\\x07 \\x202egnp\\x200b")


def test_a_models_text_goes_into_a_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_text(SAID)
    assert capsys.readouterr().out == SAID + "\n"


def test_a_models_text_keeps_the_joiners_of_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    text = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f4bb"
    options.print_text(text)
    assert terminal.getvalue() == text + "\n"
