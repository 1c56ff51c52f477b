"""The tables of `specdec plan`: the verdict, and the layout on 80 columns and in a pipe."""

import io
from collections import Counter

import pytest
from rich.console import Console

from specdec.tools.dry_run import tables
from support.golden_cases import SAMPLES
from unit.dry_run.commands import sample_plan, sample_text


def test_first_line_is_the_verdict() -> None:
    lines = sample_text("tensorrt-draft-target-dedicated").splitlines()
    assert lines[0] == (
        "default/tensorrt-draft-target-dedicated is accepted: DraftTarget on TensorRT 1.2.1, "
        "5 GPUs in each pod; ModelsFetched, Compatible are known after fetch; read the message "
        "of Deprecated"
    )
    (first, *_) = sample_text("reference-baseline").splitlines()
    assert first.startswith("default/reference-baseline is accepted: None on Reference 0.19.0, no")


def test_method_without_a_draft_model_takes_no_gpu_for_it() -> None:
    def shown(sample: str) -> tuple[str, list[str]]:
        plan = sample_plan(sample)
        roles = [engine["role"] for engine in plan["engines"]]
        text = sample_text(sample)
        rows = [line for line in text.splitlines() if line.startswith("devices of")]
        return f"{plan['plan']['gpusPerPod']} GPUs for {roles}", rows

    assert shown("tensorrt-ngram") == (
        "1 GPUs for ['target']",
        ["devices of the target  0", "devices of a draft     none: no draft model"],
    )
    assert shown("tensorrt-draft-target-dedicated") == (
        "5 GPUs for ['target', 'draft']",
        ["devices of the target    0, 1, 2, 3", "devices of the draft     4"],
    )
    # The draft of the LLM API runs in the processes of the target, and no request sets a length.
    text = " ".join(sample_text("pytorch-draft-target").split())
    assert "devices of the draft those of the target" in text
    assert " draftTokens " not in text
    assert " maxDraftTokens 5 " in text
    assert shown("tensorrt-baseline")[1] == ["devices of the target  0, 1, 2, 3"]


def test_pipe_gets_whole_lines_without_padding() -> None:
    text = sample_text("tensorrt-draft-target-shared")
    assert not [line for line in text.splitlines() if line.endswith(" ")]
    (deprecated,) = [line for line in text.splitlines() if line.startswith("Deprecated ")]
    assert deprecated.endswith("docs/migration-pytorch.md has the steps")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_terminal_of_80_columns_shows_everything(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(file=io.StringIO(), width=80, highlight=False)
    monkeypatch.setattr(tables, "screen", lambda: screen)
    tables.show(sample_plan(name))
    assert isinstance(screen.file, io.StringIO)
    narrow = screen.file.getvalue()
    monkeypatch.undo()
    assert max(map(len, narrow.splitlines())) <= 80
    piped = sample_text(name)
    assert letters(narrow) == letters(piped)


def letters(text: str) -> Counter[str]:
    """Return the printed characters, without the layout in lines and columns."""
    return Counter(text.replace(" ", "").replace("\n", ""))
