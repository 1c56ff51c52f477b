"""Print the result of `specdec verify`: a table, and the first difference between outputs."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.client.divergence import Divergence
from specdec.client.verification import Verification

_CONTEXT_CHARACTERS = 32
_UNKNOWN = "not reported by the server"


def show(result: Verification) -> None:
    """Print a result on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(result))
    if result.divergence is not None:
        for line in difference(result.divergence):
            console.print(line)
    if result.draft_tokens == 0:
        console.print("nothing was drafted: these outputs were generated without speculation")


def failures(result: Verification) -> Iterator[str]:
    """One sentence per reason why prompts were not compared, with their numbers."""
    by_reason: dict[str, list[int]] = {}
    for failure in result.failures:
        by_reason.setdefault(failure.sentence, []).append(failure.prompt_index + 1)
    for sentence, numbers in by_reason.items():
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        yield f"{'prompt' if len(numbers) == 1 else 'prompts'} {shown}: {sentence}"


def difference(divergence: Divergence) -> Iterator[Text]:
    """Lines that show both outputs around their first difference."""
    where = [f"token {divergence.position}"] if divergence.position is not None else []
    if divergence.character is not None:
        where.append(f"character {divergence.character}")
    yield Text(
        f"prompt {divergence.prompt_index + 1} differs at {', '.join(where)} of its answer", "bold"
    )
    yield Text(f"  prompt    {_escaped(divergence.prompt)}")
    if divergence.character is not None:
        start = max(0, divergence.character - _CONTEXT_CHARACTERS)
        before = ("..." if start else "") + _escaped(
            divergence.expected[start : divergence.character]
        )
        for name, text, style in (
            ("expected", divergence.expected, "green"),
            ("got", divergence.got, "red"),
        ):
            rest = text[divergence.character : divergence.character + _CONTEXT_CHARACTERS]
            cut = "..." if len(text) > divergence.character + _CONTEXT_CHARACTERS else ""
            shown = _escaped(rest) + cut if rest else "(the answer ends here)"
            yield Text(f"  {name:<10}{before}").append(shown, style)
        yield Text(" " * (12 + cell_len(before)) + "^")
    if divergence.position is not None:
        expected = _token(divergence.expected_token, divergence.expected_token_text)
        got = _token(divergence.got_token, divergence.got_token_text)
        yield Text(f"  expected {expected}, got {got}")


def _table(result: Verification) -> Table:
    table = Table("Verification", "", title_justify="left")
    table.columns[1].justify = "right"
    acceptance, rounds = result.acceptance_percent, result.tokens_per_round
    share = "" if acceptance is None else f" ({acceptance:.1f} %)"
    for name, value in (
        ("prompts", result.prompts),
        ("equal answers", result.matched),
        ("different answers", result.different),
        ("not compared", len(result.failures)),
        ("compared by", "token ids" if result.compared == "tokens" else "text"),
        ("draft tokens", _UNKNOWN if result.draft_tokens is None else result.draft_tokens),
        (
            "accepted",
            _UNKNOWN if result.accepted_tokens is None else f"{result.accepted_tokens}{share}",
        ),
        ("rounds", _UNKNOWN if result.rounds is None else result.rounds),
        ("tokens per round", "-" if rounds is None else f"{rounds:.2f}"),
    ):
        table.add_row(name, str(value))
    return table


def _token(token: int | None, text: str) -> str:
    return "the end" if token is None else f"token {token} ({_escaped(text)})"


def _escaped(text: str) -> str:
    """The text on one line, with non-printable characters escaped."""
    return "".join(c if c.isprintable() and c != "\\" else repr(c)[1:-1] for c in text)
