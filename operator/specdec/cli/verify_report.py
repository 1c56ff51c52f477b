"""A verification on a terminal: its numbers, and where the first differing answers part."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.client.comparison import Divergence
from specdec.client.verification import Verification

_AROUND = 32
_UNKNOWN = "not told by the server"


def show(told: Verification) -> None:
    """Print it on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(told))
    if told.divergence is not None:
        for line in difference(told.divergence):
            console.print(line)
    if told.draft_tokens == 0:
        console.print("nothing was drafted: these answers came without speculation")


def failures(told: Verification) -> Iterator[str]:
    """One sentence for each reason that prompts were not compared, with their numbers."""
    places: dict[str, list[int]] = {}
    for failure in told.failures:
        places.setdefault(failure.sentence, []).append(failure.prompt_index + 1)
    for sentence, numbers in places.items():
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        yield f"{'prompt' if len(numbers) == 1 else 'prompts'} {shown}: {sentence}"


def difference(divergence: Divergence) -> Iterator[Text]:
    """Lines that show the answers around their first difference, one above the other."""
    found = divergence
    where = [f"token {found.position}"] if found.position is not None else []
    if found.character is not None:
        where.append(f"character {found.character}")
    yield Text(
        f"prompt {found.prompt_index + 1} differs at {', '.join(where)} of its answer", "bold"
    )
    yield Text(f"  prompt    {_escaped(found.prompt)}")
    if found.character is not None:
        start = max(0, found.character - _AROUND)
        before = ("..." if start else "") + _escaped(found.expected[start : found.character])
        for name, text, style in (
            ("expected", found.expected, "green"),
            ("got", found.got, "red"),
        ):
            rest = text[found.character : found.character + _AROUND]
            cut = "..." if len(text) > found.character + _AROUND else ""
            shown = _escaped(rest) + cut if rest else "(the answer ends here)"
            yield Text(f"  {name:<10}{before}").append(shown, style)
        yield Text(" " * (12 + cell_len(before)) + "^")
    if found.position is not None:
        expected = _token(found.expected_token, found.expected_token_text)
        got = _token(found.got_token, found.got_token_text)
        yield Text(f"  expected {expected}, got {got}")


def _table(told: Verification) -> Table:
    table = Table("Verification", "", title_justify="left")
    table.columns[1].justify = "right"
    acceptance, rounds = told.acceptance_percent, told.tokens_per_round
    share = "" if acceptance is None else f" ({acceptance:.1f} %)"
    for name, value in (
        ("prompts", told.prompts),
        ("equal answers", told.matched),
        ("different answers", told.different),
        ("not compared", len(told.failures)),
        ("compared by", "token ids" if told.compared == "tokens" else "text"),
        ("draft tokens", _UNKNOWN if told.draft_tokens is None else told.draft_tokens),
        (
            "accepted",
            _UNKNOWN if told.accepted_tokens is None else f"{told.accepted_tokens}{share}",
        ),
        ("rounds", _UNKNOWN if told.rounds is None else told.rounds),
        ("tokens per round", "-" if rounds is None else f"{rounds:.2f}"),
    ):
        table.add_row(name, str(value))
    return table


def _token(token: int | None, text: str) -> str:
    return "the end" if token is None else f"token {token} ({_escaped(text)})"


def _escaped(text: str) -> str:
    """The text on one line, with what does not print spelled out."""
    return "".join(c if c.isprintable() and c != "\\" else repr(c)[1:-1] for c in text)
