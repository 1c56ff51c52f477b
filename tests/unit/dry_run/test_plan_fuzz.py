"""`specdec plan` prints a plan or error messages for damaged samples, and never a traceback.

`SPECDEC_FUZZ_FILES=10000` sets the number of damaged samples.
"""

import os
import random
import re
from pathlib import Path

import pytest

from support.golden_cases import SAMPLES
from unit.dry_run.commands import run

FILES = int(os.environ.get("SPECDEC_FUZZ_FILES", "240"))
GROUPS = 6
pytestmark = pytest.mark.slow
TEXTS = [path.read_text("utf-8") for path in SAMPLES.values()]
VALUES = (
    *("", "~", "null", "[]", "{}", "true", "-1", "0", "1.5", "1e9", "9999999999999999999999"),
    *(".inf", ".nan", "'", '"', "!!binary x", "&a [*a]", "*missing", "<<: {}", "2026-01-02"),
    *("\x00", "\x1b[2J", "\u2028", "é", "a" * 5000, "[[[[[[", "{a: {b: {c: {}}}}", "0x1F", "|"),
    *("../../etc/passwd", "$(id)", "{{ x }}", "%s%n", "- - -", "? a", ": b", "# c", "\t"),
)


def damaged(choice: random.Random) -> str:
    """Return a sample with one to four changes of its text."""
    text = choice.choice(TEXTS)
    for _ in range(choice.randint(1, 4)):
        text = choice.choice(CHANGES)(text, choice)
    return text


def another_value(text: str, choice: random.Random) -> str:
    """Replace the value of a field by a value that may have another type."""
    fields = list(re.finditer(r"(?<=: )\S[^\n]*", text))
    if not fields:
        return text
    field = choice.choice(fields)
    return text[: field.start()] + choice.choice(VALUES) + text[field.end() :]


def another_line(text: str, choice: random.Random) -> str:
    """Remove, repeat, move or indent a line."""
    lines = text.split("\n")
    place = choice.randrange(len(lines))
    line = lines.pop(place)
    change = choice.randrange(4)
    if change == 1:
        lines[place:place] = [line, line]
    elif change == 2:
        lines.insert(choice.randrange(len(lines) + 1), line)
    elif change == 3:
        lines.insert(place, " " * choice.randrange(9) + line.lstrip())
    return "\n".join(lines)


def another_name(text: str, choice: random.Random) -> str:
    """Give a field the name of another field."""
    names = list(re.finditer(r"\w+(?=:)", text))
    if not names:
        return text
    name, other = choice.choice(names), choice.choice(names)
    return text[: name.start()] + other.group() + text[name.end() :]


def another_character(text: str, choice: random.Random) -> str:
    """Replace up to three characters, or cut the text."""
    if choice.random() < 0.1:
        return text[: choice.randrange(len(text) + 1)]
    place = choice.randrange(len(text) + 1)
    put = "".join(chr(choice.choice((9, 10, 32, 45, 58, 91, 123, 233))) for _ in range(3))
    return text[:place] + put[: choice.randint(0, 3)] + text[place + choice.randint(0, 3) :]


CHANGES = (another_value, another_line, another_name, another_character)


@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_sample_gets_a_plan_or_sentences(group: int, tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    outcomes = dict.fromkeys((0, 1, 2), 0)
    for number in range(group, FILES, GROUPS):
        text = damaged(random.Random(number))
        file.write_text(text, "utf-8", errors="surrogatepass")
        result = run("plan", "-f", file)
        where = f"file {number}: {result.output[-400:]!r}\n{text}"
        assert result.exception is None or isinstance(result.exception, SystemExit), where
        assert result.exit_code in outcomes, where
        outcomes[result.exit_code] += 1
        if result.exit_code:
            assert result.stdout == "", where
            assert result.stderr.startswith("specdec: "), where
            # Each problem has a line, and no line is so long that it hides others.
            assert max(map(len, result.stderr.splitlines())) < 3000, where
            assert not re.search(r"[\x00-\x09\x0b-\x1f]", result.stderr), where
        else:
            assert " is accepted: " in result.stdout.splitlines()[0], where
    assert min(outcomes.values()) > 0, outcomes
